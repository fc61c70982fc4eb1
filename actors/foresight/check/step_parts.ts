/**
 * Where the time of a step goes, of one that was measured and of one that was predicted: the same
 * parts of both, so that a miss can be explained.
 *
 * @module
 */

import { parts as partsOf } from "../../../schedules/mod.ts";
import { readStep } from "../../run/timeline/mod.ts";
import type { StepOutcome } from "../../pipeline/step.ts";
import { timedActions } from "../concurrency.ts";
import type { Prediction } from "../predict.ts";
import { mapNumbers } from "../profile/find_costs.ts";

/** Milliseconds of a step, the mean of its workers. */
export interface StepParts {
  /** It ran actions. */
  readonly busyMs: number;
  /** It chose the next one, whose inputs were there. */
  readonly dispatchMs: number;
  /** It waited for messages that were on their way. */
  readonly messageMs: number;
  /** It waited for what was not computed yet, or had nothing to do any more. */
  readonly bubbleMs: number;
  /** From the last action of all workers to the answer, and from the request to the first action. */
  readonly closingMs: number;
  /** For each stage and kind of action the mean of its milliseconds: `0F`. */
  readonly actions: Readonly<Record<string, number>>;
}

/** The parts of a traced step that took so long from its request to its answer. */
export function measuredParts(
  stepMs: number,
  traces: StepOutcome["traces"],
  replicas: number,
): StepParts {
  const { start, workers } = readStep(traces, replicas);
  const actions: NamedMs[] = [];
  let last = start;
  for (const span of workers.flatMap(({ spans }) => spans)) {
    if (span.actions.length === 0) continue;
    last = Math.max(last, span.end);
    actions.push([`${span.stages[0]}${span.kind}`, span.end - span.start]);
  }
  const sum = { busyMs: 0, dispatchMs: 0, messageMs: 0 };
  for (const { busyMs, gaps } of workers) {
    sum.busyMs += busyMs / workers.length;
    for (const gap of gaps) {
      const ms = (Math.min(gap.end, last) - Math.min(gap.start, last)) / workers.length;
      if (gap.kind === "pause") sum.dispatchMs += ms;
      if (gap.kind === "message") sum.messageMs += ms;
    }
  }
  const computedMs = last - start;
  return {
    ...sum,
    bubbleMs: computedMs - sum.busyMs - sum.dispatchMs - sum.messageMs,
    closingMs: stepMs - computedMs,
    actions: meansOf(actions),
  };
}

/** The parts of a prediction. */
export function predictedParts({ stepMs, variationMs, simulated }: Prediction): StepParts {
  const { workers, computedMs } = simulated;
  const mean = (name: keyof typeof workers[number]) => meanOf(workers.map((one) => one[name]));
  const actions = Array.from(timedActions(simulated), ({ action, start, end }): NamedMs => {
    const isOne = partsOf(action).every(({ kind }) => kind === action.kind);
    return [`${action.stage}${isOne ? action.kind : "F&B"}`, end - start];
  });
  const busyMs = mean("busyMs"), dispatchMs = mean("dispatchMs");
  const messageMs = mean("communicationMs");
  return {
    busyMs,
    dispatchMs,
    messageMs,
    // They wait for what is late.
    bubbleMs: computedMs + variationMs - busyMs - dispatchMs - messageMs,
    closingMs: stepMs - variationMs - computedMs,
    actions: meansOf(actions),
  };
}

/** Returns the means of several steps' parts. */
export function meanParts(all: readonly StepParts[]): StepParts {
  const { actions, ...times } = all[0]!;
  return {
    ...mapNumbers(times, (_, name) => meanOf(all.map((one) => one[name]))),
    actions: mapNumbers(actions, (_, name) => meanOf(all.map((one) => one.actions[name] ?? 0))),
  };
}

type NamedMs = readonly [name: string, ms: number];

const meanOf = (all: readonly number[]) => all.reduce((sum, one) => sum + one, 0) / all.length;

const meansOf = (actions: readonly NamedMs[]) =>
  Object.fromEntries(
    [...Map.groupBy(actions, ([name]) => name)].sort(([a], [b]) => a < b ? -1 : 1)
      .map(([name, all]) => [name, meanOf(all.map(([, ms]) => ms))]),
  );
