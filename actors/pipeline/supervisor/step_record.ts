/**
 * What the supervisor knows of a step, from its request to its outcome.
 *
 * @module
 */

import type { StageMemory } from "../../../kernels/mod.ts";
import { type CommitDecision, openCommitDecision } from "../../commit/commit_decision.ts";
import { areFinite } from "../../commit/non_finite.ts";
import type { Reply } from "../../runtime/mod.ts";
import type { SupervisorMessage } from "../protocol.ts";
import type { StepOutcome, StepRequest, TracedAction } from "../step.ts";
import type { StepPlan } from "../step_plan.ts";
import { UPDATE_POLICIES } from "../update_policy.ts";
import type { SupervisorInit } from "./supervisor_init.ts";

/** A step under way. */
export interface StepRecord {
  /** Counts the steps tried. */
  readonly round: number;
  readonly request: StepRequest;
  readonly plan: StepPlan;
  readonly reply: Reply;
  /** For each data-parallel replica its first micro-batch, counted since the pipe was empty. */
  readonly first: readonly number[];
  readonly losses: Float32Array[];
  /** The commit, where the step ends with a flush. */
  readonly decision: CommitDecision | undefined;
  /** Sums of squares of each update that stages have made by themselves. */
  readonly updates: Map<string, number>[];
  readonly traces: (readonly TracedAction[])[];
  /** Whether the workers know of it. */
  hasBegun: boolean;
  isCommitted: boolean;
  /** Workers for which it has not ended. */
  endsMissing: number;
}

/** What workers have held so far. */
export interface Held {
  readonly peakActivations: number[];
  readonly weights: number[];
  readonly memory: StageMemory[];
}

/** Opens the record of a step that is asked for. */
export function openStepRecord(
  { workers, updates, eagerStages, clip }: SupervisorInit,
  asked: Pick<StepRecord, "round" | "request" | "plan" | "reply" | "first">,
): StepRecord {
  const copies = workers[0]!.copies.map(({ length }) => length);
  const { isFlushed } = UPDATE_POLICIES[updates];
  return {
    ...asked,
    losses: [],
    decision: isFlushed
      ? openCommitDecision({ copies, workers: workers.length, eagerStages, clip })
      : undefined,
    updates: [],
    traces: workers.map(() => []),
    hasBegun: false,
    isCommitted: false,
    endsMissing: workers.length,
  };
}

/** A step has ended for a worker. @returns whether it has for all. */
export function endFor(
  step: StepRecord,
  held: Held,
  done: Extract<SupervisorMessage, { type: "StepDone" }>,
): boolean {
  const { worker } = done;
  held.peakActivations[worker] = done.peakActivations;
  held.weights[worker] = done.weights;
  held.memory[worker] = done.memory;
  step.traces[worker] = done.trace;
  for (const [u, squares] of done.updates.entries()) {
    const sums = step.updates[u] ??= new Map();
    for (const [name, sum] of squares) sums.set(name, sum);
  }
  return --step.endsMissing === 0;
}

/**
 * The losses of a step, of which all have come: each before the gradients that follow from it.
 *
 * @throws when one has not, as where a transport loses messages.
 */
export function allLosses({ request: { step, microBatches }, losses }: StepRecord) {
  const missing = microBatches.findIndex((_, id) => !losses[id]);
  if (missing < 0) return losses;
  throw new Error(`Cannot end step ${step}: the loss of micro-batch ${missing} must have come`);
}

/** What a step gives that has ended for all workers. */
export function outcomeOf(step: StepRecord, held: Held): StepOutcome {
  const { traces, decision } = step, losses = allLosses(step);
  if (!decision) {
    const { updates } = step;
    return { losses, updates, isCommitted: areFinite(losses, updates), ...held, traces };
  }
  const { isCommitted, request: { lossScale } } = step;
  const unscaled = [...decision.squares].map(([name, sum]) =>
    [name, sum / lossScale ** 2] as const
  );
  return { losses, updates: isCommitted ? [new Map(unscaled)] : [], isCommitted, ...held, traces };
}
