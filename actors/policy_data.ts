/**
 * Policies as plain data: a worker in another isolate makes its own from it.
 *
 * @module
 */

import {
  type Action,
  ActionList,
  createSchedule,
  listPolicy,
  type Schedule,
  type ScheduleOptions,
  type StepPolicy,
} from "../schedules/mod.ts";

/** A worker's list of actions, or the name under which every isolate finds the policy. */
export type PolicyData =
  | { readonly actions: readonly Action[] }
  | { readonly name: string; readonly options: ScheduleOptions; readonly worker: number };

/** The policy of one worker of a schedule as plain data. */
export function policyData(
  schedule: Schedule,
  options: ScheduleOptions,
  worker: number,
): PolicyData {
  const list = schedule.lists?.[worker];
  return list ? { actions: [...list] } : { name: schedule.name, options, worker };
}

/** A new policy, good for one step. */
export function restorePolicy(data: PolicyData): StepPolicy {
  return "actions" in data
    ? listPolicy(ActionList.from(data.actions))
    : createSchedule(data.name, data.options).policy(data.worker);
}
