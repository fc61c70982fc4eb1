/** How the lists of a schedule are followed: to the letter, or with later actions run early. */

import type { Action } from "../actions/action.ts";
import type { ActionList } from "../actions/action_list.ts";
import { peakOf } from "../actions/activations.ts";
import { elasticPolicy } from "./elastic_policy.ts";
import { isOffered } from "./offers.ts";
import type { StepPolicy } from "./policy.ts";

/**
 * Follows an action list: its head as soon as the inputs of the head are there, never another.
 *
 * @example
 * ```ts
 * import { deepStrictEqual, strictEqual } from "node:assert/strict";
 * import { ActionList, B, F, listPolicy } from "@troupe/troupe/schedules";
 *
 * const policy = listPolicy(ActionList.from([F(0, 0), B(0, 0)]));
 * strictEqual(policy.next([F(0, 1)]), undefined);
 * deepStrictEqual(policy.next([F(0, 1), F(0, 0)]), F(0, 0));
 * strictEqual(policy.done, false);
 * deepStrictEqual(policy.waitsFor, B(0, 0));
 * ```
 */
export function listPolicy(list: ActionList): StepPolicy {
  let index = 0;
  const policy = {
    next(ready: readonly Action[]): Action | undefined {
      const head = policy.waitsFor;
      if (head === undefined || !isOffered(ready, head)) return undefined;
      policy.waitsFor = list.at(++index);
      policy.done = index === list.length;
      return head;
    },
    done: list.length === 0,
    waitsFor: list.at(index),
  };
  return policy;
}

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
