/** Mixed precision: FP16 storage and messages, FP32 computing and master weights. */

import assert from "node:assert/strict";
import {
  ADAMW_DEFAULTS,
  compileModel,
  type Device,
  gpt2,
  Graph,
  type LayerGraph,
  type Precision,
} from "../../../kernels/mod.ts";
import { cutIntoStages } from "../../../kernels/compile/layout.ts";
import { openStage } from "../../../kernels/stage/stage.ts";
import { atDepth } from "../../depth.ts";
import { ISOLATE_DEVICES } from "../../devices.ts";
import { modelOf, runModel } from "../devices/models.ts";
import { preparing } from "../devices/webgpu/preparing.ts";
import { assertClose, assertTrains } from "./pytorch.ts";
import {
  backward,
  compilingOnce,
  drawTokens,
  forward,
  gradientsOf,
  openStages,
  sharedDevices,
} from "./stage_runs.ts";
import { assertRefused } from "../graph/refused.ts";

const CONFIG = { layers: 2, hidden: 32, heads: 2, seq: 16, vocab: 64 };
const SAMPLES = 2, PREDICTIONS = SAMPLES * CONFIG.seq;
const LOSS_SCALE = 1024;

const shared = sharedDevices(ISOLATE_DEVICES);

/**
 * A device, "as webgpu" with models as they are rewritten for a GPU: products take FP16 operands. What
 * native has no FP16 kernel for it computes in FP32, and leaves out roundings between.
 */
function open(name: string): Device {
  const [own, rewrites] = name.split(" as ") as [string, string?];
  return rewrites ? compilingOnce(preparing(shared(own))) : shared(own);
}

const BATCHES = drawTokens(1, PREDICTIONS, CONFIG.vocab);

const program = (precision: Precision) =>
  compileModel(gpt2(CONFIG, SAMPLES), "none", { precision });

const TRAINED = [
  ...["native", "wasm", "native as webgpu"].map((name) => [name, "fp16"] as const),
  ["native", "bf16"],
] as const;

for (const [name, precision] of TRAINED) {
  const steps = atDepth(name === "native" ? 10 : 4, 30), title = precision.toUpperCase();
  Deno.test(`${steps} steps in ${title} on ${name} have PyTorch's losses in FP32 within 2e-3`, () =>
    assertTrains(open(name), "gpt2", 1, steps, precision));
}

for (const name of [...ISOLATE_DEVICES, "reference as webgpu"]) {
  Deno.test(`gradients in FP16 on ${name} are those of FP32 on native within 3e-3`, async () => {
    const run = async (device: Device, precision: Precision, scale: number) => {
      const stages = await openStages(device, program(precision), 2);
      await forward(stages, 0, BATCHES[0]!);
      await backward(stages, 0, "B", scale / PREDICTIONS);
      const found = await gradientsOf(stages);
      return new Map(Array.from(found, ([key, values]) => [key, values.map((d) => d / scale)]));
    };
    const expected = await run(open("native"), "fp32", 1);
    assertClose(await run(open(name), "fp16", LOSS_SCALE), expected, 3e-3);
  });

  Deno.test(`a value that a model stores on ${name} is rounded to FP16 for itself and for others`, async () => {
    const g = new Graph(), x = g.input("x", [4]), product = g.mul(x, g.scalar(1));
    const outputs = { same: x, product, again: product, sum: g.add(product, g.scalar(0)) };
    const model = modelOf(g, outputs, [product]);
    const values = [1 + 2 ** -11, 1 + 3 * 2 ** -11, 2 ** -25, 65_520];
    const { same, ...others } = Object.fromEntries(await runModel(open(name), model, () => values));
    const rounded = [1, 1 + 2 ** -9, 0, Infinity]; // ties to even
    assert.deepEqual(others, { product: rounded, again: rounded, sum: rounded });
    assert.deepEqual(same, values);
  });
}

Deno.test("in FP16, stages exchange FP16 and the last returns FP32 losses", async () => {
  const [first, last] = await openStages(open("native"), program("fp16"), 2);
  const [fields] = BATCHES;
  const { output } = await first!.forward(0, undefined, fields!);
  assert.ok(output instanceof Float16Array);
  assert.equal(output.length, PREDICTIONS * CONFIG.hidden);
  const reused = new Float32Array(SAMPLES);
  const losses = await last!.forward(0, output, fields!, reused);
  assert.equal(losses.output, reused);
  assert.deepEqual([first!.isLast, last!.isLast, losses.isLoss], [false, true, true]);
  const into = new Float16Array(output.length);
  assert.equal(await last!.backward(0, "B", undefined, 1, into), into);
  assert.equal(await first!.backward(0, "B", into, 1), undefined);
  assert.ok(into.some((value) => value !== 0));
  const sum = await first!.readGradients(0, 32);
  assert.ok(sum instanceof Float16Array);
  first!.writeGradients(16, sum.subarray(0, 16));
  assert.deepEqual(await first!.readGradients(16, 16), sum.slice(0, 16));
});

Deno.test("each micro-batch's gradient is added in FP32 and the sum rounded to FP16", async () => {
  const build = (g: LayerGraph) =>
    g.sum(g.mul(g.batch("x", [1, 1]), g.parameter("w", [1, 1])), [1]);
  const model = { name: "tiny", layers: [{ name: "linear", build }], predictions: 1 };
  const options = { optimizer: ADAMW_DEFAULTS, backward: "whole" } as const;
  const tiny = compileModel(model, "none", { precision: "fp16" });
  const stage = await openStage(open("reference"), tiny, options);
  stage.load({ weights: new Map([["linear.w", Float32Array.of(1)]]), moments: new Map() });
  // 2048 + 1 is no FP16 number, and rounds to 2048; 2048 + 3 rounds to 2052.
  for (const [m, [gradient, sum]] of [[2048, 2048], [1, 2048], [3, 2052]].entries()) {
    await stage.forward(m, undefined, { x: Float32Array.of(gradient!) });
    await stage.backward(m, "B", undefined, 1);
    assert.deepEqual((await gradientsOf([stage])).get("linear.w"), Float32Array.of(sum!));
  }
});

Deno.test("small updates reach the FP32 weights although they vanish in FP16", async () => {
  const optimizer = { kind: "sgd", momentum: 0, weightDecay: 0 } as const;
  const [stage] = await openStages(open("native"), program("fp16"), 1, { optimizer });
  const { offset, length } = stage!.rangeOf("lm_head.weight");
  const weights = async () => (await stage!.save()).weights.get("lm_head.weight")!;
  const before = await weights();
  stage!.writeGradients(offset, new Float16Array(length).fill(2));
  await stage!.optimize(1, 1e-6, 1 / 2);
  const expected = before.map((weight) => Math.fround(weight - Math.fround(1e-6)));
  assert.deepEqual(await weights(), expected);
});

Deno.test("a precision that does not exist, or is not the program's, is refused", () => {
  const [stage] = cutIntoStages(program("fp16"), 2);
  const options = { optimizer: ADAMW_DEFAULTS, backward: "whole", precision: "fp32" } as const;
  return assertRefused("precisions", [
    ["no precision", () => program("fp8" as Precision)],
    ["another than the program's", () => openStage(open("reference"), stage!, options)],
  ]);
});
