/**
 * Models other than GPT-2 in stages: a Llama, a T5, a U-Net and an imported U-Net. What a stage gives by
 * name travels straight to the stages that use it, across all between, and no bit is another.
 */

import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import {
  ADAMW_DEFAULTS,
  compileModel,
  fromOnnx,
  initialValues,
  layersOnnx,
  llama,
  type Model,
  stringBatches,
  t5,
  unet,
  unetPictures,
} from "../../../kernels/mod.ts";
import { createSchedule, withRecomputation } from "../../../schedules/mod.ts";
import { atDepth } from "../../depth.ts";
import { pictureBatches, SIZES as PICTURES } from "../../kernels/architectures/pictures.ts";
import { readT5, T5_VERSIONS } from "../../kernels/architectures/t5_fixture.ts";
import { edgesOf } from "../architectures.ts";
import { batchesOf, fewAtATime, type Sizes } from "../runs.ts";
import {
  assertNear,
  DELAYS,
  openOracle,
  type Options,
  scheduleOf,
  TINY,
  trained,
} from "./trained.ts";

/** Micro-batches of a step and a replica. */
const N = 4, MOST = 40;
const SIZES: Sizes = { ...TINY, microBatches: N };

const llamaOf = (keyValueHeads: number) =>
  llama({ ...SIZES, keyValueHeads, ropeTheta: 100 }, SIZES.microBatch);

const t5Sizes = { layers: 2, hidden: 32, heads: 2, seq: 8, vocab: 12, tie: true, dropout: 0.1 };
const T5 = t5(t5Sizes, 2);
const strings = [...stringBatches(
  { task: "sort", seq: t5Sizes.seq, seed: 1 },
  { microBatch: 2, microBatches: MOST, steps: 1 },
)];

/** Nine layers: enough for the stages of every schedule on four workers. */
const unetConfig = { ...PICTURES, layers: 4 }, UNET = unet(unetConfig, 2);
const pictures = await pictureBatches(2, MOST);

const { parameters } = compileModel(UNET, "none");
const unetWeights = new Map(
  parameters.map(({ name, spec }) => [name, initialValues(spec, name, 1)]),
);
const file = layersOnnx(unetPictures(unetConfig, 2)).pieces((name) => unetWeights.get(name));
const IMPORTED = fromOnnx(await new Blob([...file]).bytes(), { loss: "mse", label: "targets" });

const ALL_KINDS: readonly Options[] = [
  { schedule: "message-driven", workers: 4, scheduleOptions: { order: "backward-first" } },
  { schedule: "chimera", workers: 4 },
  { schedule: "hanayo", workers: 4 },
  { schedule: "1f1b", workers: 2, replicas: 2 },
  { schedule: "zb-v", workers: 4 },
  { schedule: "1f1b", workers: 4 },
  { schedule: "chimera", workers: 2, replicas: 2 },
];
const SLICED: Options = { schedule: "seq1f1b", workers: 4, scheduleOptions: { slices: 2 } };

const kinds = (from: number, to: number) => atDepth(ALL_KINDS.slice(from, to), ALL_KINDS);

/** A model, its micro-batches, and the schedules under which it trains. */
const MODELS: Readonly<Record<string, readonly [Options, readonly Options[]]>> = {
  "a Llama": [{ model: llamaOf(1), data: batchesOf(SIZES, MOST) }, [...kinds(1, 3), SLICED]],
  "a T5 with dropout": [{ model: T5, data: strings }, kinds(0, 4)],
  "a U-Net": [{ model: UNET, data: pictures }, kinds(2, 5)],
  "an imported U-Net": [{ model: IMPORTED, data: pictures }, kinds(0, 2)],
};

for (const [what, [model, kinds]] of Object.entries(MODELS)) {
  Deno.test(`${what} has the serial bits under schedules of each kind, whatever the delays`, async () => {
    const oracle = openOracle({ ...SIZES, steps: atDepth(1, 2) });
    const on = (device: "native" | "wasm") => kinds.map((kind) => ({ ...model, ...kind, device }));
    const wasm = on("wasm").slice(...atDepth([0, what === "a T5 with dropout" ? 1 : 0], [0]));
    await fewAtATime([...on("native"), ...wasm], async (options) => {
      const { made, grouping } = scheduleOf(options, N);
      await oracle(`${options.device}, ${grouping}, ${made.slices} slices`, options, {
        link: DELAYS,
      });
    });
  });
}

const ON_FOUR: Options = { schedule: "1f1b", workers: 4, steps: 2 };
const AHEAD = withRecomputation(createSchedule("1f1b", { workers: 4, microBatches: N }));

const HALVING: Options = { schedule: "chimera", scheduleOptions: { scale: "halving" } };
const OFFLOADED: Options = { schedule: "interleaved", offload: true, layout: "schedule" };
const PICTURED: Options = { model: UNET, data: pictures, steps: 1 };

/** None of them changes the sums of the serial run that has the same. */
const VARIANTS: readonly (readonly [what: string, shared: Options, how?: Options])[] = [
  ["T5, halving", { ...HALVING, model: T5, data: strings, recompute: "cheap" }],
  ["T5, recomputed", { model: T5, data: strings, recompute: "full", recomputeInterval: 2 }],
  ["T5, fp16", { model: T5, data: strings, schedule: "zb-v", precision: "fp16", lossScale: 128 }],
  // Nothing that the encoder gives has a gradient.
  ["T5, frozen", { model: T5, data: strings, frozen: (name) => /^(encoder|shared)\./.test(name) }],
  ["T5, offloaded", { ...OFFLOADED, model: T5, data: strings }],
  ["U-Net", PICTURED, { recompute: "full", recomputeInterval: 2, workers: 2 }],
  ["U-Net", PICTURED, { schedule: AHEAD }],
];

Deno.test("a T5 and a U-Net have the serial bits whatever is computed again, frozen, halved or elsewhere", async () => {
  const oracle = openOracle(SIZES);
  await fewAtATime(VARIANTS, async ([what, shared, how]) => {
    const run = await oracle(what, { ...ON_FOUR, ...shared }, how);
    assert.ok(run.losses.every(Number.isFinite), what);
  });
});

/** Where values cross stages, by how many stages they go, and whether they have gradients. */
const EDGES: readonly (readonly [string, Model, number, readonly number[], readonly string[]])[] = [
  ["the U-Net", UNET, 4, [1, 2, 3], []],
  ["the U-Net", UNET, 8, [2, 4, 6], []],
  ["an imported U-Net", IMPORTED, 8, [1, 2, 5], []],
  ["the T5", T5, 8, [1, 2, 3], ["skip.mask"]],
];

for (const [what, model, stages, distances, constants] of EDGES) {
  Deno.test(`skip edges of ${what} in ${stages} stages cross ${distances.join(", ")} stages`, () => {
    const edges = edgesOf({ model }, stages);
    const crossed = edges.flatMap(({ from, to }) => to.map((stage) => stage - from));
    assert.deepEqual([...new Set(crossed)].sort(), distances);
    const bare = edges.filter(({ hasGradient }) => !hasGradient).map(({ key }) => key);
    assert.deepEqual([...new Set(bare)], constants);
  });
}

Deno.test("processes of a T5 that are lost within a step change no bit of the run", async () => {
  const told: string[] = [];
  const shared = { model: T5, data: strings, schedule: "1f1b", workers: 4, steps: 3 };
  // Of the encoder, whose memory is on its way, and of the decoder, which has a sum of gradients.
  const faults = [[0, 9], [2, 21]].map(([worker, afterActions]) => ({
    ...{ worker: worker!, afterActions: afterActions!, kind: "exit" as const },
  }));
  const announce = (line: string) => void told.push(line);
  const how = { runtime: "workers", isolation: "process", announce, faults } as const;
  await openOracle(SIZES)("T5", shared, how);
  assert.equal(told.filter((line) => line.includes("going on")).length, 2, told.join("\n"));
});

Deno.test("a U-Net that was written as ONNX comes back, and has the losses that it had", async () => {
  const options = { steps: 4, runtime: "serial", data: pictures } as const;
  const back = await trained(SIZES, { ...options, model: IMPORTED });
  const want = await trained(SIZES, { ...options, model: { ...UNET, weights: unetWeights } });
  assertNear(back.losses, want.losses, 1e-5, "imported");
});

Deno.test("a Llama in slices of its sequences has the losses of the whole within 1e-6, dropout included", async () => {
  const options = { model: llamaOf(2), runtime: "serial", workers: 2 } as const;
  const whole = await trained(SIZES, { ...options, schedule: "1f1b" });
  const sliced = await trained(SIZES, {
    ...{ ...options, schedule: "seq1f1b", scheduleOptions: { slices: 4 } },
  });
  assertNear(sliced.losses, whole.losses, 1e-6, "sliced");
});

const PYTORCH: readonly Options[] = [
  { device: "native", schedule: "1f1b", workers: 4, runtime: "local" },
  { device: "wasm", schedule: "message-driven", workers: 2, runtime: "local" },
  ...atDepth<Options[]>([], [{ device: "reference", runtime: "serial" }]),
];

for (const [v, version] of T5_VERSIONS.entries()) {
  for (const options of atDepth([PYTORCH[v]!], PYTORCH)) {
    Deno.test(`30 steps of T5 ${version} with ${JSON.stringify(options)} have PyTorch's losses within 1e-5`, async () => {
      const { batches: data, losses, norms, weightDecay, ...cut } = await readT5(version);
      const { steps, microBatches, model, learningRate } = cut;
      const path = new URL(`../../fixtures/t5/${version}_weights.safetensors`, import.meta.url);
      const optimizer = { ...ADAMW_DEFAULTS, weightDecay }, weights = fileURLToPath(path);
      const own = { model, data, weights, learningRate, optimizer, ...options };
      const run = await trained({ ...SIZES, steps, microBatches }, own);
      assertNear(run.losses, losses, 1e-5, "losses");
      assertNear(run.bits.numbers.map(([, , norm]) => norm!), norms, 1e-4, "norms");
      assert.deepEqual([...run.end.weights.keys()].sort(), [...cut.weights.keys()].sort());
    });
  }
}
