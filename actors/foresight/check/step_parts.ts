/**
 * Where the time of a step goes, of one that was measured and of one that was predicted: the same
 * parts of both, so that a miss can be explained.
 *
 * @module
 */

import { parts as partsOf } from "../../../schedules/mod.ts";
import { readStep } from "../../run/timeline/mod.ts";
import type { StepOutcome } from "../../pipeline/step.ts";
import type { Prediction } from "../predict.ts";

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
  const actions = new Means();
  let last = start;
  for (const span of workers.flatMap(({ spans }) => spans)) {
    if (span.actions.length === 0) continue;
    last = Math.max(last, span.end);
    actions.add(`${span.stages[0]}${span.kind}`, span.end - span.start);
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
    actions: actions.all,
  };
}

/** The parts of a prediction. */
export function predictedParts({ stepMs, variationMs, simulated }: Prediction): StepParts {
  const { workers, schedule, timeline: { starts, ends }, computedMs } = simulated;
  const mean = (pick: (one: typeof workers[number]) => number) =>
    workers.reduce((sum, one) => sum + pick(one), 0) / workers.length;
  const actions = new Means();
  for (const [worker, list] of schedule.lists.entries()) {
    let index = 0;
    for (const action of list) {
      const ms = ends[worker]![index]! - starts[worker]![index]!, kinds = partsOf(action);
      const kind = kinds.every((part) => part.kind === action.kind) ? action.kind : "F&B";
      actions.add(`${action.stage}${kind}`, ms);
      index++;
    }
  }
  const busyMs = mean((one) => one.busyMs), dispatchMs = mean((one) => one.dispatchMs);
  const messageMs = mean((one) => one.communicationMs);
  return {
    busyMs,
    dispatchMs,
    messageMs,
    // They wait for what is late.
    bubbleMs: computedMs + variationMs - busyMs - dispatchMs - messageMs,
    closingMs: stepMs - variationMs - computedMs,
    actions: actions.all,
  };
}

/** The mean of several steps' parts. */
export function meanParts(all: readonly StepParts[]): StepParts {
  const mean = (pick: (one: StepParts) => number) =>
    all.reduce((sum, one) => sum + pick(one), 0) / all.length;
  const names = Object.keys(all[0]!.actions);
  return {
    busyMs: mean((one) => one.busyMs),
    dispatchMs: mean((one) => one.dispatchMs),
    messageMs: mean((one) => one.messageMs),
    bubbleMs: mean((one) => one.bubbleMs),
    closingMs: mean((one) => one.closingMs),
    actions: Object.fromEntries(names.map((name) => [name, mean((one) => one.actions[name] ?? 0)])),
  };
}

/** Means by name. */
class Means {
  readonly #sums = new Map<string, { ms: number; count: number }>();

  add(name: string, ms: number): void {
    const sum = this.#sums.get(name) ?? { ms: 0, count: 0 };
    this.#sums.set(name, { ms: sum.ms + ms, count: sum.count + 1 });
  }

  get all(): Record<string, number> {
    return Object.fromEntries(
      [...this.#sums].sort(([a], [b]) => a < b ? -1 : 1).map((
        [name, { ms, count }],
      ) => [name, ms / count]),
    );
  }
}
