/** How many activations a worker holds over time. */

import { activationChange } from "../actions/activations.ts";
import { pipelineWorkers } from "../stages.ts";
import type { Analysis } from "./analyze.ts";

/** What a worker holds from a moment on. */
export interface LiveActivations {
  /** The moment. */
  readonly time: number;
  /** Activations, in micro-batches of 1/P of the model. */
  readonly live: number;
}

/**
 * The activations of a worker, a record for each time that they change: a forward counts from its
 * start, a backward until its end.
 *
 * @example
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { analyze, createSchedule, liveActivations } from "@troupe/troupe/schedules";
 *
 * const analysis = analyze(createSchedule("1f1b", { workers: 2, microBatches: 2 }));
 * deepStrictEqual([...liveActivations(analysis, 1)].map(({ time, live }) => [time, live]), [
 *   [1, 1],
 *   [4, 0],
 *   [4, 1],
 *   [7, 0],
 * ]);
 * ```
 */
export function* liveActivations(
  { schedule, execution }: Analysis,
  worker: number,
): IterableIterator<LiveActivations> {
  const list = schedule.lists[worker], share = pipelineWorkers(schedule) / schedule.stages;
  const { starts, ends } = execution.timeline;
  let live = 0;
  for (let index = 0; index < (list?.length ?? 0); index++) {
    let [gained, lost] = [0, 0];
    for (let part = list!.startOf(index); part < list!.startOf(index + 1); part++) {
      const change = activationChange(list!, part);
      if (change > 0) gained += change;
      else lost -= change;
    }
    if (gained > 0) {
      live += gained;
      yield { time: starts[worker]![index]!, live: live * share };
    }
    if (lost > 0) {
      live -= lost;
      yield { time: ends[worker]![index]!, live: live * share };
    }
  }
}
