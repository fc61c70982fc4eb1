/** How the lists of a schedule are followed: to the letter, or with later actions run early. */

import type { ActionList } from "../actions/action_list.ts";
import { peakOf } from "../actions/activations.ts";
import { elasticPolicy } from "./elastic_policy.ts";
import { listPolicy, type StepPolicy } from "./policy.ts";
import { activationParts, type Schedule } from "../schedule.ts";

/** How lists are followed, as plain data. */
export interface ListPolicy {
  /**
   * The head and never another ({@linkcode listPolicy}), or a later action where the head is not
   * ready ({@linkcode elasticPolicy}).
   */
  readonly name: "list" | "elastic";
  /**
   * Elastic: the most (stage, micro-batch) activations of a worker. A list that needs more has what
   * it needs, and no more than that where none is given.
   */
  readonly activationLimit?: number | undefined;
}

/**
 * A new policy that follows a list for one step.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { ActionList, B, F, followList } from "@troupe/troupe/schedules";
 *
 * const list = ActionList.from([F(0, 0), F(0, 1), B(0, 0), B(0, 1)]);
 * const policy = followList(list, { name: "list" });
 * policy.next([F(0, 0), F(0, 1)]);
 * strictEqual(policy.next([B(0, 0)]), undefined);
 * ```
 */
export function followList(
  list: ActionList,
  { name, activationLimit = 0 }: ListPolicy,
): StepPolicy {
  if (name === "list") return listPolicy(list);
  return elasticPolicy(list, { activationLimit: Math.max(activationLimit, peakOf(list)) });
}

/**
 * The policies of lists: for a worker, a new one that follows its list.
 *
 * @example
 * ```ts
 * import { throws } from "node:assert/strict";
 * import { ActionList, listPolicies } from "@troupe/troupe/schedules";
 *
 * const policyOf = listPolicies([ActionList.from([])]);
 * throws(() => policyOf(1), RangeError);
 * ```
 */
export function listPolicies(
  lists: readonly ActionList[],
  policy: ListPolicy = { name: "list" },
): (worker: number) => StepPolicy {
  return (worker) => {
    const list = lists[worker];
    if (list !== undefined) return followList(list, policy);
    throw new RangeError(
      `Cannot make a policy: the worker must be from 0 to ${lists.length - 1}, received ${worker}`,
    );
  };
}

/**
 * The same schedule with its lists followed in another way.
 *
 * @param activationLimit Elastic: the most activations of a worker, in micro-batches of 1/P of the
 * model as in {@linkcode Analysis.peakActivations}; for each worker what its list needs unless
 * given, and never less than that.
 * @throws {RangeError} if the schedule has no lists, or if the limit is no positive number.
 *
 * @example
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { B, createSchedule, F, withPolicy } from "@troupe/troupe/schedules";
 *
 * const schedule = createSchedule("gpipe", { workers: 1, microBatches: 2 });
 * const policy = withPolicy(schedule, "elastic").policy(0);
 * policy.next([F(0, 0), F(0, 1)]);
 * deepStrictEqual(policy.next([B(0, 0)]), B(0, 0)); // F(0, 1) comes first, but is not here
 * ```
 */
export function withPolicy(
  schedule: Schedule,
  name: ListPolicy["name"],
  activationLimit?: number,
): Schedule {
  const { lists } = schedule;
  if (lists === undefined) {
    throw new RangeError(
      `Cannot use the policy ${name}: the schedule must have lists, received ${schedule.name}`,
    );
  }
  if (activationLimit === undefined) return followedBy({ ...schedule, lists }, { name });
  if (!(activationLimit > 0)) {
    throw new RangeError(
      `Cannot use the policy ${name}: activationLimit must be a number above 0, ` +
        `received ${activationLimit}`,
    );
  }
  const limit = activationParts(schedule, activationLimit);
  return followedBy({ ...schedule, lists }, { name, activationLimit: limit });
}

/** The schedule with its lists followed by a policy. */
export function followedBy(
  schedule: Schedule & { readonly lists: readonly ActionList[] },
  listPolicy: ListPolicy,
): Schedule {
  return Object.freeze({
    ...schedule,
    listPolicy,
    policy: listPolicies(schedule.lists, listPolicy),
  });
}
