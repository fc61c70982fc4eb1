import assert from "node:assert/strict";
import {
  type Action,
  ActionList,
  B,
  createSchedule,
  F,
  I,
  listPolicy,
  messageDrivenPolicy,
  overlap,
  takeOffers,
  W,
} from "../../schedules/mod.ts";

function policyFor(...actions: Action[]) {
  return listPolicy(ActionList.from(actions));
}

Deno.test("a list waits for its head, and is done after its last action", () => {
  const policy = policyFor(F(0, 0), B(0, 0));
  assert.equal(policy.next([B(0, 0)]), undefined);
  assert.deepEqual(policy.waitsFor, F(0, 0));
  assert.deepEqual(policy.next([B(0, 0), F(0, 0)]), F(0, 0));
  assert.equal(policy.done, false);
  assert.deepEqual(policy.next([B(0, 0)]), B(0, 0));
  assert.equal(policy.done, true);
  assert.equal(policy.waitsFor, undefined);
  assert.equal(policy.next([F(0, 0)]), undefined);
});

Deno.test("a split backward is offered whole, its weight part after it", () => {
  const policy = policyFor(I(1, 0), W(1, 0));
  assert.deepEqual(policy.next([B(1, 0)]), I(1, 0));
  assert.equal(policy.next([B(1, 1)]), undefined);
  assert.deepEqual(policy.next([W(1, 0)]), W(1, 0));
});

Deno.test("a composed action runs when all of its parts can", () => {
  const policy = policyFor(F(0, 4, 5), overlap(F(0, 6), B(7, 1)));
  assert.equal(policy.next([F(0, 4)]), undefined);
  const ready = [F(0, 5), F(0, 4), B(7, 1)];
  const first = policy.next(ready)!;
  takeOffers(ready, first);
  assert.deepEqual([first, ready], [F(0, 4, 5), [B(7, 1)]]);
  assert.equal(policy.next(ready), undefined);
  ready.push(F(0, 6));
  takeOffers(ready, policy.next(ready)!);
  assert.deepEqual(ready, []);
});

Deno.test("a whole gradient serves both halves, and two halves serve the whole", () => {
  const halves = policyFor(B(3, 0, 0), B(3, 0, 1));
  const ready = [B(3, 0)];
  takeOffers(ready, halves.next(ready)!);
  assert.deepEqual(ready, [B(3, 0)]);
  takeOffers(ready, halves.next(ready)!);
  assert.deepEqual(ready, []);
  const whole = policyFor(B(2, 0));
  assert.equal(whole.next([B(2, 0, 0)]), undefined);
  const both = [B(2, 0, 0), B(2, 0, 1)];
  takeOffers(both, whole.next(both)!);
  assert.deepEqual(both, []);
});

Deno.test("what is not offered cannot be taken", () => {
  assert.throws(() => takeOffers([F(0, 1)], F(0, 0)), {
    name: "RangeError",
    message: "Cannot run 0F0: 0F0 must be offered, received [0F1]",
  });
});

const MIDDLE = { stage: 1, stages: 4, microBatches: 4, limit: 4 } as const;

Deno.test("fifo takes what arrived first, backward-first prefers a backward", () => {
  const ready = [F(1, 0), B(1, 0)];
  assert.deepEqual(messageDrivenPolicy({ ...MIDDLE, order: "fifo" }).next(ready), F(1, 0));
  const backwardFirst = messageDrivenPolicy({ ...MIDDLE, order: "backward-first" });
  assert.deepEqual(backwardFirst.next(ready), B(1, 0));
});

Deno.test("no order lets an action overtake another of its stage and kind", () => {
  for (const order of ["fifo", "backward-first"] as const) {
    const policy = messageDrivenPolicy({ ...MIDDLE, order });
    assert.equal(policy.next([F(1, 1), B(1, 1)]), undefined);
    assert.deepEqual(policy.next([F(1, 1), F(1, 0)]), F(1, 0));
    assert.deepEqual(policy.next([F(1, 1)]), F(1, 1));
  }
});

Deno.test("the last stage runs its backward directly after its forward", () => {
  const policy = messageDrivenPolicy({ ...MIDDLE, stage: 3, order: "fifo" });
  assert.deepEqual(policy.next([F(3, 0)]), F(3, 0));
  assert.deepEqual(policy.next([F(3, 1), B(3, 0)]), B(3, 0));
});

Deno.test("the first stage fills the pipe before it looks at gradients", () => {
  const policy = messageDrivenPolicy({ ...MIDDLE, stage: 0, limit: 2, order: "backward-first" });
  policy.next([F(0, 0)]);
  assert.deepEqual(policy.next([B(0, 0), F(0, 1)]), F(0, 1));
  assert.deepEqual(policy.next([B(0, 0), F(0, 2)]), B(0, 0));
});

Deno.test("a message-driven policy is done after its last backward", () => {
  const policy = messageDrivenPolicy({ ...MIDDLE, microBatches: 1, order: "fifo" });
  policy.next([F(1, 0)]);
  assert.equal(policy.done, false);
  policy.next([B(1, 0)]);
  assert.equal(policy.done, true);
});

Deno.test("a schedule makes a new policy each time, for the workers that it has", () => {
  const schedule = createSchedule("1f1b", { workers: 2, microBatches: 1 });
  for (let step = 0; step < 2; step++) {
    const policy = schedule.policy(1);
    assert.deepEqual(policy.next([F(1, 0)]), F(1, 0));
  }
  assert.throws(() => schedule.policy(2), {
    name: "RangeError",
    message: /from 0 to 1, received 2/,
  });
});
