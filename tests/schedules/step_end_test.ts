import { reduceHalf } from "../../schedules/simulator/step_end.ts";
import { alike, sized } from "./cases.ts";
import assert from "node:assert/strict";
import {
  simulateStep,
  type StageModel,
  type StepEndModel,
  type StepEndSpan,
  type StepModel,
} from "../../schedules/mod.ts";

/** A stage of 8 bytes of gradients, in 4 buckets. */
const STAGE: StageModel = { forwardMs: 1, backwardMs: 2, gradientBytes: 8, optimizerMs: 4 };
const BUCKETS = { bucketBytes: 2 };

const spans = (closing: readonly StepEndSpan[], wanted: StepEndSpan["what"]) =>
  closing.filter(({ what }) => what === wanted).map(({ startMs, endMs }) => [startMs, endMs]);

const one = (more: Partial<StepModel>) =>
  simulateStep({ schedule: sized("gpipe", 1, 1), stages: [STAGE], ...more });

Deno.test("a single worker votes, waits for the commit, and steps its buckets one after the other", () => {
  const stages = [{ ...STAGE, checkMs: 0.25 }];
  const { makespanMs, closing } = one({ controlMs: 0.5, stages, closing: BUCKETS });
  // Begin arrives at 0.5; the vote leaves at 3.75, the commit comes at 4.75, the last message at 9.25.
  const stepped = spans(closing[0]!, "optimizer");
  assert.deepEqual(spans(closing[0]!, "check"), [[3.5, 3.75]]);
  assert.deepEqual([stepped.at(0), stepped.at(-1), makespanMs], [[4.75, 5.75], [7.75, 8.75], 9.25]);
});

Deno.test("an all-reduce of two ranks moves half of the gradients twice, and the optimizer overlaps it", () => {
  const link = { latencyMs: 0.125, bytesPerMs: 1 };
  const whole = one({ replicas: 2, closing: { link } });
  // 3 ms of actions, 2 · (4 bytes + α), then 4 ms of the optimizer.
  assert.equal(whole.makespanMs, 3 + 8.25 + 4);
  const chunks = one({ replicas: 2, closing: { ...BUCKETS, link } });
  // Chunks take 2 ms each on the link; the last of four arrives after 8 ms, then its bucket.
  assert.equal(chunks.makespanMs, 3 + 8 + 0.125 + 1);
  const pairs = one({ replicas: 2, closing: { ...BUCKETS, coarsening: 2, link } });
  assert.ok(pairs.makespanMs > chunks.makespanMs && pairs.makespanMs < whole.makespanMs);
});

Deno.test("clipping delays every bucket until the sums of all workers exist", () => {
  const stages = [STAGE, { ...STAGE, gradientBytes: 80 }], schedule = sized("gpipe", 2, 2);
  const first = (isClipped: boolean) => {
    const closing = { link: { latencyMs: 0, bytesPerMs: 1 }, isClipped };
    const { closing: ended } = simulateStep({ schedule, stages, replicas: 2, closing });
    const ends = ended.flatMap((all) => spans(all, "reduce").map(([, endMs]) => endMs!));
    return spans(ended[0]!, "optimizer")[0]![0]! - Math.max(...ends);
  };
  assert.ok(first(false) < 0);
  assert.equal(first(true), 0);
});

Deno.test("an eager all-reduce runs while others still compute, and uses their free links", () => {
  const schedule = sized("chimera", 4, 4);
  // The outer workers add the most, and only they have idle time.
  const rest = { ...STAGE, optimizerMs: 0 };
  const stages = [24, 8, 8, 24].map((gradientBytes) => ({ ...rest, gradientBytes }));
  const link = { latencyMs: 0, bytesPerMs: 8 };
  const run = (eagerStages: number[], more: Partial<StepEndModel> = {}) =>
    simulateStep({ schedule, stages, closing: { eagerStages, link, ...more } });
  const end = run([]), opt = run([3]);
  assert.ok(end.closing.flat().every(({ startMs }) => startMs >= end.computedMs));
  assert.ok(opt.closing[0]!.some(({ what, endMs }) => what === "reduce" && endMs < opt.computedMs));
  assert.ok(opt.makespanMs < end.makespanMs, `${opt.makespanMs} and ${end.makespanMs}`);
  // If a start takes time of the worker, it delays the middle workers, which have no idle time.
  const computed = (eagerStages: number[]) =>
    run(eagerStages, { protocol: "ranks", launchMs: 0.25 }).computedMs;
  assert.equal(computed([3]), end.computedMs);
  assert.ok(computed([0, 1, 2, 3]) > end.computedMs);
});

Deno.test("ranks without a vote start to add after their own actions", () => {
  const closing = { protocol: "ranks", link: { latencyMs: 0, bytesPerMs: 8 } } as const;
  const model = { schedule: sized("1f1b", 3, 3), stages: alike(3, STAGE), replicas: 2 };
  const run = (more: Partial<StepEndModel> = {}) =>
    simulateStep({ ...model, closing: { ...closing, ...more } });
  const { closing: spans, timeline: { ends }, makespanMs } = run();
  spans.forEach((all, worker) => {
    assert.equal(all.find(({ what }) => what === "reduce")!.startMs, ends[worker]!.at(-1));
  });
  assert.equal(makespanMs, ends[0]!.at(-1)! + 2 * 0.5 + 4);
  assert.equal(run({ protocol: "commit" }).makespanMs, makespanMs);
});

Deno.test("the supervisor handles the votes of all replicas one after the other", () => {
  const time = (replicas: number) => one({ replicas, closing: { handleMs: 0.5 } }).makespanMs;
  assert.equal(time(8) - time(4), 2 * 4 * 0.5);
});

Deno.test("states in other memory are fetched for each bucket and put back", () => {
  const offload = { link: { latencyMs: 0.25, bytesPerMs: 2 }, loadRatio: 6, storeRatio: 4 };
  const time = (more: StepEndModel) => one({ closing: { ...BUCKETS, ...more } }).makespanMs;
  assert.equal(time({ offload }) - time({}), 4 * 2 * 0.25 + 8 * 10 / 2);
});

Deno.test("without a flush each stage steps after its backwards, without a vote", () => {
  const closingOf = (name: string, closing: StepEndModel) =>
    simulateStep({ schedule: sized(name, 2, 3), stages: alike(2, STAGE), closing }).closing;
  const each = closingOf("pipedream", BUCKETS), once = closingOf("pipedream-2bw", {});
  assert.deepEqual([each, once].map((all) => all.map(({ length }) => length)), [[3, 3], [1, 1]]);
  assert.ok(each.flat().every(({ what }) => what === "optimizer"));
});

Deno.test("half of an all-reduce takes the rounds and the bytes of its algorithm", () => {
  const half = (algorithm: Parameters<typeof reduceHalf>[0], ranks: number) =>
    Object.values(reduceHalf(algorithm, ranks, 12, { latencyMs: 1, bytesPerMs: 2 }));
  assert.deepEqual(half("ring", 1), [0, 0]);
  assert.deepEqual([half("direct", 4), half("ring", 4)], [[1, 4.5], [3, 4.5]]);
  assert.deepEqual([half("rabenseifner", 4), half("rabenseifner", 5)], [[2, 4.5], [3, 10.5]]);
});
