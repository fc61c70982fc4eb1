/** Simulates a schedule whose order depends on arrival: which action each worker takes, when. */

import type { ListedSchedule, Schedule } from "../schedule.ts";
import { simulateStep } from "../simulator/simulate_step.ts";
import { modelOfCosts } from "../simulator/step_model.ts";
import type { Costs } from "./costs.ts";

/**
 * The lists of a schedule: its own, or for a message-driven one the order in which its workers
 * take the messages under the given costs. The supervisor injects `injectionLimit` micro-batches
 * and one more for each that comes back; of actions that become ready at the same moment the
 * lower micro-batch counts as first, then the backward.
 *
 * @throws {RangeError} if a cost is not usable, or if the policies stop before the step is done.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { createSchedule, withLists } from "@troupe/troupe/schedules";
 *
 * const schedule = createSchedule("message-driven", { workers: 2, microBatches: 3 });
 * strictEqual(String(withLists(schedule).lists[0]), "0F0,0F1,0B0,0F2,0B1,0B2");
 * ```
 */
export function withLists(schedule: Schedule, costs: Costs = {}): ListedSchedule {
  const { lists } = schedule;
  if (lists !== undefined) return { ...schedule, lists };
  return simulateStep(modelOfCosts(schedule, costs)).schedule;
}
