/** Policies as data, as workers in other isolates get them. */

import assert from "node:assert/strict";
import { policyData, restorePolicy } from "../../../actors/pipeline/policy_data.ts";
import { B, createSchedule, F, type Schedule, withPolicy } from "../../../schedules/mod.ts";

const OPTIONS = { workers: 2, microBatches: 4 };

/** The policy of a worker after its data has been sent. */
const sent = (schedule: Schedule, worker: number) =>
  restorePolicy(structuredClone(policyData(schedule, OPTIONS, worker)));

Deno.test("a list is followed in another isolate as its schedule says", () => {
  const schedule = createSchedule("gpipe", OPTIONS);
  const ahead = (one: Schedule) => {
    const policy = sent(one, 1);
    policy.next([F(1, 0)]);
    return policy.next([B(1, 0)]);
  };
  assert.equal(ahead(schedule), undefined);
  assert.equal(ahead(withPolicy(schedule, "list")), undefined);
  assert.deepEqual(ahead(withPolicy(schedule, "elastic")), B(1, 0));
});

Deno.test("the limit of an elastic list travels with it", () => {
  const schedule = createSchedule("1f1b", OPTIONS);
  const second = (limit?: number) => {
    const policy = sent(withPolicy(schedule, "elastic", limit), 1);
    policy.next([F(1, 0)]);
    return policy.next([F(1, 1)]);
  };
  assert.equal(second(), undefined);
  assert.deepEqual(second(2), F(1, 1));
});

Deno.test("a policy without lists is made again by the name of its schedule", () => {
  const policy = sent(createSchedule("message-driven", OPTIONS), 1);
  assert.deepEqual(policy.next([F(1, 1), F(1, 0)]), F(1, 0));
});
