/** A schedule with its lists followed in another way. */

import type { ListedSchedule, Schedule } from "../schedule.ts";
import { activationParts } from "../stages.ts";
import { listPolicies, type ListPolicy } from "./list_policies.ts";

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
  schedule: ListedSchedule,
  listPolicy: ListPolicy,
): Schedule {
  return Object.freeze({
    ...schedule,
    listPolicy,
    policy: listPolicies(schedule.lists, listPolicy),
  });
}
