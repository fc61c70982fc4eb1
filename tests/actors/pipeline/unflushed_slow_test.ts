/**
 * Schedules without flushes: the pipeline has the bits of a serial model of its staleness, and the
 * staleness is that of the papers.
 */

import assert from "node:assert/strict";
import { readCheckpoint } from "../../../actors/checkpoints/read.ts";
import { slotsOf } from "../../../actors/run/memory.ts";
import type { Batch, Layer, Model } from "../../../kernels/mod.ts";
import { analyze, createSchedule, defineSchedule } from "../../../schedules/mod.ts";
import { atDepth } from "../../depth.ts";
import fc from "../../fast_check.ts";
import { inFolder } from "../../in_folder.ts";
import { batch, RINGS } from "../run/own_layers.ts";
import { batchesOf, type Sizes } from "../runs.ts";
import { assertNear, assertRefused, openOracle, type Options, TINY, trained } from "./trained.ts";

const NAMES = ["pipedream", "pipedream-2bw"] as const;

/** Five steps; with an evaluation every two steps, the pipe drains before each evaluation. */
const SIZES: Sizes = { ...TINY, layers: 2, steps: 5 };

/** Two workers of a model of a user. */
const ON_RINGS = {
  ...{ model: RINGS, data: Array.from({ length: 16 }, (_, i) => batch(i) as Batch) },
  ...{ device: "reference", runtime: "local", workers: 2, microBatches: 4, steps: 2 },
} satisfies Options;

for (const schedule of NAMES) {
  Deno.test(`${schedule} has the bits of the serial model in threads, on wasm, with frozen stages and a smaller last step`, async () => {
    const evaluation = { every: 2, batches: batchesOf(SIZES, SIZES.microBatches) };
    const frozen = (name: string) => !name.includes("ln_f") && !name.includes("lm_head");
    const few = { steps: 3, data: batchesOf(SIZES, 2 * SIZES.microBatches + 1) };
    const cases: [Options, Options?][] = [
      [{ workers: 2, evaluation }, { runtime: "workers" }],
      [{ workers: 3, evaluation, frozen }],
      [{ workers: 3, ...few, ...schedule === "pipedream" && { device: "wasm" } }],
    ];
    for (const [options, how] of cases) await openOracle(SIZES)("", { ...options, schedule }, how);
  });

  Deno.test(`${schedule} does not flush: the next step has begun before this one has ended`, async () => {
    const ended: number[] = [], begun: number[] = [];
    const options = { runtime: "local", workers: 3, trace: true, schedule } as const;
    const { events } = await trained(SIZES, options);
    for (const { traces } of events.filter((event) => event.type === "step")) {
      const first = traces![0]!;
      ended.push(first.findLast(({ name }) => name.startsWith("0B"))!.end);
      for (const { name, start } of first) if (name.startsWith("0F")) begun.push(start);
    }
    for (let step = 1; step < 5; step++) {
      assert.ok(begun[4 * step]! < ended[step - 1]!, `step ${step + 1} must begin early`);
    }
  });

  Deno.test(`${schedule} resumed from a checkpoint has the bits of the run that wrote it`, () =>
    inFolder(async (directory) => {
      const options = { runtime: "local", workers: 3, schedule } as const;
      const checkpoint = { directory, every: 3, config: {} };
      const whole = await trained(SIZES, { ...options, checkpoint });
      const resume = await readCheckpoint(`${directory}/step-00000003`);
      const data = batchesOf(SIZES), rest = await trained(SIZES, { ...options, data, resume });
      assert.deepEqual(rest.bits.numbers, whole.bits.numbers.slice(3));
      assert.equal(rest.bits.hash, whole.bits.hash);
    }));

  Deno.test(`${schedule} ends with a NonFiniteError that says the weights are lost`, async () => {
    const bad = { ...batch(0), points: new Float32Array(8).fill(NaN) } as Batch;
    const data = Array.from({ length: 16 }, (_, i) => i === 5 ? bad : batch(i));
    for (const runtime of ["local", "serial"] as const) {
      const own = { data, steps: 8, microBatches: 2, runtime, schedule };
      const lost = /^NonFiniteError: Cannot take step 3: .*the weights are lost: resume/;
      await assert.rejects(trained(SIZES, { ...ON_RINGS, ...own }), lost);
    }
  });

  Deno.test(`${schedule} whose worker fails ends with an error that names it, its step and its action`, async () => {
    const faults = [{ worker: 0, afterActions: 8, kind: "throw" }] as const;
    await assert.rejects(
      trained(SIZES, { ...ON_RINGS, steps: 8, microBatches: 2, schedule, faults, retries: 0 }),
      /worker-0 failed in step \d while handling (StepBucket \(optimizer\)|Dispatch \(0B2\)): a fault/,
    );
  });
}

Deno.test("any workers, steps, pauses and delays have the bits of the serial model, and the peaks of the analysis", async () => {
  const runs = fc.record({
    schedule: fc.constantFrom(...NAMES),
    workers: fc.integer({ min: 1, max: 5 }),
    more: fc.integer({ min: 0, max: 3 }),
    steps: fc.integer({ min: 1, max: 9 }),
    every: fc.integer({ min: 1, max: 5 }),
    jitterUs: fc.constantFrom(0, 500, 3000),
  });
  await fc.assert(
    fc.asyncProperty(runs, async ({ schedule, workers, more, steps, every, jitterUs }) => {
      const microBatches = schedule === "pipedream" ? 1 + more : workers + more;
      const data = Array.from({ length: steps * microBatches }, (_, m) => batch(m) as Batch);
      const evaluation = { every, batches: data.slice(0, 3) };
      const own = { schedule, workers, steps, microBatches, data, evaluation };
      const link = { latencyUs: 0, gigabytesPerSecond: 1, jitterUs };
      const { end } = await openOracle(SIZES)("any", { ...ON_RINGS, ...own }, { link });
      // Between pauses the pipe must fill up, and a step must start before another ends.
      const between = Math.min(every, steps);
      if (between < 2 || between * microBatches < 3 * workers) return;
      const made = createSchedule(schedule, { workers, microBatches });
      const { peakActivations, weights } = analyze(made);
      // PipeDream's steps overlap: with few micro-batches it still holds one activation for each version.
      const peaks = schedule === "pipedream" ? weights : peakActivations;
      assert.deepEqual([end.peakActivations, end.weightsHeld], [peaks, weights]);
      const slots = peaks.map((_, worker) => slotsOf(made, worker, worker, 0).slices);
      assert.deepEqual(slots, peaks.map((one) => [one]));
    }),
    { numRuns: atDepth(12, 100) },
  );
});

/** A pipe of three scalars, x·a·b·c, and the square of its error. */
const B = 4;
const scalar = (name: string, isLast = false): Layer => ({
  name,
  build(g, x) {
    const input = x ?? g.batch("x", [B, 1]);
    const y = g.gemm(input, g.parameter("w", [1, 1]));
    if (!isLast) return y;
    const error = g.sub(y, g.batch("target", [B, 1]));
    return g.reshape(g.mul(error, error), [B]);
  },
});
const LAYERS = [scalar("a"), scalar("b"), scalar("c", true)];
const CHAIN: Model = { name: "chain", layers: LAYERS, predictions: B };
const FIRST = [0.7, 1.3, -0.4], RATE = 0.05;

/** x and its target of micro-batch m. */
const pointsOf = (m: number) => {
  const x = Float32Array.from({ length: B }, (_, j) => Math.sin(3 * m + j));
  return { x, target: x.map((value) => 0.8 * value + 0.1) };
};

/** Loss and gradients of the chain on some micro-batches, with weights a, b, c. */
function chain([a, b, c]: number[], microBatches: readonly number[]) {
  let loss = 0;
  const gradient = [0, 0, 0], count = microBatches.length * B;
  for (const { x, target } of microBatches.map(pointsOf)) {
    x.forEach((value, j) => {
      const error = value * a! * b! * c! - target[j]!, slope = 2 * error * value / count;
      loss += error * error / count;
      [b! * c!, a! * c!, a! * b!].forEach((rest, s) => gradient[s]! += slope * rest);
    });
  }
  return { loss, gradient };
}

const STEPS = 20, N = 3;

/** Losses of the steps of a schedule on the chain, in f32 and in the pipeline. */
async function chainLosses(schedule: string): Promise<readonly number[]> {
  const weights = new Map(FIRST.map((w, i) => [`${"abc"[i]}.w`, Float32Array.of(w)]));
  const data = Array.from({ length: STEPS * N }, (_, m) => pointsOf(m));
  const optimizer = { kind: "sgd", momentum: 0, weightDecay: 0 } as const;
  const { losses } = await trained({ ...TINY, steps: STEPS, microBatches: N }, {
    ...{ model: CHAIN, data, workers: 3, schedule, runtime: "local", device: "reference" },
    ...{ learningRate: RATE, optimizer, weights },
  });
  return losses;
}

Deno.test("pipedream follows w(t+1) = w(t) − η·∇f(w_0(t−2), w_1(t−1), w_2(t)) on three stages", async () => {
  const history = FIRST.map((w) => [w]), expected: number[] = [];
  for (let t = 0; t < STEPS * N; t++) {
    const seen = history.map((versions, s) => versions[Math.max(0, t - (2 - s))]!);
    const { loss, gradient } = chain(seen, [t]);
    history.forEach((versions, s) => versions.push(versions[t]! - RATE * gradient[s]!));
    expected[Math.floor(t / N)] = (expected[Math.floor(t / N)] ?? 0) + loss / N;
  }
  assertNear(await chainLosses("pipedream"), expected, 2e-6, "pipedream");
});

Deno.test("pipedream-2bw follows W(t+1) = W(t) − η·∇f(W(t−1))", async () => {
  const history = [FIRST], expected: number[] = [];
  for (let t = 0; t < STEPS; t++) {
    const micro = Array.from({ length: N }, (_, j) => t * N + j);
    const { loss, gradient } = chain(history[Math.max(0, t - 1)]!, micro);
    expected.push(loss);
    history.push(history[t]!.map((w, s) => w - RATE * gradient[s]!));
  }
  assertNear(await chainLosses("pipedream-2bw"), expected, 2e-6, "pipedream-2bw");
});

Deno.test("your own schedule without flushes trains if it is pipedream under another name", async () => {
  const options = { workers: 2, microBatches: 4 };
  const { lists } = createSchedule("pipedream", options);
  const rule = {
    ...{ name: "mine", summary: "mine", updates: "every-backward" } as const,
    place: () => ({ stages: 2, workerOf: (stage: number) => stage }),
    order: (worker: number) => [...lists![worker]!],
  };
  const mine = defineSchedule({ ...rule, weightVersions: (worker) => 2 - worker }).create(options);
  const run = (schedule: NonNullable<Options["schedule"]>) =>
    trained(SIZES, { runtime: "local", workers: 2, schedule });
  assert.deepEqual((await run(mine)).bits, (await run("pipedream")).bits);
  const other = defineSchedule(rule).create(options);
  await assert.rejects(run(other), /^RangeError: .*weight versions must be those of pipedream/);
});

Deno.test("what needs a commit of all workers is refused without flushes", async () => {
  const refused: readonly Options[] = [
    ...[{ replicas: 2 }, { clip: 1 }, { precision: "fp16" }, { lossScale: 8 }] as const,
    { sync: "eager" },
    { model: { ...RINGS, ties: [["b.weight", "c.weight"]] } },
    { policy: "elastic" },
  ];
  const runs = NAMES.flatMap((schedule) =>
    refused.map((options) => {
      const { model, ...shown } = options, about = model ? "ties" : JSON.stringify(shown);
      return [`${schedule}: ${about}`, { ...ON_RINGS, schedule, ...options }] as const;
    })
  );
  await assertRefused("unflushed", SIZES, Object.fromEntries(runs));
});
