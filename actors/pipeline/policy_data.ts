/**
 * Policies as plain data: a worker in another isolate makes its own from it.
 *
 * @module
 */

import {
  type Action,
  ActionList,
  createSchedule,
  followList,
  formatAction,
  type ListPolicy,
  parts,
  type Schedule,
  type ScheduleOptions,
  type StepPolicy,
} from "../../schedules/mod.ts";

/** A worker's actions and how they are followed, or the name by which every isolate finds them. */
export type PolicyData =
  | { readonly actions: readonly Action[]; readonly policy: ListPolicy }
  | { readonly name: string; readonly options: ScheduleOptions; readonly worker: number };

/** The policy of one worker of a schedule as plain data. */
export function policyData(
  schedule: Schedule,
  options: ScheduleOptions,
  worker: number,
): PolicyData {
  const list = schedule.lists?.[worker];
  return list
    ? { actions: [...list], policy: schedule.listPolicy ?? { name: "list" } }
    : { name: schedule.name, options, worker };
}

/** The actions that compute a stage again, by their names: nobody but a list asks for them. */
export function recomputationsOf(data: PolicyData): ReadonlySet<string> {
  const actions = "actions" in data ? data.actions.flatMap(parts) : [];
  return new Set(actions.filter(({ kind }) => kind === "R").map(formatAction));
}

/** A new policy, good for one step. */
export function restorePolicy(data: PolicyData): StepPolicy {
  return "actions" in data
    ? followList(ActionList.from(data.actions), data.policy)
    : createSchedule(data.name, data.options).policy(data.worker);
}
