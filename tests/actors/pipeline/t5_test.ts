/** A T5 in stages: what the encoder gives travels straight to the blocks of the decoder. */

import assert from "node:assert/strict";
import { train, type TrainOptions } from "../../../actors/mod.ts";
import { ADAMW_DEFAULTS, stringBatches, t5 } from "../../../kernels/mod.ts";
import { readT5, T5_VERSIONS } from "../../kernels/architectures/t5_fixture.ts";
import { bitsOf, edgesOf, testSerialBits, type Trainee } from "../architectures.ts";

const SIZES = { layers: 2, hidden: 32, heads: 2, seq: 8, vocab: 12, tie: true, dropout: 0.1 };
const MICRO_BATCH = 2;

const T5: Trainee = {
  model: t5(SIZES, MICRO_BATCH),
  batches(count) {
    const plan = { microBatch: MICRO_BATCH, microBatches: count, steps: 1 };
    return [...stringBatches({ task: "sort", seq: SIZES.seq, seed: 1 }, plan)];
  },
};

Deno.test("the memory and the mask of a T5 cross one, two and more stages, and only the memory has a gradient", () => {
  const edges = edgesOf(T5, 8);
  const crossed = edges.flatMap(({ from, to }) => to.map((stage) => stage - from));
  for (const stages of [1, 2, 3]) assert.ok(crossed.includes(stages), `${crossed}`);
  const gradients = new Map(edges.map(({ key, hasGradient }) => [key, hasGradient]));
  assert.equal(gradients.get("skip.memory"), true);
  assert.equal(gradients.get("skip.mask"), false);
});

testSerialBits("a T5 with dropout", T5);

const VARIANTS: readonly Partial<TrainOptions>[] = [
  { schedule: "chimera", scheduleOptions: { scale: "halving" }, recompute: "cheap" },
  { schedule: "1f1b", recompute: "full", recomputeInterval: 2 },
  { schedule: "zb-v", precision: "fp16", lossScale: 128 },
  // Nothing that the encoder gives has a gradient.
  { schedule: "1f1b", frozen: (name) => /^(encoder|shared)\./.test(name) },
  { schedule: "interleaved", offload: true, layout: "schedule" },
];

for (const options of VARIANTS) {
  const what = JSON.stringify({ ...options, ...options.frozen && { frozen: "encoder" } });
  Deno.test(`a T5 has the serial bits with ${what}`, async () => {
    const own = { device: "native", workers: 4, ...options } as const;
    const run = await bitsOf(T5, { ...own, runtime: "local" });
    assert.ok(run.losses.every(Number.isFinite));
    assert.deepEqual(run, await bitsOf(T5, { ...own, runtime: "serial" }));
  });
}

Deno.test("processes of a T5 that are lost within a step change no bit of the run", async () => {
  const options = { schedule: "1f1b", workers: 4, device: "native", microBatches: 4 } as const;
  const told: string[] = [];
  const run = await bitsOf(T5, {
    ...options,
    steps: 4,
    runtime: "workers",
    isolation: "process",
    // Of the encoder, whose memory is on its way, and of the decoder, which has a sum of gradients.
    faults: [{ worker: 0, afterActions: 9, kind: "exit" }, {
      worker: 2,
      afterActions: 21,
      kind: "exit",
    }],
    announce: (line) => void told.push(line),
  });
  assert.deepEqual(run, await bitsOf(T5, { ...options, steps: 4, runtime: "serial" }));
  assert.equal(told.filter((line) => line.includes("going on")).length, 2, told.join("\n"));
});

/** The same 30 steps that PyTorch took. */
async function asPytorch(
  version: typeof T5_VERSIONS[number],
  options: Partial<TrainOptions>,
): Promise<void> {
  const { model, weights, batches, losses, norms, ...cut } = await readT5(version);
  const path = new URL(`../../fixtures/t5/${version}_weights.safetensors`, import.meta.url);
  const assertClose = (what: string, value: number, wanted: number, within: number) => {
    const error = Math.abs(value / wanted - 1);
    assert.ok(error < within, `${what}: ${value}, not ${wanted}`);
  };
  let steps = 0;
  for await (
    const event of train({
      model,
      data: batches,
      weights: decodeURIComponent(path.pathname),
      steps: cut.steps,
      microBatches: cut.microBatches,
      learningRate: cut.learningRate,
      optimizer: { ...ADAMW_DEFAULTS, weightDecay: cut.weightDecay },
      ...options,
    })
  ) {
    if (event.type === "step") {
      steps++;
      assertClose(`loss of step ${event.step}`, event.loss, losses[event.step - 1]!, 1e-5);
      assertClose(`norm of step ${event.step}`, event.gradNorm, norms[event.step - 1]!, 1e-4);
    }
    if (event.type === "end") {
      assert.deepEqual([...event.weights.keys()].toSorted(), [...weights.keys()].toSorted());
    }
  }
  assert.equal(steps, 30);
}

const PYTORCH: readonly Partial<TrainOptions>[] = [
  { device: "native", schedule: "1f1b", workers: 4, runtime: "local" },
  { device: "wasm", schedule: "message-driven", workers: 2, runtime: "workers" },
  { device: "reference", runtime: "serial" },
];

for (const version of T5_VERSIONS) {
  for (const options of PYTORCH) {
    Deno.test(`30 steps of T5 ${version} with ${JSON.stringify(options)} have PyTorch's losses within 1e-5`, () =>
      asPytorch(version, options));
  }
}
