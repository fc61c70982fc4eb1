/**
 * When weights step, which version of them a forward reads, and what a step waits for: all that tells
 * PipeDream and PipeDream-2BW from schedules with a flush.
 *
 * [Note: flushes] With a flush the pipe runs empty at the end of each step; then all copies of all
 * stages have their gradients, and the step is committed by all workers or by none. Without, stages
 * step their weights one by one while others still compute and the next step has begun, so there is
 * no moment at which they could agree on a step. A loss or gradient that is not finite is told in the
 * outcome of its step, when it has reached weights already.
 *
 * @module
 */

import type { Schedule, WeightUpdates } from "../../schedules/mod.ts";
import type { StepRequest } from "./step.ts";

/** The updates of one step where each stage steps its weights by itself. */
export interface LocalUpdates {
  /** Micro-batches of an update: its backwards are followed by a step of the optimizer. */
  readonly every: number;
  /** The optimizer step of the first of them, from 1. */
  readonly first: number;
  /** Of each of them. */
  readonly learningRate: number;
  /**
   * The weights that forwards of the step read, as the number of updates since the pipe was empty;
   * without it the newest when a forward runs.
   */
  readonly version?: number | undefined;
}

/** How weights are updated. */
export interface UpdatePolicy {
  /** Whether the pipe runs empty at the end of each step, which all workers then commit. */
  readonly isFlushed: boolean;
  /** Micro-batches of a data-parallel replica that may be in flight. */
  inFlight(schedule: Schedule): number;
  /** Steps that should begin before the oldest one has ended, to keep the pipe full. */
  stepsAhead(schedule: Schedule): number;
  /** Factor of the loss of a micro-batch: one over the predictions of the update it is for. */
  lossScale(request: StepRequest, predictions: number): number;
  /**
   * What each stage does by itself.
   *
   * @param stepsBefore steps since the pipe was empty.
   */
  localUpdates(
    request: StepRequest,
    schedule: Schedule,
    stepsBefore: number,
  ): LocalUpdates | undefined;
}

/** What both policies without flushes have in common. */
const WITHOUT_FLUSHES = {
  isFlushed: false,
  // Worker 0 holds D micro-batches; one more waits there, so that it need not wait for its credit.
  inFlight: ({ workers }: Schedule) => workers + 1,
  // D − 1 micro-batches follow the last one of a step into the pipe; one step more, so that they
  // are there in time.
  stepsAhead: ({ workers, microBatches }: Schedule) => Math.ceil((workers - 1) / microBatches) + 1,
};

/**
 * The policies by what a schedule says of its weights.
 *
 * - `flush`: W(t+1) = W(t) − η·∇f(W(t)), by all workers at the end of the step.
 * - `every-backward`: PipeDream (Narayanan et al. 2019, section 3.3) updates after every micro-batch,
 *   so a step of N micro-batches is N optimizer steps.
 * - `double-buffered`: PipeDream-2BW (Narayanan et al. 2021, section 3.1) updates once for the N
 *   micro-batches of a step, which are all computed with the weights before the newest that the step
 *   can have: W(t+1) = W(t) − η·∇f(W(t−1)). In an empty pipe there are no weights before the newest,
 *   so the first two steps are computed with the same ones.
 */
export const UPDATE_POLICIES: Readonly<Record<WeightUpdates, UpdatePolicy>> = {
  "flush": {
    isFlushed: true,
    inFlight: ({ injectionLimit }) => injectionLimit,
    stepsAhead: () => 0,
    lossScale: ({ lossScale, predictions }) => lossScale / predictions,
    localUpdates: () => undefined,
  },
  "every-backward": {
    ...WITHOUT_FLUSHES,
    lossScale: (_, predictions) => 1 / predictions,
    localUpdates: ({ update, learningRate }, { microBatches }) => ({
      every: 1,
      first: (update - 1) * microBatches + 1,
      learningRate,
    }),
  },
  "double-buffered": {
    ...WITHOUT_FLUSHES,
    lossScale: ({ predictions }) => 1 / predictions,
    localUpdates: ({ update, learningRate, microBatches }, _, stepsBefore) => ({
      every: microBatches.length,
      first: update,
      learningRate,
      version: Math.max(0, stepsBefore - 1),
    }),
  },
};
