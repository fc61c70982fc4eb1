/**
 * Models other than GPT-2 in stages: a Llama, a T5, a U-Net and an imported U-Net. A stage's named
 * outputs go directly to the stages that use them, and all bits are those of the serial run.
 */

import assert from "node:assert/strict";
import { compileModel, fromOnnx, layersOnnx, llama, t5, unet } from "../../../kernels/mod.ts";
import { stringBatches } from "../../../kernels/data/digits.ts";
import { unetPictures } from "../../../kernels/layers/convolutional.ts";
import { createSchedule, withRecomputation } from "../../../schedules/mod.ts";
import { atDepth } from "../../depth.ts";
import { pictureBatches, SIZES as PICTURES } from "../../kernels/architectures/pictures.ts";
import { batchesOf, type Sizes } from "../runs.ts";
import { inLanes } from "../../lanes.ts";
import { drawWeights } from "../../kernels/stage/stage_runs.ts";
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

const LLAMA = llama({ ...SIZES, keyValueHeads: 1, ropeTheta: 100 }, SIZES.microBatch);

const t5Sizes = { layers: 2, hidden: 32, heads: 2, seq: 8, vocab: 12, tie: true, dropout: 0.1 };
const T5 = t5(t5Sizes, 2);
const strings = [...stringBatches(
  { task: "sort", seq: t5Sizes.seq, seed: 1 },
  { microBatch: 2, microBatches: MOST, steps: 1 },
)];

/** Nine layers: enough for the stages of every schedule on four workers. */
const unetConfig = { ...PICTURES, layers: 4 }, UNET = unet(unetConfig, 2);
const pictures = await pictureBatches(2, MOST);

const drawn = drawWeights(compileModel(UNET, "none"));
const file = layersOnnx(unetPictures(unetConfig, 2)).pieces((name) => drawn.get(name));
const IMPORTED = fromOnnx(await new Blob([...file]).bytes(), { loss: "mse", label: "targets" });

/** A model, its micro-batches, and the schedules under which it trains. */
const MODELS: Readonly<Record<string, readonly [Options, readonly Options[]]>> = {
  "a Llama": [
    { model: LLAMA, data: batchesOf(SIZES, MOST) },
    [
      { schedule: "chimera", workers: 4 },
      { schedule: "seq1f1b", workers: 4, scheduleOptions: { slices: 2 } },
    ],
  ],
  "a T5 with dropout": [{ model: T5, data: strings }, [
    { schedule: "message-driven", workers: 4 },
    { schedule: "hanayo", workers: 4 },
    { schedule: "1f1b", workers: 2, replicas: 2 },
  ]],
  "a U-Net": [{ model: UNET, data: pictures }, [
    { schedule: "zb-v", workers: 4 },
    { schedule: "chimera", workers: 2, replicas: 2 },
  ]],
  "an imported U-Net": [{ model: IMPORTED, data: pictures }, [{ schedule: "chimera", workers: 4 }]],
};

for (const [what, [model, kinds]] of Object.entries(MODELS)) {
  Deno.test(`${what} has the serial bits under schedules of each kind, whatever the delays`, async () => {
    const oracle = openOracle({ ...SIZES, steps: atDepth(1, 2) });
    await inLanes(kinds, async (kind) => {
      const { made, grouping } = scheduleOf(kind, N);
      const options = { ...model, ...kind }, what = `${grouping}, ${made.slices} slices`;
      await oracle(what, options, { link: DELAYS });
    });
  });
}

const ON_FOUR: Options = { schedule: "1f1b", workers: 4, steps: 2 };
const AHEAD = withRecomputation(createSchedule("1f1b", { workers: 4, microBatches: N }));

const HALVING: Options = { schedule: "chimera", scheduleOptions: { scale: "halving" } };
const OFFLOADED: Options = { schedule: "interleaved", offload: true, layout: "schedule" };
const PICTURED: Options = { model: UNET, data: pictures, steps: 1 };

/** Variants that leave the sums equal to those of a serial run with the same shared options. */
const VARIANTS: readonly (readonly [what: string, shared: Options, how?: Options])[] = [
  ["T5, halving", { ...HALVING, model: T5, data: strings, recompute: "cheap" }],
  ["T5, recomputed", { model: T5, data: strings, recompute: "full", recomputeInterval: 2 }],
  ["T5, fp16", { model: T5, data: strings, schedule: "zb-v", precision: "fp16", lossScale: 128 }],
  // No output of the encoder has a gradient.
  ["T5, frozen", { model: T5, data: strings, frozen: (name) => /^(encoder|shared)\./.test(name) }],
  ["T5, offloaded", { ...OFFLOADED, model: T5, data: strings }],
  ["U-Net", PICTURED, { recompute: "full", recomputeInterval: 2, workers: 2 }],
  ["U-Net", PICTURED, { schedule: AHEAD }],
];

Deno.test("a T5 and a U-Net have the serial bits whatever is computed again, frozen, halved or elsewhere", async () => {
  const oracle = openOracle(SIZES);
  await inLanes(VARIANTS, async ([what, shared, how]) => {
    const run = await oracle(what, { ...ON_FOUR, ...shared }, how);
    assert.ok(run.losses.every(Number.isFinite), what);
  });
});

Deno.test("workers of a T5 that are lost within a step change no bit of the run", async () => {
  const told: string[] = [];
  const shared = { model: T5, data: strings, schedule: "1f1b", workers: 2, steps: 3 };
  // Of the encoder, whose memory is on its way, and of the decoder, which has a sum of gradients.
  const faults = [[0, 9], [1, 21]].map(([worker, afterActions]) => ({
    ...{ worker: worker!, afterActions: afterActions!, kind: "throw" as const },
  }));
  const announce = (line: string) => void told.push(line);
  await openOracle(SIZES)("T5", shared, { runtime: "workers", announce, faults });
  const continued = told.filter((line) => line.includes("the run continues"));
  assert.equal(continued.length, 2, told.join("\n"));
});

Deno.test("a Llama in slices of its sequences has the losses of the whole within 1e-6, dropout included", async () => {
  const options = { model: LLAMA, runtime: "serial", workers: 2 } as const;
  const whole = await trained(SIZES, { ...options, schedule: "1f1b" });
  const slices = { schedule: "seq1f1b", scheduleOptions: { slices: 4 } };
  const sliced = await trained(SIZES, { ...options, ...slices });
  assertNear(sliced.losses, whole.losses, 1e-6, "sliced");
});
