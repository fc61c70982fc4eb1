/** Gradients and losses against PyTorch; `tests/fixtures/README.md` says how they were made. */

import assert from "node:assert/strict";
import {
  ADAMW_DEFAULTS,
  compileModel,
  type Device,
  type DeviceName,
  gpt2,
  mlp,
  type ModelProgram,
  openDevice,
  type Precision,
  readSafetensors,
  readTokens,
  type Tie,
  type TokenBatch,
  tokenBatches,
} from "../../../kernels/mod.ts";
import { countTargets } from "../../../kernels/batch.ts";
import { openStage, type Stage } from "../../../kernels/stage/stage.ts";
import { withAliases } from "../../../kernels/stage/state.ts";
import { atDepth, IS_DEEP } from "../../depth.ts";
import type { RegisterTest } from "../../devices.ts";
import { backward, forward, gradientsOf, openStages } from "./stage_runs.ts";
import { closing } from "../devices/models.ts";

const FIXTURES = new URL("../../fixtures/", import.meta.url);

/** A file of the fixtures. */
export async function readJson(name: string) {
  return JSON.parse(await Deno.readTextFile(new URL(name, FIXTURES)));
}

/** The tensors of a file of the fixtures. */
export async function readFloats(name: string): Promise<Map<string, Float32Array>> {
  const { tensors } = await readSafetensors(new URL(name, FIXTURES).pathname);
  return new Map([...tensors].map(([key, { data }]) => [key, new Float32Array(data.buffer)]));
}

/** Arrays of the same names, each within a part of its norm. */
export function assertClose(
  received: ReadonlyMap<string, Float32Array>,
  expected: ReadonlyMap<string, Float32Array>,
  tolerance = 2e-6,
  what = "",
): void {
  assert.deepEqual([...received.keys()].sort(), [...expected.keys()].sort(), what);
  const norm = (values: Float32Array) => Math.sqrt(values.reduce((sum, x) => sum + x * x, 0));
  for (const [name, values] of received) {
    const wanted = expected.get(name)!, size = norm(wanted);
    assert.equal(values.length, wanted.length, name);
    const distance = norm(values.map((value, i) => value - wanted[i]!));
    assert.ok(distance <= tolerance * size, `${what} ${name} differs by ${distance} of ${size}`);
  }
}

/** A whole model on a device. */
export async function withStage(
  name: DeviceName,
  program: ModelProgram,
  weights: Map<string, Float32Array>,
  backward: "whole" | "split",
  use: (stage: Stage, device: Device) => Promise<void>,
): Promise<void> {
  using device = closing(await openDevice(name));
  const stage = await openStage(device, program, { optimizer: ADAMW_DEFAULTS, backward });
  stage.load({ weights, moments: new Map() });
  await use(stage, device);
}

/** A GPT-2 of the fixtures on some stages, with its micro-batches. */
async function openFixture(device: Device, folder: string, count: number, precision?: Precision) {
  const { config, float32: expected } = await readJson(`${folder}/expected.json`);
  const { layers, hidden, heads, seq, vocab, microBatch, tied = false } = config;
  const model = gpt2({ layers, hidden, heads, seq, vocab, tie: tied }, microBatch);
  const program = compileModel(model, "cheap", precision && { precision }), { ties } = program;
  const weights = await readFloats(`${folder}/weights.safetensors`);
  assert.deepEqual([...weights.keys()].sort(), program.parameters.map(({ name }) => name).sort());
  const stages = await openStages(device, program, count);
  for (const stage of stages) stage.load(withAliases({ weights, moments: new Map() }, ties));
  const tokens = await readTokens(new URL(`${folder}/tokens.bin`, FIXTURES).pathname);
  const batches = [...tokenBatches({ ...config, tokens, vocabularySize: vocab })];
  return { config, expected, ties, stages, batches };
}

/** Computes the gradients of a step; the mean loss. */
async function accumulate(stages: readonly Stage[], batches: readonly TokenBatch[], lossScale = 1) {
  const predictions = batches.reduce((sum, batch) => sum + countTargets(batch, "targets"), 0);
  let loss = 0;
  for (const stage of stages) stage.zeroGradients();
  for (const [m, fields] of batches.entries()) {
    for (const one of await forward(stages, m, fields)) loss += one / predictions;
    await backward(stages, m, "B", lossScale / predictions);
  }
  return loss;
}

/** Gives both ends of a tie the sum of their gradients. */
async function addTied(stages: readonly Stage[], names: Tie): Promise<void> {
  const holders = [stages[0]!, stages.at(-1)!] as const;
  const ranges = holders.map((stage, i) => stage.rangeOf(names[i]!));
  const [sum, other] = await Promise.all(holders.map((stage, i) => {
    const { offset, length } = ranges[i]!;
    return stage.readGradients(offset, length);
  }));
  const both = sum!.map((value, i) => value + other![i]!);
  holders.forEach((stage, i) => stage.writeGradients(ranges[i]!.offset, both));
}

/** Tolerances of losses and norms against PyTorch's, and the factor of the loss. */
const BOUNDS = {
  fp32: { loss: 1e-5, norm: 1e-4, lossScale: 1 },
  fp16: { loss: 2e-3, norm: 1e-2, lossScale: 1024 },
  bf16: { loss: 2e-3, norm: 2e-2, lossScale: 1 },
} as const;

/** Some steps of a fixture, each with the loss and the norm of PyTorch in FP32. */
export async function assertTrains(
  device: Device,
  folder: string,
  count: number,
  steps: number,
  precision: keyof typeof BOUNDS = "fp32",
): Promise<void> {
  const fixture = await openFixture(device, folder, count, precision);
  const { config, expected, ties, stages, batches } = fixture;
  const { microBatches, lr, clipNorm = Infinity } = config, bounds = BOUNDS[precision];
  const isNear = (value: number, wanted: number, bound: number, what: string) =>
    assert.ok(Math.abs(value - wanted) < bound * wanted, `${what}: ${value}, not ${wanted}`);
  for (let step = 1; step <= steps; step++) {
    const own = batches.slice((step - 1) * microBatches, step * microBatches);
    const loss = await accumulate(stages, own, bounds.lossScale);
    for (const tie of ties) await addTied(stages, tie);
    const squares = (await Promise.all(stages.map((stage) => stage.gradientSquares())))
      .flatMap((found) => [...found]).filter(([name]) => !ties.some(([, alias]) => alias === name));
    const sum = squares.reduce((sum, [, square]) => sum + square, 0);
    const norm = Math.sqrt(sum) / bounds.lossScale;
    isNear(loss, expected.losses[step - 1], bounds.loss, `loss of step ${step}`);
    isNear(norm, expected.gradNorms[step - 1], bounds.norm, `norm of step ${step}`);
    const factor = Math.min(1, clipNorm / (norm + 1e-6)) / bounds.lossScale;
    for (const stage of stages) await stage.optimize(step, lr, factor);
  }
}

/** Registers the tests of a device that is open while they run. */
export function testPytorch(name: string, device: () => Device, test: RegisterTest = Deno.test) {
  test(`the gradient of every GPT-2 parameter on ${name} is PyTorch's within 2e-6`, async () => {
    const { stages, batches, config } = await openFixture(device(), "gpt2", 1);
    await accumulate(stages, batches.slice(0, config.microBatches));
    assertClose(await gradientsOf(stages), await readFloats("gpt2/gradients.safetensors"));
  });

  const steps = atDepth(name === "native" ? 10 : 2, 30);
  test(`${steps} steps of AdamW on ${name} have PyTorch's losses within 1e-5`, () =>
    assertTrains(device(), "gpt2", 1, steps));

  // Where shaders are compiled, which takes seconds, GPT-2's operations are enough.
  if (name === "webgpu" && !IS_DEEP) return;
  test(`the gradient of every MLP parameter on ${name} is PyTorch's within 2e-6`, async () => {
    const { config, features, labels } = await readJson("mlp/expected.json");
    const program = compileModel(mlp(config, config.microBatch), "none");
    const [stage] = await openStages(device(), program, 1), stages = [stage!];
    stage!.load({ weights: await readFloats("mlp/weights.safetensors"), moments: new Map() });
    const fields = { features: Float32Array.from(features), labels: Int32Array.from(labels) };
    await forward(stages, 0, fields);
    await backward(stages, 0, "B", 1 / config.microBatch);
    assertClose(await gradientsOf(stages), await readFloats("mlp/gradients.safetensors"));
  });
}
