/** The bytes of ONNX Runtime are one number for all who compute in a process, so this runs alone. */

import assert from "node:assert/strict";
import { openOrt } from "../../../kernels/devices/cpu/ort_api.ts";
import {
  ADAMW_DEFAULTS,
  type Batch,
  compileModel,
  gpt2,
  type ModelProgram,
  nativeLibraryPath,
  openNative,
  resnet,
} from "../../../kernels/mod.ts";
import { cutIntoStages } from "../../../kernels/compile/layout.ts";
import { openStage, planLibrary } from "../../../kernels/stage/stage.ts";
import { drawTokens, drawWeights } from "./stage_runs.ts";

/** Memory in addition to that in use: gaps into which no other value of the models fits. */
const HOLES = 1.4, CONSTANTS_BYTES = 2 ** 20;

/** Computes a step of one micro-batch in each stage, and compares what the library held with its plan. */
async function assertHeld(
  program: ModelProgram,
  count: number,
  backward: "whole" | "split",
  fields: Batch,
  /** Elements that pass between the stages. */
  width = 0,
): Promise<void> {
  const options = { optimizer: ADAMW_DEFAULTS, backward } as const;
  const weights = drawWeights(program);
  const half = program.programs[0]!.precision === "fp16" ? Float16Array : Float32Array;
  const handed = () => new half(width).fill(0.01);
  for (const stage of cutIntoStages(program, count)) {
    const { transient } = planLibrary([stage], options, "native"), device = await openNative();
    const opened = await openStage(device, stage, options);
    opened.load({ weights, moments: new Map() });
    for (const kinds of [["B"], ...backward === "split" ? [["I", "W"]] : []] as const) {
      await opened.forward(0, handed(), fields);
      for (const kind of kinds) await opened.backward(0, kind as "B", handed(), 1e-3);
    }
    await opened.optimize(1, 1e-3);
    const ort = openOrt(await nativeLibraryPath(), { threads: 1, isBlocking: true });
    const held = ort.arenaBytes();
    ort.close();
    device.close();
    const isNear = held >= transient && held <= HOLES * transient + CONSTANTS_BYTES;
    assert.ok(isNear, `backward ${backward}: planned ${transient}, held ${held}`);
  }
}

const WAYS = [
  ...[["none", "fp32", "whole"], ["cheap", "fp32", "split"], ["full", "fp16", "whole"]] as const,
];

Deno.test("ONNX Runtime holds the planned memory of the stages of GPT-2", async () => {
  for (const [recompute, precision, backward] of WAYS) {
    const config = { layers: 2, hidden: 256, heads: 4, seq: 128, vocab: 4096 };
    const program = compileModel(gpt2(config, 2), recompute, { precision });
    const [fields] = drawTokens(1, 256, config.vocab);
    await assertHeld(program, 2, backward, fields!, 256 * config.hidden);
  }
});

Deno.test("ONNX Runtime holds the planned memory of a residual network", async () => {
  const config = { height: 28, width: 28, channels: 1, layers: 3, hidden: 16, classes: 10 };
  const features = new Float32Array(16 * 28 * 28).map((_, i) => i % 7 / 7);
  const fields = { features, labels: new Int32Array(16) };
  for (const backward of ["whole", "split"] as const) {
    await assertHeld(compileModel(resnet(config, 16), "none"), 1, backward, fields);
  }
});
