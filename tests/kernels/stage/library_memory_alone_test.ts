/** What ONNX Runtime holds of one process is one number for all who compute in it, so this runs alone. */

import assert from "node:assert/strict";
import { openOrt } from "../../../kernels/devices/native/ort_api.ts";
import {
  ADAMW_DEFAULTS,
  type BackwardKind,
  type Batch,
  compileModel,
  cutIntoStages,
  gpt2,
  nativeLibraryPath,
  openNative,
  openStage,
  planLibrary,
  type Precision,
  type Recompute,
  resnet,
  type StageOptions,
  type StageProgram,
} from "../../../kernels/mod.ts";
import { drawTokens, drawWeights } from "./stage_runs.ts";

/** Beyond what is in use at a time: holes that no other value of the models fits into. */
const HOLES = 1.4, CONSTANTS_BYTES = 2 ** 20;

const CASES: readonly {
  readonly recompute: Recompute;
  readonly precision: Precision;
  readonly backward: StageOptions["backward"];
}[] = [
  { recompute: "none", precision: "fp32", backward: "whole" },
  { recompute: "cheap", precision: "fp32", backward: "split" },
  { recompute: "full", precision: "fp16", backward: "whole" },
];

/** Computes a step of one micro-batch in a stage, and compares what the library held with what was planned. */
async function assertHeld(
  stage: StageProgram,
  options: StageOptions,
  { weights, fields, handed }: {
    readonly weights: Map<string, Float32Array>;
    readonly fields: Batch;
    /** What comes from other stages. */
    readonly handed: () => Float32Array<ArrayBuffer> | Float16Array<ArrayBuffer>;
  },
): Promise<void> {
  const { transient } = planLibrary([stage], options, "native");
  const device = await openNative();
  const opened = await openStage(device, stage, options);
  opened.load({ weights, moments: new Map() });
  for (const kinds of [["B"], ...options.backward === "split" ? [["I", "W"]] : []]) {
    await opened.forward(0, handed(), fields);
    for (const kind of kinds) await opened.backward(0, kind as BackwardKind, handed(), 1e-3);
  }
  await opened.optimize(1, 1e-3);
  const ort = openOrt(await nativeLibraryPath(), { threads: 1, isBlocking: true });
  const held = ort.arenaBytes();
  ort.close();
  device.close();
  const seen = `planned ${transient}, held ${held}`;
  assert.ok(held >= transient, seen);
  assert.ok(held <= HOLES * transient + CONSTANTS_BYTES, seen);
}

for (const { backward, ...compile } of CASES) {
  const name = `${Object.values(compile).join(", ")}, backward ${backward}`;
  Deno.test(`ONNX Runtime holds what was planned for the stages of GPT-2: ${name}`, async () => {
    const config = { layers: 2, hidden: 256, heads: 4, seq: 128, vocab: 4096 };
    const program = compileModel(gpt2(config, 2), compile.recompute, compile);
    const options = { optimizer: ADAMW_DEFAULTS, backward } as const;
    const weights = drawWeights(program), [fields] = drawTokens(1, 256, config.vocab);
    const half = compile.precision === "fp16" ? Float16Array : Float32Array;
    const handed = () => new half(256 * config.hidden).fill(0.01);
    for (const stage of cutIntoStages(program, 2)) {
      await assertHeld(stage, options, { weights, fields: fields!, handed });
    }
  });
}

for (const backward of ["whole", "split"] as const) {
  Deno.test(`ONNX Runtime holds what was planned for a residual network: backward ${backward}`, async () => {
    const config = { height: 28, width: 28, channels: 1, layers: 3, hidden: 16, classes: 10 };
    const program = compileModel(resnet(config, 16), "none");
    const fields = {
      features: new Float32Array(16 * 28 * 28).map((_, i) => i % 7 / 7),
      labels: new Int32Array(16),
    };
    const options = { optimizer: ADAMW_DEFAULTS, backward } as const;
    const handed = () => new Float32Array(0);
    const [stage] = cutIntoStages(program, 1);
    await assertHeld(stage!, options, { weights: drawWeights(program), fields, handed });
  });
}
