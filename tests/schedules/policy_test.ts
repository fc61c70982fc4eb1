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
  type ListedSchedule,
  listPolicy,
  messageDrivenPolicy,
  overlap,
  parts,
  takeOffers,
  W,
  withLists,
  withPolicy,
} from "../../schedules/mod.ts";
import fc from "../fast_check.ts";
import { allCases, inWords, made, refuses } from "./cases.ts";
import { observe } from "./executor.ts";

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
  refuses(
    () => takeOffers([F(0, 1)], F(0, 0)),
    "Cannot run 0F0: 0F0 must be offered, received [0F1]",
  );
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
  refuses(() => schedule.policy(2), /from 0 to 1, received 2/);
});

const LISTED = allCases()
  .filter(({ options }) => options.workers >= 2 && options.workers <= 8)
  .filter(({ options }) => options.microBatches <= 20)
  .filter((one) => made(one)?.lists !== undefined);

const time = fc.double({ min: 0, max: 3, noNaN: true });

/** The most (stage, micro-batch) activations that a list holds, counted action by action. */
function peakOf(list: Iterable<Action>, slices = 1): number {
  let live = 0, peak = 0;
  for (const { kind, half } of [...list].flatMap(parts)) {
    if (kind === "F") peak = Math.max(peak, ++live);
    else if (kind !== "I") live -= half === undefined ? 1 : 0.5;
  }
  return peak / slices;
}

/** What is computed of each stage, in order: its forwards, its I, and the sum of its gradients. */
function orders(actions: Iterable<Action>): Record<string, string[]> {
  const found: Record<string, string[]> = {};
  for (const part of [...actions].flatMap(parts)) {
    const names = { F: ["F"], B: ["inputs", "sum"], I: ["inputs"], W: ["sum"], R: [] }[part.kind];
    for (const name of names) (found[`${part.stage} ${name}`] ??= []).push(formatAction(part));
  }
  return found;
}

/** The schedule with elastic policies that may hold more activations than its lists need. */
function elastic(schedule: ListedSchedule, more: number): ListedSchedule {
  return {
    ...schedule,
    policy(worker) {
      const list = schedule.lists[worker]!;
      return elasticPolicy(list, { activationLimit: peakOf(list, schedule.slices) + more });
    },
  };
}

Deno.test("an elastic list ends whatever things take, in its memory and with its sums", () => {
  const property = fc.property(
    fc.constantFrom(...LISTED),
    fc.constantFrom(0, 1, 5),
    fc.infiniteStream(time),
    (one, more, times) => {
      const schedule = withLists(made(one)!), next = () => times.next().value!;
      const seen = observe(elastic(schedule, more), { duration: next, send: next });
      schedule.lists.forEach((list, worker) => {
        const ran = seen.ran[worker]!, where = `${inWords(one)}: worker ${worker}`;
        assert.ok(
          seen.peaks[worker]! <= peakOf(list, schedule.slices) + more + 1e-9,
          `${where} holds too much`,
        );
        assert.deepEqual(ran.map(formatAction).sort(), [...list].map(formatAction).sort(), where);
        assert.deepEqual(orders(ran), orders(list), where);
      });
    },
  );
  fc.assert(property, { numRuns: atDepth(200, 1500) });
});

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
  for (const activationLimit of [1, NaN]) {
    refuses(
      () => elasticPolicy(list, { activationLimit }),
      "Cannot make an elastic policy: activationLimit must be at least 2, what the list " +
        `itself needs, received ${activationLimit}`,
    );
  }
});

Deno.test("a limit of activations is in parts of the model, and never below what lists need", () => {
  const schedule = createSchedule("interleaved", { workers: 2, microBatches: 4, chunks: 2 });
  const { peakActivations } = analyze(schedule);
  assert.deepEqual(peakActivations, [2.5, 1.5]);
  const never = { duration: () => 1, send: ({ kind }: Action) => kind === "F" ? 0 : 99 };
  const peaks = (limit?: number) => observe(withPolicy(schedule, "elastic", limit), never).peaks;
  assert.deepEqual(peaks(), [5, 3]);
  assert.deepEqual(peaks(2), [5, 4]);
  assert.deepEqual(peaks(3), [6, 5]);
  refuses(
    () => withPolicy(schedule, "elastic", 0),
    "Cannot use the policy elastic: activationLimit must be a number above 0, received 0",
  );
});

Deno.test("the way in which lists are followed belongs to the schedule that has them", () => {
  const schedule = createSchedule("gpipe", { workers: 2, microBatches: 2 });
  const isEarly = (one: typeof schedule) => one.policy(1).next([F(1, 1), B(1, 0)]) !== undefined;
  assert.equal(isEarly(schedule), false);
  const early = withPolicy(schedule, "elastic").policy(1);
  early.next([F(1, 0)]);
  assert.deepEqual(early.next([B(1, 0)]), B(1, 0));
  assert.equal(withPolicy(schedule, "elastic").listPolicy?.name, "elastic");
  const messages = createSchedule("message-driven", { workers: 2, microBatches: 2 });
  refuses(
    () => withPolicy(messages, "elastic"),
    "Cannot use the policy elastic: the schedule must have lists, received message-driven",
  );
});
