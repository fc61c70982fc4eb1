/** How many activations a worker holds over time. */

import { activationChanges } from "../actions/activations.ts";
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
 * The activations of a worker, a record for each time that they change: what is kept counts from the
 * start of the action that keeps it, and until the end of that which lets it go.
 *
 * @throws {RangeError} if there is no such worker.
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
  const list = schedule.lists[worker];
  if (list === undefined) {
    throw new RangeError(
      `Cannot tell activations: the worker must be from 0 to ${schedule.workers - 1}, ` +
        `received ${worker}`,
    );
  }
  const share = pipelineWorkers(schedule) / schedule.stages / list.slices;
  const changes = activationChanges(list), { starts, ends } = execution.timeline;
  let live = 0;
  for (let index = 0; index < list.length; index++) {
    let [gained, lost] = [0, 0];
    for (let part = list.startOf(index); part < list.startOf(index + 1); part++) {
      const change = changes[part] as number;
      if (change > 0) gained += change;
      else lost -= change;
    }
    if (gained > 0) {
      live += gained;
      yield { time: starts[worker]?.[index] as number, live: live * share };
    }
    if (lost > 0) {
      live -= lost;
      yield { time: ends[worker]?.[index] as number, live: live * share };
    }
  }
}
