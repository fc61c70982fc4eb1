/** The stages of a schedule: on which workers they sit, and what part of the model each is. */

import type { Schedule } from "./schedule.ts";

/**
 * The number of workers that one pipeline is laid over: P in "1/P of the model".
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { createSchedule, pipelineWorkers } from "@troupe/troupe/schedules";
 *
 * strictEqual(pipelineWorkers(createSchedule("1f1b", { workers: 4, microBatches: 4 })), 4);
 * ```
 */
export function pipelineWorkers(schedule: Schedule): number {
  return schedule.placement.filter((held) => held.some(({ replica }) => replica === 0)).length;
}

/**
 * A number of activations in micro-batches of 1/P of the model as whole ones of (stage,
 * micro-batch).
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { activationParts, createSchedule } from "@troupe/troupe/schedules";
 *
 * const schedule = createSchedule("interleaved", { workers: 2, microBatches: 2, chunks: 2 });
 * strictEqual(activationParts(schedule, 1.5), 3);
 * ```
 */
export function activationParts(schedule: Schedule, activations: number): number {
  const share = pipelineWorkers(schedule) / schedule.stages;
  return Math.floor(activations / share + 1e-9); // shares such as 1/3 are not exact
}

/**
 * The worker of each stage of each replica, at index `replica * stages + stage`.
 *
 * @example
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { createSchedule, hostTable } from "@troupe/troupe/schedules";
 *
 * const schedule = createSchedule("1f1b", { workers: 3, microBatches: 4 });
 * deepStrictEqual([...hostTable(schedule)], [0, 1, 2]);
 * ```
 */
export function hostTable(schedule: Schedule): Int32Array {
  const copies = schedule.placement.reduce((sum, held) => sum + held.length, 0);
  const hosts = new Int32Array(copies);
  schedule.placement.forEach((held, worker) => {
    for (const { stage, replica } of held) hosts[replica * schedule.stages + stage] = worker;
  });
  return hosts;
}
