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
  type ListedSchedule,
  listPolicy,
  parseAction,
  readinessPolicy,
  scheduleFromLists,
  simulateStep,
  type StepPolicy,
  validate,
  withPolicy,
} from "../../schedules/mod.ts";
import { substream } from "../../kernels/random.ts";
import { uniformInt } from "pure-rand/distribution/uniformInt";
import { parts } from "../../schedules/action.ts";
import { takeOffers } from "../../schedules/policies.ts";
import fc from "../fast_check.ts";
import { atAnyPace, inWords, made, propertyTest, refuses, servedCases } from "./cases.ts";

const listOf = (csv: string) => ActionList.from(csv.split(",").map(parseAction));

const listed = (csv: string) => listPolicy(listOf(csv));

const elastic = (csv: string, activationLimit?: number) =>
  elasticPolicy(listOf(csv), { activationLimit });

/** A message-driven policy of one of four stages. */
const messages = (order: "fifo" | "backward-first", stage = 1, limit = 4, microBatches = 4) =>
  readinessPolicy({ held: [stage], stages: 4, microBatches, limit, order });

/** A policy with split backwards, for a worker with one stage of four, or two of eight. */
const split = (weightBacklog: number, limit: number, held = [1], sizes?: number[]) =>
  readinessPolicy({ held, stages: 8, microBatches: 4, limit, order: "bfw", weightBacklog, sizes });

const COMPOSED = "0F0,1F0,1B0,0F1+2,0B0,1F1,1B1&1F2,0B1.0,0B1.1,1B2,0B2";

/** The offers of each step, `>` the action that a policy runs, and at the end the remaining offers. */
type Play = readonly [StepPolicy, script: string, left?: string];
const PLAYED: Readonly<Record<string, readonly Play[]>> = {
  "a list waits for its head, and is done after its last action": [
    [listed("0F0,0B0"), "0B0 > - waits for 0F0; 0F0 > 0F0; > 0B0 done; 0F0 > - done", "0F0"],
  ],
  "a split backward is offered whole, its weight part after it": [
    [listed("1I0,1W0"), "1B0 > 1I0; 1B1 > -; 1W0 > 1W0 done", "1B1"],
  ],
  "a composed action runs when all of its parts can": [
    [listed("0F4+5,0F6&7B1"), "0F4 > -; 0F5 7B1 > 0F4+5; > -; 0F6 > 0F6&7B1 done"],
  ],
  "a whole gradient serves both halves, and two halves serve the whole": [
    [listed("3B0.0,3B0.1"), "3B0 > 3B0.0; > 3B0.1 done"],
    [listed("2B0"), "2B0.0 > -; 2B0.1 > 2B0 done"],
  ],
  "fifo takes what arrived first, backward-first prefers a backward": [
    [messages("fifo"), "1F0 1B0 > 1F0", "1B0"],
    [messages("backward-first"), "1F0 1B0 > 1B0", "1F0"],
  ],
  "no order lets an action overtake another of its stage and kind": [
    [messages("fifo"), "1F1 1B1 > -; 1F0 > 1F0; > 1F1", "1B1"],
    [messages("backward-first"), "1F1 1B1 > -; 1F0 > 1F0; > 1F1", "1B1"],
  ],
  "the last stage runs its backward directly after its forward, and the first fills the pipe": [
    [messages("fifo", 3), "3F0 > 3F0; 3F1 3B0 > 3B0", "3F1"],
    [messages("backward-first", 0, 2), "0F0 > 0F0; 0B0 0F1 > 0F1; 0F2 > 0B0", "0F2"],
  ],
  "a message-driven policy is done after its last backward": [
    [messages("fifo", 1, 4, 1), "1F0 > 1F0; 1B0 > 1B0 done"],
  ],
  "a split backward alternates with forwards, and its weights fill the time between": [
    [split(2, 4), "1F0 1F1 > 1F0; > 1F1; 1B0 1F2 > 1I0; 1W0 > 1F2; 1B1 > 1I1; 1W1 > 1W0; > 1W1"],
  ],
  "a full backlog or memory makes room by a backward for the weights": [
    [split(1, 4), "1F0 1F1 > 1F0; > 1F1; 1B0 > 1I0; 1W0 1B1 > 1W0; > 1I1; 1W1 1F2 > 1F2", "1W1"],
    [split(2, 1), "1F0 1F1 > 1F0; > -; 1B0 > 1I0; 1W0 > 1W0; > 1F1"],
  ],
  "a worker with two stages prefers the later one, and keeps room for it": [
    [
      split(2, 3, [0, 7]),
      "0F0 0F1 0F2 > 0F0; > 0F1; > -; 7F0 > 7F0; 7B0 > 7I0; 7W0 > 7W0; > -",
      "0F2",
    ],
    [split(2, 4, [0, 7]), "0F0 0F1 > 0F0; 7F0 > 7F0; 7B0 0B0 > 7I0; 7W0 > 0F1", "0B0 7W0"],
  ],
  "a limit in bytes has room for more small micro-batches": [
    [split(2, 1, [1], [0.5, 0.5, 1, 1]), "1F0 1F1 1F2 > 1F0; > 1F1; > -", "1F2"],
  ],
  "a list as a hint may run its backwards in parts, with a limit of those between": [
    [
      elasticPolicy(listOf("1F0,1B0,1F1,1B1"), { activationLimit: 2, weightBacklog: 1 }),
      "1F0 1F1 > 1F0; 1B0 > 1I0; 1W0 > 1F1; 1B1 > 1W0; > 1I1; 1W1 > 1W1 done",
    ],
  ],
  "the head goes first; where it is not ready, the first later action that may": [
    [
      elastic("1F0,1F1,1I0,1W0,1I1,1W1"),
      "1F1 1F0 > 1F0; > 1F1; 1B1 > - waits for 1I0; 1B0 > 1I0; > 1I1; " +
      "1W1 > - waits for 1W0; 1W0 > 1W0; > 1W1 done; 1F0 > - done",
      "1F0",
    ],
  ],
  "a whole backward and one in parts add to one sum, and do not overtake each other": [
    [elastic("0F0,0F1,0B0,0I1,0W1"), "0F0 > 0F0; 0F1 > 0F1; 0B1 > -", "0B1"],
    [elastic("0F0,0F1,0I1,0B0,0W1"), "0F0 > 0F0; 0F1 > 0F1; 0B1 > 0I1; 0W1 > -", "0W1"],
    [elastic("0F0,0F1,0I0,0W0,0B1"), "0F0 > 0F0; 0F1 > 0F1; 0B0 > 0I0; 0B1 > -", "0B1"],
  ],
  "composed actions go ahead whole or not at all, where there is room": [
    [elastic(COMPOSED), "0F0 > 0F0; 0F1 0F2 > -", "0F1 0F2"],
    [
      elastic(COMPOSED, 4),
      "0F0 > 0F0; 0F1 > -; 0F2 > 0F1+2; 1B1 1F2 > -; 1F0 > 1F0; 1F1 > -; 1B0 > 1B0; > 1F1; " +
      "0B1.1 > 1B1&1F2; > - waits for 0B0",
      "0B1.1",
    ],
  ],
  "room that the head needs is not given away": [
    [elastic("0F0,1F0,1B0,0B0,0F1,0B1"), "0F0 > 0F0; 0F1 > -; 1F0 > 1F0", "0F1"],
  ],
};

for (const [title, plays] of Object.entries(PLAYED)) {
  Deno.test(title, () => {
    for (const [policy, script, left = ""] of plays) {
      const ready: Action[] = [];
      for (const step of script.split(";")) {
        const pattern = /^(.*)> (\S+)(?: waits for (\S+)| (done))?$/;
        const [, arrived, runs, head, done] = pattern.exec(step)!;
        ready.push(...arrived!.split(" ").filter(Boolean).map(parseAction));
        const action = policy.next(ready);
        if (action) takeOffers(ready, action);
        assert.equal(action ? formatAction(action) : "-", runs, step);
        assert.equal(policy.done, done !== undefined, step);
        if (head) assert.equal(formatAction(policy.waitsFor!), head, step);
        if (done) assert.equal(policy.waitsFor, undefined);
      }
      assert.equal(ready.map(formatAction).join(" "), left, script);
    }
  });
}

Deno.test("an action that is not offered cannot be taken", () => {
  const message = "Cannot run 0F0: 0F0 must be offered, received [0F1]";
  refuses(() => takeOffers([F(0, 1)], F(0, 0)), message);
});

Deno.test("a schedule makes a new policy for each call, and only for its workers", () => {
  const schedule = createSchedule("1f1b", { workers: 2, microBatches: 1 });
  for (const _step of [0, 1]) assert.deepEqual(schedule.policy(1).next([F(1, 0)]), F(1, 0));
  refuses(() => schedule.policy(2), /from 0 to 1, received 2/);
});

/** The actions of each stage in order: its forwards, its I, and the sum of its gradients. */
function orders(actions: Iterable<Action>): Record<string, string[]> {
  const found: Record<string, string[]> = {};
  for (const part of [...actions].flatMap(parts)) {
    const names = { F: ["F"], B: ["inputs", "sum"], I: ["inputs"], W: ["sum"], R: [] }[part.kind];
    const which = formatAction(part).replace(/[A-Z]/, " ");
    for (const name of names) (found[`${part.stage} ${name}`] ??= []).push(which);
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

/** Random numbers below a bound, the same for the same seed. */
const drawing = (seed: number) => {
  const draws = substream(seed, "lists");
  return (below: number) => uniformInt(draws, 0, below - 1);
};

/**
 * Lists in random orders, on a random placement: of all actions whose inputs are there, each in turn is
 * as likely as the others to be the next of its worker.
 */
function randomLists(draw: (below: number) => number): ListedSchedule {
  const workers = 1 + draw(5), stages = workers + draw(5), microBatches = 1 + draw(6);
  const host = Array.from({ length: stages }, (_, s) => s < workers ? s : draw(workers));
  const lists: Action[][] = Array.from({ length: workers }, () => []);
  const [inputs, sums] = [0, 0].map(() => new Array<number>(stages).fill(0));
  let ready: Action[] = Array.from({ length: microBatches }, (_, m) => F(0, m));
  while (ready.length > 0) {
    const able = ready.filter(({ kind, stage, microBatch: m }) =>
      kind === "F" || m === (kind === "W" ? sums! : inputs!)[stage]
    );
    const offer = able[draw(able.length)]!, { kind, stage, microBatch: m } = offer;
    ready = ready.filter((one) => one !== offer);
    const isSplit = kind === "B" && (sums![stage]! < m || draw(2) === 0);
    lists[host[stage]!]!.push(isSplit ? { ...offer, kind: "I" } : offer);
    if (kind === "F") ready.push(stage + 1 < stages ? F(stage + 1, m) : B(stage, m));
    if (kind === "B" && stage > 0) ready.push(B(stage - 1, m));
    if (isSplit) ready.push({ ...offer, kind: "W" });
    if (kind === "B") inputs![stage]!++;
    if (kind !== "F" && !isSplit) sums![stage]!++;
  }
  return scheduleFromLists("random", lists.map((list) => ActionList.from(list)));
}

/** The most micro-batches of a stage between I and W. */
function mostOwed(list: Iterable<Action>): number {
  const owed = new Map<number, number>();
  let most = 0;
  for (const { kind, stage } of list) {
    const change = kind === "I" ? 1 : kind === "W" ? -1 : 0, now = (owed.get(stage) ?? 0) + change;
    owed.set(stage, now);
    most = Math.max(most, now);
  }
  return most;
}

propertyTest(
  "any valid list ends as a hint, whatever things take and whatever its limits, with its sums",
  [fc.nat(), fc.constantFrom(0, 0.7, 3), fc.constantFrom(undefined, 0, 1, 2, 9)],
  (seed, more, weightBacklog) => {
    const schedule = randomLists(drawing(seed));
    assert.deepEqual(validate(schedule), []);
    const planned = analyze(schedule).peakActivations, limit = Math.max(...planned) + more;
    const hinted = withPolicy(schedule, "elastic", limit, weightBacklog);
    const { schedule: ran } = atAnyPace(hinted, seed);
    assert.deepEqual(validate(ran), []);
    for (const [worker, peak] of analyze(ran).peakActivations.entries()) {
      assert.ok(peak <= limit + 1e-9, `worker ${worker} holds ${peak}`);
      assert.deepEqual(orders(ran.lists[worker]!), orders(schedule.lists[worker]!));
      assert.ok(mostOwed(ran.lists[worker]!) <= (weightBacklog || Infinity), `worker ${worker}`);
    }
  },
  atDepth(200, 10_000),
);

Deno.test("a limit below the peak of the list is refused", () => {
  const list = ActionList.from([F(0, 0), F(0, 1), B(0, 0), B(0, 1)]);
  const must = "Cannot make an elastic policy: activationLimit must be at least 2, what the list";
  for (const activationLimit of [1, NaN]) {
    const message = `${must} itself needs, received ${activationLimit}`;
    refuses(() => elasticPolicy(list, { activationLimit }), message);
  }
});

Deno.test("a limit of activations is in parts of the model, and at least the peak of each list", () => {
  const schedule = createSchedule("interleaved", { workers: 2, microBatches: 4, chunks: 2 });
  assert.deepEqual(analyze(schedule).peakActivations, [2.5, 1.5]);
  // Gradients come long after all forwards, so that workers reach their limits.
  const stages = [0, 1, 2, 3].map(() => ({ forwardMs: 1, backwardMs: 999 }));
  const peaks = (limit?: number) => {
    const elastic = withPolicy(schedule, "elastic", limit);
    const { schedule: ran } = simulateStep({ schedule: elastic, stages });
    return analyze(ran).peakActivations;
  };
  assert.deepEqual([peaks(), peaks(2), peaks(3)], [[2.5, 1.5], [2.5, 2], [3, 2]]);
  const message =
    "Cannot use the policy elastic: activationLimit must be a number above 0, received 0";
  refuses(() => withPolicy(schedule, "elastic", 0), message);
  const half = /weightBacklog must be a whole number from 0, received 0.5$/;
  refuses(() => withPolicy(schedule, "elastic", 3, 0.5), half);
});

Deno.test("the policy of lists belongs to their schedule", () => {
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
