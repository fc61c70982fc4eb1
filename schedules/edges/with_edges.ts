/** A schedule of a model whose stages use values beyond what the stage before hands them. */

import type { ListedSchedule, Schedule } from "../schedule.ts";
import { checkEdges, type SkipEdge } from "./skip_edge.ts";

/**
 * The same schedule with skip edges: its forwards wait for the values that their stages use, its
 * backwards for the gradient from the next stage that uses a value. What each worker does in which
 * order stays as it is; what it waits for, holds and sends is more.
 *
 * @param edges between stages, in any order; those of the chain are not among them.
 * @throws {RangeError} if the schedule has no such stages, or a value goes to an earlier one: the text
 * names the circle of actions that would wait for each other.
 *
 * @example A value that two later stages use
 * ```ts
 * import { strictEqual, throws } from "node:assert/strict";
 * import { analyze, createSchedule, withEdges } from "@troupe/troupe/schedules";
 *
 * const chain = createSchedule("1f1b", { workers: 4, microBatches: 8 });
 * const schedule = withEdges(chain, [{ from: 0, to: [2, 3] }]);
 * strictEqual(analyze(schedule).makespan, 33);
 * strictEqual(analyze(schedule, { skip: 5 }).makespan, 64);
 * throws(() => withEdges(chain, [{ from: 2, to: [1] }]), {
 *   message: "Cannot use the skip edge 2>1: its value must go to a later stage, received a " +
 *     "circle: 1F0 waits for 2F0, 2F0 waits for 1F0",
 * });
 * ```
 */
export function withEdges(schedule: ListedSchedule, edges: readonly SkipEdge[]): ListedSchedule;
/** The same of a schedule whose order may be left to messages. */
export function withEdges(schedule: Schedule, edges: readonly SkipEdge[]): Schedule;
export function withEdges(schedule: Schedule, edges: readonly SkipEdge[]): Schedule {
  checkEdges(edges, schedule.stages);
  const { edges: _, ...chain } = schedule;
  return Object.freeze({ ...chain, ...edges.length > 0 && { edges } });
}
