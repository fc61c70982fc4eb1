/** Steps that overflow: each changes only the loss scale, and a run of only such steps fails. */

import assert from "node:assert/strict";
import { readCheckpoint } from "../../../actors/checkpoints/read.ts";
import { SCALE_MIN } from "../../../actors/gradients/commit.ts";
import { type Batch, type Layer, type Model, type Value } from "../../../kernels/mod.ts";
import { folderTest, namesIn } from "../../in_folder.ts";
import { type Options, trained } from "../pipeline/trained.ts";
import { B, batch, dataOfSteps, RINGS, type StepKind } from "../run/own_layers.ts";
import { SMALL } from "../runs.ts";

const N = 4;

/** Returns, for each step, the loss scale if the step was skipped, 0 otherwise. */
async function run(steps: readonly StepKind[], options: Options) {
  const { events, end } = await trained({ ...SMALL, steps: steps.length, microBatches: N }, {
    ...{ model: RINGS, data: dataOfSteps(steps), workers: 2, runtime: "local", precision: "fp16" },
    learningRate: 0.01,
    ...options,
  });
  const skips = events.filter((event) => event.type === "skip");
  const isFinite = options.model === undefined;
  assert.ok(skips.every(({ loss }) => Number.isFinite(loss) === isFinite), "gradients overflow");
  const scales = events.filter(({ type }) => type === "skip" || type === "step")
    .map((event) => event.type === "skip" ? event.lossScale : 0);
  return { scales, hash: end.weightsHash };
}

for (const runtime of ["local", "serial"] as const) {
  Deno.test(`steps that overflow leave weights, moments and the count of updates as they were (${runtime})`, async () => {
    const options: Options = { schedule: "chimera", lossScale: 256, runtime };
    const some = await run(["good", "good", "bad", "good", "bad", "good"], options);
    assert.deepEqual(some.scales, [0, 0, 256, 0, 256, 0]);
    const none = await run(["good", "good", "good", "good"], options);
    assert.deepEqual(none.scales, [0, 0, 0, 0]);
    assert.equal(some.hash, none.hash);
  });
}

Deno.test("the step after an overflow is tried under half of a dynamic loss scale", async () => {
  const bad: StepKind[] = Array(8).fill("bad");
  const { scales } = await run([...bad, "good", "bad"], { lossScale: "dynamic" });
  const halves = Array.from({ length: 8 }, (_, i) => 65_536 / 2 ** i);
  assert.deepEqual(scales, [...halves, 0, 256]);
});

folderTest("a run that skips every step fails, and leaves no checkpoint", async (directory) => {
  const checkpoint = { directory, config: {} };
  for (const runtime of ["serial", "local"] as const) {
    await assert.rejects(
      run(["bad", "bad", "bad"], { runtime, checkpoint, lossScale: 256 }),
      /^NonFiniteError: Cannot end after 3 steps: some must have been taken, received an overflow in each under the loss scale 256; use a lower loss scale, or a dynamic one$/,
    );
    assert.deepEqual(await namesIn(directory), []);
    const dynamic = run(["bad", "bad"], { runtime, checkpoint, lossScale: "dynamic" });
    await assert.rejects(dynamic, /^NonFiniteError: .*; let it run for more steps/);
  }
  await run(["good"], { checkpoint, lossScale: 256 });
  const resume = await readCheckpoint(directory);
  const { scales } = await run(["good", "bad"], { resume, lossScale: 256 });
  assert.deepEqual(scales, [256], "the run has taken a step before it was resumed");
});

folderTest("an overflow under the lowest dynamic loss scale ends the run", async (directory) => {
  await run(["good"], { lossScale: "dynamic", checkpoint: { directory, config: {} } });
  const saved = (await readCheckpoint(directory))!;
  // As if the scale had fallen again and again, with good steps between.
  const lossScale = { scale: SCALE_MIN, goodSteps: 1, skipped: 0 };
  const progress = { step: 1, update: 1, lossScale };
  const resume = { ...saved, config: { progress } };
  const far = { points: new Float32Array(2 * B).fill(1e9) };
  const data = Array.from({ length: 4 * N }, (_, i) => ({ ...batch(i), ...far }) as Batch);
  const refusal =
    /^NonFiniteError: Cannot take step 2 with the lowest loss scale, 0.00006103515625: /;
  await assert.rejects(run([], { data, steps: 4, resume, lossScale: "dynamic" }), refusal);
});

/** A layer that adds a field of the micro-batch to the loss: no gradient depends on it. */
const shifted: Model = {
  ...RINGS,
  layers: [
    ...RINGS.layers.slice(0, -1),
    {
      name: "shifted",
      build: (g, x) => g.add(RINGS.layers.at(-1)!.build(g, x) as Value, g.batch("shift", [B])),
    } satisfies Layer,
  ],
};

for (const runtime of ["serial", "local"] as const) {
  Deno.test(`a loss that is not finite is enough to refuse a step whose gradients are (${runtime})`, async () => {
    const options = { model: shifted, runtime } as const;
    const exact: Options = { ...options, precision: "fp32", device: "reference" };
    const lost = run(["good", "lost", "good"], exact);
    await assert.rejects(lost, /^NonFiniteError: Cannot take step 2: .*received loss Infinity/);
    const scaled: Options = { ...options, lossScale: 256 };
    const some = await run(["good", "lost", "good"], scaled);
    assert.deepEqual(some.scales, [0, 256, 0]);
    assert.equal(some.hash, (await run(["good", "good"], scaled)).hash);
  });
}
