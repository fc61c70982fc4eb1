/**
 * Which all-reduces start while other stages still run backward (Chimera, section 3.2).
 *
 * @module
 */

import { analyze, type ListedSchedule, parts, type Schedule } from "../../schedules/mod.ts";

/**
 * When the all-reduce of a stage starts (Chimera, section 3.2): after the last backward of all
 * stages, after the last backward of this stage, or the latter only where the workers have idle
 * time before their own end, so that it does not keep them from computing.
 */
export type SyncStrategy = "end" | "eager" | "eager-opt";

/**
 * The stages whose all-reduce starts after their own last backward, in place of the step's.
 *
 * With `eager-opt` these are the stages after whose last backward each of their workers has idle
 * time before its own end: on the two middle workers of Chimera there is none, and there an early
 * all-reduce would only get in the way.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { createSchedule } from "@troupe/troupe/schedules";
 *
 * const chimera = createSchedule("chimera", { workers: 4, microBatches: 4 });
 * assert.deepEqual(eagerStages(chimera, "end"), []);
 * assert.deepEqual(eagerStages(chimera, "eager"), [0, 1, 2, 3]);
 * assert.deepEqual(eagerStages(chimera, "eager-opt"), [3]);
 * ```
 */
export function eagerStages(schedule: Schedule, sync: SyncStrategy): number[] {
  const stages = Array.from({ length: schedule.stages }, (_, stage) => stage);
  if (sync === "end") return [];
  if (sync === "eager") return stages;
  const { schedule: listed, execution: { timeline: { starts, ends } } } = analyze(schedule);
  return stages.filter((stage) =>
    listed.placement.every((held, worker) =>
      held.every((one) =>
        one.stage !== stage ||
        idleAfter(listed, worker, stage, starts[worker]!, ends[worker]!) > 0
      )
    )
  );
}

/** Idle time of a worker from a stage's last backward to the worker's last action. */
function idleAfter(
  { lists }: ListedSchedule,
  worker: number,
  stage: number,
  starts: Float64Array,
  ends: Float64Array,
): number {
  const last = [...lists[worker]!].findLastIndex((action) =>
    parts(action).some((part) => part.stage === stage && part.kind !== "F")
  );
  let idle = 0;
  for (let i = last + 1; i < starts.length; i++) idle += starts[i]! - ends[i - 1]!;
  return idle;
}
