/** Pipelines have the bits of serial runs: your own models, layouts, precisions, frozen weights. */

import assert from "node:assert/strict";
import { readCheckpoint } from "../../../actors/checkpoints/read.ts";
import { createSystem } from "../../../actors/transports/system.ts";
import { train } from "../../../actors/run/train.ts";
import type { TrainOptions } from "../../../actors/options/train_options.ts";
import { gpt2, type Model, type TokenBatch } from "../../../kernels/mod.ts";
import { batchesOf, type Outcome, outcome, type Sizes, SMALL, trainTwice } from "../runs.ts";
import { inFolder } from "../../in_folder.ts";
import { BF16, testNeeding } from "../../needs.ts";
import { RINGS, trainRings } from "./own_layers.ts";

type Options = Partial<TrainOptions>;
type Train = (options: Options) => Promise<Outcome>;

const rings: Train = (options) =>
  trainRings({ steps: 2, microBatches: 4, learningRate: 0.01, ...options });

Deno.test("your own layers have the serial bits under every policy", async () => {
  const driven = (pipelineLimit: number, order: "fifo" | "backward-first") => ({
    ...{ schedule: "message-driven", scheduleOptions: { pipelineLimit, order } },
  });
  await trainTwice(rings, { workers: 2, schedule: "gpipe" });
  await trainTwice(rings, { workers: 3, schedule: "1f1b" });
  await trainTwice(rings, { workers: 2, ...driven(1, "fifo") });
  await trainTwice(rings, { workers: 3, ...driven(4, "fifo") });
  await trainTwice(rings, { workers: 2, ...driven(2, "backward-first") });
  await trainTwice(rings, { workers: 3, ...driven(3, "backward-first") });
});

Deno.test("a norm of 0 clips nothing, as none does, also where nothing could be clipped", async () => {
  const hashOf = async (options: Options) => (await rings(options)).bits.hash;
  assert.equal(await hashOf({ clip: 0 }), await hashOf({}));
  assert.notEqual(await hashOf({ clip: 0.01 }), await hashOf({}));
  const schedule = "pipedream";
  assert.equal(await hashOf({ schedule, clip: 0 }), await hashOf({ schedule }));
});

/** Three of the five layers have the weight of the second. */
const TIED: Model = { ...RINGS, ties: [["b.weight", "c.weight"], ["b.weight", "d.weight"]] };

Deno.test("three layers with one weight have the bits of the serial run, messages of all weights too", async () => {
  const options = { model: TIED, steps: 3, learningRate: 0.05, device: "native" } as const;
  const tied: Train = (more) => rings({ ...options, ...more });
  await trainTwice(tied, { schedule: "1f1b", workers: 4, clip: 0.1 });
  await trainTwice(tied, { schedule: "chimera", workers: 2, replicas: 2 });
  await trainTwice(tied, { schedule: "zb-v", workers: 2, runtime: "workers" });
  await trainTwice(tied, { schedule: "1f1b", workers: 2, precision: "fp16" });
  await using system = createSystem(); // of such a run messages have all weights
  const { end, bits } = await tied({ workers: 3, system });
  assert.equal([...end.weights.keys()].filter((name) => name.endsWith(".weight")).length, 3);
  assert.equal(bits.hash, (await tied({ runtime: "serial" })).bits.hash);
});

const THREE: Sizes = { ...SMALL, layers: 3, hidden: 16, seq: 8, microBatches: 4, steps: 3 };

const laidOut: Train = (options) =>
  outcome(THREE, { device: "native", workers: 2, schedule: "1f1b", runtime: "local", ...options });

Deno.test("stages are those of the layout, and the plan says it; without one they are of equal work", async () => {
  const { plan } = await laidOut({ layout: "E,.5|2.5,H", steps: 1 });
  const stages = plan.stages.map(({ layers }) => layers.join()).join("|");
  const named = "embedding,block 0 attention|block 0 mlp,block 1,block 2,head";
  assert.deepEqual([plan.layout, stages], ["E,0.5|2.5,H", named]);
  const [auto, none] = [await laidOut({ layout: "auto", steps: 1 }), await laidOut({ steps: 1 })];
  assert.equal(auto.plan.layout, none.plan.layout);
  await assert.rejects(laidOut({ layout: "E,3,H" }), /that of the schedule, 2, received 1$/);
});

Deno.test("weights have the same bits in every layout, and after a failure", async () => {
  const faults = [{ worker: 1, afterActions: 12, kind: "throw" }] as const;
  await trainTwice(laidOut, { layout: "E,3|H", clip: 0.1 });
  await trainTwice(laidOut, { layout: "E|.5|2,.5|H", workers: 4, schedule: "zb-h1" });
  await trainTwice(laidOut, { layout: "E,1|1|.5|.5,H", schedule: "interleaved" });
  await trainTwice(laidOut, { layout: "E,1|1|.5|.5,H", workers: 4, schedule: "chimera" });
  await trainTwice(laidOut, { layout: "E,2|1,H", faults });
});

Deno.test("without flushes a layout decides how old weights are, in the pipeline and in the serial run", async () => {
  const one = await trainTwice(laidOut, { schedule: "pipedream", layout: "E|3,H" });
  const other = await trainTwice(laidOut, { schedule: "pipedream", layout: "E,3|H" });
  assert.notDeepEqual(one.bits, other.bits);
});

const DEEP: Sizes = { ...SMALL, layers: 4, microBatches: 4 };

const deep: Train = (options) => outcome(DEEP, { device: "native", ...options });

Deno.test("FP16 runs of every kind of schedule have the bits of their serial runs", async () => {
  const half = { workers: 2, replicas: 2, precision: "fp16" } as const;
  for (const schedule of ["1f1b", "zb-h1"]) await trainTwice(deep, { ...half, schedule });
  await trainTwice(deep, { ...half, schedule: "chimera", replicas: 1, runtime: "workers" });
});

testNeeding(
  BF16,
  "BF16 runs of every schedule, runtime and failure have the bits of their serial runs",
  async () => {
    const sizes = { ...DEEP, hidden: 32, steps: 2, microBatches: 4 };
    const run: Train = (options) => outcome(sizes, { precision: "bf16", workers: 2, ...options });
    const faults = [{ worker: 1, afterActions: 9, kind: "throw" }] as const;
    const bits = (await run({ runtime: "serial" })).bits;
    const local = { runtime: "local" } as const;
    const CASES: readonly Options[] = [
      ...["gpipe", "1f1b", "zb-h1", "hanayo"].map((schedule) => ({ ...local, schedule })),
      ...[{}, { isolation: "process" }, { recompute: "full" }, { faults }] as const,
    ];
    for (const options of CASES) {
      const { bits: found, end } = await run(options);
      assert.deepEqual(found, bits, JSON.stringify(options));
      assert.match(end.matrix!, /^(oneDNN|MLAS) \d+\.\d+\.\d+$/);
    }
    await trainTwice(run, { ...local, schedule: "chimera" });
    await inFolder(async (directory) => {
      const checkpoint = { directory, config: {} };
      await run({ checkpoint, steps: 1 });
      const resume = await readCheckpoint(directory);
      const resumed = await run({ schedule: "zb-h1", resume });
      assert.equal(resumed.bits.hash, bits.hash, "resumed");
    });
    assert.notDeepEqual(bits, (await run({ runtime: "serial", precision: "fp32" })).bits);
  },
);

Deno.test("losses of FP16 stay within 2e-3 of those of FP32 over 50 steps", async () => {
  const sizes = { ...SMALL, microBatches: 2, steps: 50 };
  const lossesOf = async (options: Options) =>
    (await outcome(sizes, { device: "native", runtime: "serial", ...options })).bits.losses;
  const exact = await lossesOf({}), half = await lossesOf({ precision: "fp16", lossScale: 1024 });
  const distances = exact.map((loss, i) => Math.abs(half[i]! / loss - 1));
  assert.ok(distances.length === 50 && Math.max(...distances) <= 2e-3, `${distances}`);
  // Two losses may be equal by chance.
  assert.ok(distances.filter((distance) => distance === 0).length <= 2, `${distances}`);
});

Deno.test("a scale that overflows in twenty steps in a row ends the run with the reason", async () => {
  const skips: unknown[] = [], steps = 30;
  const run = train({
    ...{ model: gpt2(SMALL, SMALL.microBatch), data: batchesOf(SMALL, 2 * steps), steps },
    ...{ microBatches: 2, workers: 2, schedule: "chimera", device: "native", runtime: "local" },
    ...{ precision: "fp16", lossScale: 2 ** 30 },
  });
  await assert.rejects(async () => {
    for await (const event of run) if ("lossScale" in event) skips.push(event.lossScale);
  }, /^NonFiniteError: Cannot take step 20 after 19 skipped steps: /);
  assert.deepEqual(skips, new Array(19).fill(2 ** 30));
});

Deno.test("frozen parameters stay as they were, whole stages of them too, and the others learn", async () => {
  // The embedding and the first two blocks: all of the first stage, and a part of the second.
  const frozen = (name: string) => /wte|wpe|h\.[01]\./.test(name);
  const before = await deep({ runtime: "serial", steps: 1, learningRate: 0 });
  for (const schedule of ["chimera", "zb-h1"]) {
    const { end } = await trainTwice(deep, { schedule, workers: 4, frozen, steps: 3 });
    for (const [name, values] of end.weights) {
      const first = before.end.weights.get(name)!;
      assert.equal(values.every((value, i) => value === first[i]), frozen(name), name);
    }
  }
});

Deno.test("micro-batches of different lengths count by their tokens", async () => {
  const { seq, microBatches } = DEEP, count = 2 * microBatches;
  // The samples of each end at another place: -1 is no target.
  const data = batchesOf(DEEP, 2 * count).map(({ ids, targets }, m): TokenBatch => ({
    ...{ ids, targets: targets.map((id, i) => i % seq < seq - (m % 5) ? id : -1) },
  }));
  // Another way to the first loss: each micro-batch alone, weighted by its targets.
  let sum = 0, predicted = 0;
  for (const batch of data.slice(0, count)) {
    const alone = { data: [batch], microBatches: 1, steps: 1, runtime: "serial" } as const;
    const targets = batch.targets.filter((target) => target >= 0).length;
    sum += (await deep(alone)).bits.losses[0]! * targets;
    predicted += targets;
  }
  const { bits } = await trainTwice(deep, { schedule: "chimera", workers: 2, replicas: 2, data });
  assert.ok(Math.abs(bits.losses[0]! / (sum / predicted) - 1) < 1e-6);
});

/** Few rows and a wide head: a product's columns are cut where its threads are, and with them its sums. */
const NARROW: Sizes = { ...SMALL, hidden: 128, heads: 2, seq: 33, microBatch: 1, vocab: 1025 };

Deno.test("workers with several threads have the bits of a serial run with as many", async () => {
  const narrow: Train = (options) => outcome(NARROW, { device: "native", steps: 1, ...options });
  await trainTwice(narrow, { workers: 2, schedule: "1f1b", threads: 2, runtime: "workers" });
  // The runs compute at the same time in one process, whichever opens first.
  const runs = [1, 4, 2, 1].map((threads) => narrow({ runtime: "serial", threads }));
  const [first, , , last] = await Promise.all(runs);
  assert.deepEqual(first!.bits, last!.bits);
});

Deno.test("kernels of the only worker of a thread leave no time to the event loop", async () => {
  const steps = 20, messagesMax = 20 * steps;
  for (const runtime of ["serial", "local"] as const) {
    let turns = 0, first = NaN;
    const count = () => {
      turns++;
      timer = setImmediate(count);
    };
    let timer = setImmediate(count);
    const learningRate = (step: number) => {
      if (step === 2) first = turns;
      return 0.01;
    };
    await rings({ device: "native", runtime, steps, learningRate, workers: 1 });
    clearImmediate(timer);
    // A turn after each message is allowed; another thread's run takes hundreds.
    assert.ok(turns - first <= messagesMax, `${runtime}: ${turns - first} turns`);
  }
});
