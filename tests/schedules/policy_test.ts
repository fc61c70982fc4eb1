import { atDepth } from "../depth.ts";
import assert from "node:assert/strict";
import {
  type Action,
  ActionList,
  analyze,
  B,
  createSchedule,
  elasticPolicy,
  F,
  formatAction,
  I,
  listPolicy,
  messageDrivenPolicy,
  overlap,
  parts,
  simulateStep,
  type StepPolicy,
  takeOffers,
  validate,
  W,
  withPolicy,
} from "../../schedules/mod.ts";
import fc from "../fast_check.ts";
import { atAnyPace, inWords, made, propertyTest, refuses, servedCases } from "./cases.ts";

const policyFor = (...actions: Action[]) => listPolicy(ActionList.from(actions));

/** Has a policy run its next action of some offers, and takes what that needs out of them. */
function runNext(policy: StepPolicy, ready: Action[]): Action {
  const action = policy.next(ready)!;
  takeOffers(ready, action);
  return action;
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
  assert.deepEqual([runNext(policy, ready), ready], [F(0, 4, 5), [B(7, 1)]]);
  assert.equal(policy.next(ready), undefined);
  ready.push(F(0, 6));
  runNext(policy, ready);
  assert.deepEqual(ready, []);
});

Deno.test("a whole gradient serves both halves, and two halves serve the whole", () => {
  const halves = policyFor(B(3, 0, 0), B(3, 0, 1));
  const ready = [B(3, 0)];
  runNext(halves, ready);
  assert.deepEqual(ready, [B(3, 0)]);
  runNext(halves, ready);
  assert.deepEqual(ready, []);
  const whole = policyFor(B(2, 0));
  assert.equal(whole.next([B(2, 0, 0)]), undefined);
  const both = [B(2, 0, 0), B(2, 0, 1)];
  runNext(whole, both);
  assert.deepEqual(both, []);
});

Deno.test("what is not offered cannot be taken", () => {
  const message = "Cannot run 0F0: 0F0 must be offered, received [0F1]";
  refuses(() => takeOffers([F(0, 1)], F(0, 0)), message);
});

/** A policy of a stage of four that takes messages as they come. */
const messages = (order: "fifo" | "backward-first", stage = 1, limit = 4, microBatches = 4) =>
  messageDrivenPolicy({ stage, stages: 4, microBatches, limit, order });

Deno.test("fifo takes what arrived first, backward-first prefers a backward", () => {
  const ready = [F(1, 0), B(1, 0)];
  assert.deepEqual(messages("fifo").next(ready), F(1, 0));
  assert.deepEqual(messages("backward-first").next(ready), B(1, 0));
});

Deno.test("no order lets an action overtake another of its stage and kind", () => {
  for (const order of ["fifo", "backward-first"] as const) {
    const policy = messages(order);
    assert.equal(policy.next([F(1, 1), B(1, 1)]), undefined);
    assert.deepEqual(policy.next([F(1, 1), F(1, 0)]), F(1, 0));
    assert.deepEqual(policy.next([F(1, 1)]), F(1, 1));
  }
});

Deno.test("the last stage runs its backward directly after its forward, and the first fills the pipe", () => {
  const last = messages("fifo", 3), first = messages("backward-first", 0, 2);
  assert.deepEqual(last.next([F(3, 0)]), F(3, 0));
  assert.deepEqual(last.next([F(3, 1), B(3, 0)]), B(3, 0));
  first.next([F(0, 0)]);
  assert.deepEqual(first.next([B(0, 0), F(0, 1)]), F(0, 1));
  assert.deepEqual(first.next([B(0, 0), F(0, 2)]), B(0, 0));
});

Deno.test("a message-driven policy is done after its last backward", () => {
  const policy = messages("fifo", 1, 4, 1);
  policy.next([F(1, 0)]);
  assert.equal(policy.done, false);
  policy.next([B(1, 0)]);
  assert.equal(policy.done, true);
});

Deno.test("a schedule makes a new policy each time, for the workers that it has", () => {
  const schedule = createSchedule("1f1b", { workers: 2, microBatches: 1 });
  for (const _step of [0, 1]) assert.deepEqual(schedule.policy(1).next([F(1, 0)]), F(1, 0));
  refuses(() => schedule.policy(2), /from 0 to 1, received 2/);
});

/** What is computed of each stage, in order: its forwards, its I, and the sum of its gradients. */
function orders(actions: Iterable<Action>): Record<string, string[]> {
  const found: Record<string, string[]> = {};
  for (const part of [...actions].flatMap(parts)) {
    const names = { F: ["F"], B: ["inputs", "sum"], I: ["inputs"], W: ["sum"], R: [] }[part.kind];
    for (const name of names) (found[`${part.stage} ${name}`] ??= []).push(formatAction(part));
  }
  return found;
}

const LISTED = servedCases(({ workers, microBatches }) =>
  workers >= 2 && workers <= 8 && microBatches <= 20
).filter((one) => made(one)!.lists);

propertyTest(
  "an elastic list ends whatever things take, in its memory and with its sums",
  [fc.constantFrom(...LISTED), fc.constantFrom(0, 1, 5), fc.nat()],
  (one, more, seed) => {
    const schedule = made(one)!, planned = analyze(schedule).peakActivations;
    const limit = Math.min(...planned) + more;
    const { schedule: ran } = atAnyPace(withPolicy(schedule, "elastic", limit), seed);
    assert.deepEqual(validate(ran), [], inWords(one));
    analyze(ran).peakActivations.forEach((peak, worker) => {
      const where = `${inWords(one)}: worker ${worker}`;
      assert.ok(peak <= Math.max(planned[worker]!, limit) + 1e-9, `${where} holds too much`);
      assert.deepEqual(orders(ran.lists[worker]!), orders(schedule.lists![worker]!), where);
    });
  },
  atDepth(200, 1500),
);

Deno.test("the head goes first; where it is not ready, the first later action that may", () => {
  const list = ActionList.from([F(1, 0), F(1, 1), I(1, 0), W(1, 0), I(1, 1), W(1, 1)]);
  const policy = elasticPolicy(list);
  const ready = [F(1, 1), F(1, 0)], ran: string[] = [];
  const step = (...arrived: Action[]) => {
    ready.push(...arrived);
    const action = policy.next(ready);
    if (action) takeOffers(ready, action);
    ran.push(action ? formatAction(action) : "-");
  };
  step();
  step();
  step(B(1, 1)); // 1I1 may not overtake 1I0
  assert.deepEqual(policy.waitsFor, I(1, 0));
  step(B(1, 0));
  step(); // 1W0 is not here yet: 1I1 goes ahead
  step(W(1, 1)); // 1W1 may not overtake 1W0
  assert.deepEqual(policy.waitsFor, W(1, 0));
  step(W(1, 0));
  assert.equal(policy.done, false);
  step();
  assert.deepEqual(ran, ["1F0", "1F1", "-", "1I0", "1I1", "-", "1W0", "1W1"]);
  assert.equal(policy.done, true);
  assert.equal(policy.next([F(1, 0)]), undefined);
});

Deno.test("a whole backward and one in parts add to one sum, and do not overtake each other", () => {
  const after = (list: Action[], ...offers: Action[]) => {
    const policy = elasticPolicy(ActionList.from([F(0, 0), F(0, 1), ...list]));
    for (const m of [0, 1]) policy.next([F(0, m)]);
    return offers.map((offer) => policy.next([offer]));
  };
  assert.deepEqual(after([B(0, 0), I(0, 1), W(0, 1)], B(0, 1)), [undefined]);
  assert.deepEqual(after([I(0, 1), B(0, 0), W(0, 1)], B(0, 1), W(0, 1)), [I(0, 1), undefined]);
  assert.deepEqual(after([I(0, 0), W(0, 0), B(0, 1)], B(0, 0), B(0, 1)), [I(0, 0), undefined]);
});

Deno.test("composed actions go ahead whole or not at all", () => {
  const list = ActionList.from([
    ...[F(0, 0), F(1, 0), B(1, 0), F(0, 1, 2), B(0, 0), F(1, 1)],
    ...[overlap(B(1, 1), F(1, 2)), B(0, 1, 0), B(0, 1, 1), B(1, 2), B(0, 2)],
  ]);
  const tight = elasticPolicy(list);
  tight.next([F(0, 0)]);
  assert.equal(tight.next([F(0, 1), F(0, 2)]), undefined, "1F0 needs the room");
  const roomy = elasticPolicy(list, { activationLimit: 4 });
  roomy.next([F(0, 0)]);
  assert.equal(roomy.next([F(0, 1)]), undefined);
  assert.deepEqual(roomy.next([F(0, 1), F(0, 2)]), F(0, 1, 2));
  assert.equal(roomy.next([B(1, 1), F(1, 2)]), undefined, "1F2 may not overtake 1F0");
  roomy.next([F(1, 0)]);
  assert.equal(roomy.next([F(1, 1)]), undefined, "four are live");
  roomy.next([B(1, 0)]);
  assert.deepEqual(roomy.next([F(1, 1)]), F(1, 1));
  assert.equal(roomy.next([B(0, 1, 1)]), undefined, "the first half goes first");
  assert.deepEqual(roomy.next([B(1, 1), F(1, 2)]), overlap(B(1, 1), F(1, 2)));
  assert.deepEqual(roomy.waitsFor, B(0, 0));
});

Deno.test("room that the head needs is not given away", () => {
  const list = ActionList.from([F(0, 0), F(1, 0), B(1, 0), B(0, 0), F(0, 1), B(0, 1)]);
  const policy = elasticPolicy(list);
  policy.next([F(0, 0)]);
  assert.equal(policy.next([F(0, 1)]), undefined);
  assert.deepEqual(policy.next([F(0, 1), F(1, 0)]), F(1, 0));
});

Deno.test("a limit below what the list itself needs is refused", () => {
  const list = ActionList.from([F(0, 0), F(0, 1), B(0, 0), B(0, 1)]);
  const must = "Cannot make an elastic policy: activationLimit must be at least 2, what the list";
  for (const activationLimit of [1, NaN]) {
    const message = `${must} itself needs, received ${activationLimit}`;
    refuses(() => elasticPolicy(list, { activationLimit }), message);
  }
});

Deno.test("a limit of activations is in parts of the model, and never below what lists need", () => {
  const schedule = createSchedule("interleaved", { workers: 2, microBatches: 4, chunks: 2 });
  assert.deepEqual(analyze(schedule).peakActivations, [2.5, 1.5]);
  // Gradients come long after all forwards, so that workers hold what they may.
  const stages = [0, 1, 2, 3].map(() => ({ forwardMs: 1, backwardMs: 999 }));
  const peaks = (limit?: number) => {
    const { schedule: ran } = simulateStep({
      schedule: withPolicy(schedule, "elastic", limit),
      stages,
    });
    return analyze(ran).peakActivations;
  };
  assert.deepEqual([peaks(), peaks(2), peaks(3)], [[2.5, 1.5], [2.5, 2], [3, 2]]);
  const message =
    "Cannot use the policy elastic: activationLimit must be a number above 0, received 0";
  refuses(() => withPolicy(schedule, "elastic", 0), message);
});

Deno.test("the way in which lists are followed belongs to the schedule that has them", () => {
  const schedule = createSchedule("gpipe", { workers: 2, microBatches: 2 });
  assert.equal(schedule.policy(1).next([F(1, 1), B(1, 0)]), undefined);
  const elastic = withPolicy(schedule, "elastic"), early = elastic.policy(1);
  early.next([F(1, 0)]);
  assert.deepEqual(early.next([B(1, 0)]), B(1, 0));
  assert.equal(elastic.listPolicy?.name, "elastic");
  const unlisted = createSchedule("message-driven", { workers: 2, microBatches: 2 });
  const message =
    "Cannot use the policy elastic: the schedule must have lists, received message-driven";
  refuses(() => withPolicy(unlisted, "elastic"), message);
});
