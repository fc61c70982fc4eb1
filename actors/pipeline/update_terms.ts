/**
 * Which weights each micro-batch is computed with, and which update its gradient is for.
 *
 * @module
 */

import type { UpdateTerms } from "./async_protocol.ts";
import type { EngineOptions } from "../run/engines/engine.ts";
import type { StepRequest } from "./protocol.ts";

/** Hands out the terms of step after step. */
export interface TermsClock {
  /** The terms of the micro-batches of the next step. */
  next(request: StepRequest): UpdateTerms[];
  /** The pipe is empty: all weights that are older than the newest are forgotten. */
  drained(): void;
}

/**
 * The terms of PipeDream and PipeDream-2BW.
 *
 * PipeDream (Narayanan et al. 2019, section 3.3) updates after every micro-batch, so a step of N
 * micro-batches is N optimizer steps. PipeDream-2BW (Narayanan et al. 2021, section 3.1) updates
 * once for the N micro-batches of a step, which are all computed with the weights before the newest
 * that the step can have: W(t+1) = W(t) − η·∇f(W(t−1)). After a drain there are no weights before
 * the newest, so the first two steps are computed with the same ones.
 */
export function openTerms(
  { schedule, predictionsOf }: Pick<EngineOptions, "schedule" | "predictionsOf">,
): TermsClock {
  const isEvery = schedule.updates === "every-backward";
  /** Steps since the pipe was empty. */
  let steps = 0;
  return {
    next({ microBatches, predictions, update, learningRate }) {
      const version = Math.max(0, steps++ - 1), last = microBatches.length - 1;
      return microBatches.map((batch, m): UpdateTerms => {
        if (isEvery) {
          const step = (update - 1) * schedule.microBatches + m + 1;
          return { lossScale: 1 / predictionsOf(batch), update: { step, learningRate } };
        }
        const terms = { lossScale: 1 / predictions, version };
        return m < last ? terms : { ...terms, update: { step: update, learningRate } };
      });
    },
    drained: () => void (steps = 0),
  };
}
