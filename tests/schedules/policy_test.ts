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
import {
  type ElasticOptions,
  type ReadinessOptions,
  takeOffers,
} from "../../schedules/policies.ts";
import fc, { forAll } from "../fast_check.ts";
import { atAnyPace, inWords, made, servedCases, sized } from "./cases.ts";
import PLAYED from "./policies.json" with { type: "json" };

const listOf = (csv: string) => ActionList.from(csv.split(",").map(parseAction));

/** A policy by its options, or by the list that it follows or takes as a hint. */
type PolicyWords = ReadinessOptions & ElasticOptions & { list?: string; isFixed?: boolean };

function policyOf({ list, isFixed, ...options }: PolicyWords): StepPolicy {
  if (list === undefined) {
    return readinessPolicy({ ...{ stages: 8, microBatches: 4, limit: 4 }, ...options });
  }
  return isFixed ? listPolicy(listOf(list)) : elasticPolicy(listOf(list), options);
}

/** The offers of each step, `>` the action that a policy runs, and at the end the remaining offers. */
type Play = readonly [PolicyWords, script: string, left?: string];

for (const [title, plays] of Object.entries(PLAYED as unknown as Record<string, Play[]>)) {
  Deno.test(title, () => {
    for (const [words, script, left = ""] of plays) {
      const ready: Action[] = [], policy = policyOf(words);
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

Deno.test("a schedule makes a new policy for each call, and only for its workers", () => {
  const schedule = sized("1f1b", 2, 1);
  for (const _step of [0, 1]) assert.deepEqual(schedule.policy(1).next([F(1, 0)]), F(1, 0));
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

const more = fc.constantFrom(0, 1, 5);
const LISTED = servedCases(({ workers, microBatches }) =>
  workers >= 2 && workers <= 8 && microBatches <= 20
).filter((one) => made(one)!.lists);

Deno.test("an elastic list ends whatever things take, in its memory and with its sums", () =>
  forAll(atDepth(200, 1500), [fc.constantFrom(...LISTED), more, fc.nat()], (one, more, seed) => {
    const schedule = made(one)!, planned = analyze(schedule).peakActivations;
    const limit = Math.min(...planned) + more;
    const { schedule: ran } = atAnyPace(withPolicy(schedule, "elastic", limit), seed);
    assert.deepEqual(validate(ran), [], inWords(one));
    analyze(ran).peakActivations.forEach((peak, worker) => {
      const where = `${inWords(one)}: worker ${worker}`;
      assert.ok(peak <= Math.max(planned[worker]!, limit) + 1e-9, `${where} holds too much`);
      assert.deepEqual(orders(ran.lists[worker]!), orders(schedule.lists![worker]!), where);
    });
  }));

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

Deno.test("any valid list ends as a hint, whatever things take and whatever its limits, with its sums", () =>
  forAll(atDepth(200, 10_000), [
    fc.nat(),
    fc.constantFrom(0, 0.7, 3),
    fc.constantFrom(undefined, 0, 1, 2, 9),
  ], (seed, more, weightBacklog) => {
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
  }));

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
});

Deno.test("the policy of lists belongs to their schedule", () => {
  const schedule = sized("gpipe", 2, 2);
  assert.equal(schedule.policy(1).next([F(1, 1), B(1, 0)]), undefined);
  const elastic = withPolicy(schedule, "elastic"), early = elastic.policy(1);
  early.next([F(1, 0)]);
  assert.deepEqual(early.next([B(1, 0)]), B(1, 0));
  assert.equal(elastic.listPolicy?.name, "elastic");
});
