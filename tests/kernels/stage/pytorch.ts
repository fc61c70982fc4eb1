/** Gradients and losses against PyTorch; `tests/fixtures/README.md` says how they were made. */

import assert from "node:assert/strict";
import {
  ADAMW_DEFAULTS,
  compileModel,
  countTargets,
  type Device,
  type DeviceName,
  gpt2,
  mlp,
  type ModelProgram,
  openDevice,
  openStage,
  readSafetensors,
  readTokens,
  type Recompute,
  RECOMPUTE_POLICIES,
  type Stage,
  type TokenBatch,
  tokenBatches,
} from "../../../kernels/mod.ts";
import type { RegisterTest } from "../../devices.ts";

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

/** ‖a − b‖ ÷ ‖b‖ */
function relativeError(a: Float32Array, b: Float32Array): number {
  let difference = 0, norm = 0;
  a.forEach((value, i) => {
    difference += (value - b[i]!) ** 2;
    norm += b[i]! ** 2;
  });
  return Math.sqrt(difference / norm);
}

/** Gradients of the same parameters, within 2e-6 of their norms. */
export function assertClose(
  received: Map<string, Float32Array>,
  expected: Map<string, Float32Array>,
): void {
  assert.deepEqual([...received.keys()].sort(), [...expected.keys()].sort());
  for (const [name, gradient] of received) {
    const error = relativeError(gradient, expected.get(name)!);
    assert.ok(error < 2e-6, `the gradient of ${name} differs by ${error}`);
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
  const device = await openDevice(name);
  try {
    const stage = await openStage(device, program, { optimizer: ADAMW_DEFAULTS, backward });
    stage.load({ weights, moments: new Map() });
    await use(stage, device);
  } finally {
    device.close();
  }
}

async function backward(stage: Stage, m: number, kind: "whole" | "split", scale: number) {
  if (kind === "whole") return await stage.backward(m, "B", undefined, scale);
  await stage.backward(m, "I", undefined, scale);
  await stage.backward(m, "W", undefined, scale);
}

/** The micro-batches of the GPT-2 fixture, step by step. */
async function gptBatches(steps: number): Promise<TokenBatch[]> {
  const { config } = await readJson("gpt2/expected.json");
  const tokens = await readTokens(new URL("gpt2/tokens.bin", FIXTURES).pathname);
  return [...tokenBatches({ ...config, tokens, vocabularySize: config.vocab, steps })];
}

async function gptProgram(recompute: Recompute) {
  const { config } = await readJson("gpt2/expected.json");
  const { layers, hidden, heads, seq, vocab, microBatch } = config;
  return compileModel(gpt2({ layers, hidden, heads, seq, vocab }, microBatch), recompute);
}

/** The gradients that one step of the fixture accumulates. */
async function gptGradients(name: DeviceName, recompute: Recompute, kind: "whole" | "split") {
  const program = await gptProgram(recompute);
  const batches = await gptBatches(1);
  const scale = 1 / batches.reduce((sum, batch) => sum + countTargets(batch, "targets"), 0);
  let gradients = new Map<string, Float32Array>();
  await withStage(
    name,
    program,
    await readFloats("gpt2/weights.safetensors"),
    kind,
    async (stage) => {
      for (const [m, fields] of batches.entries()) {
        await stage.forward(m, undefined, fields);
        await backward(stage, m, kind, scale);
      }
      gradients = await stage.gradients();
    },
  );
  return gradients;
}

/** Registers the tests of a device. */
export function testPytorch(name: DeviceName, test: RegisterTest = Deno.test): void {
  test(`the gradient of every GPT-2 parameter on ${name} is PyTorch's within 2e-6`, async () => {
    assertClose(
      await gptGradients(name, "cheap", "whole"),
      await readFloats("gpt2/gradients.safetensors"),
    );
  });

  test(`30 steps of AdamW on ${name} have PyTorch's losses within 1e-5`, async () => {
    const { config, float32: expected } = await readJson("gpt2/expected.json");
    const program = await gptProgram("cheap"), batches = await gptBatches(config.steps);
    const predictions = config.microBatches * config.microBatch * config.seq;
    const weights = await readFloats("gpt2/weights.safetensors");
    await withStage(name, program, weights, "whole", async (stage) => {
      for (let step = 1; step <= config.steps; step++) {
        let loss = 0;
        stage.zeroGradients();
        for (let m = 0; m < config.microBatches; m++) {
          const fields = batches[(step - 1) * config.microBatches + m]!;
          const { output } = await stage.forward(m, undefined, fields);
          for (const one of output as Float32Array) loss += one / predictions;
          await stage.backward(m, "B", undefined, 1 / predictions);
        }
        const wanted = expected.losses[step - 1];
        assert.ok(Math.abs(loss - wanted) < 1e-5 * wanted, `step ${step}: ${loss}, not ${wanted}`);
        const squares = [...(await stage.gradientSquares()).values()];
        const norm = Math.sqrt(squares.reduce((a, b) => a + b, 0));
        const wantedNorm = expected.gradNorms[step - 1];
        assert.ok(Math.abs(norm - wantedNorm) < 1e-4 * wantedNorm, `step ${step}: norm ${norm}`);
        await stage.optimize(step, config.lr);
      }
    });
  });

  test(`the gradient of every MLP parameter on ${name} is PyTorch's within 2e-6`, async () => {
    const { config, features, labels } = await readJson("mlp/expected.json");
    const { inputs, hidden, classes, microBatch } = config;
    const model = mlp({ inputs, hidden, classes, layers: config.layers }, microBatch);
    const weights = await readFloats("mlp/weights.safetensors");
    await withStage(name, compileModel(model, "none"), weights, "whole", async (stage) => {
      await stage.forward(0, undefined, {
        features: Float32Array.from(features),
        labels: Int32Array.from(labels),
      });
      await stage.backward(0, "B", undefined, 1 / microBatch);
      assertClose(await stage.gradients(), await readFloats("mlp/gradients.safetensors"));
    });
  });
}

/** Registers the test of a device that other kernels for the same gradients have their bits. */
export function testRecomputation(name: DeviceName, test: RegisterTest = Deno.test): void {
  test(`recomputation and the split into I and W change no bit of a gradient on ${name}`, async () => {
    const expected = await gptGradients(name, "none", "whole");
    for (const recompute of RECOMPUTE_POLICIES) {
      for (const kind of ["whole", "split"] as const) {
        const received = await gptGradients(name, recompute, kind);
        for (const [parameter, gradient] of received) {
          const bits = (values: Float32Array) => new Int32Array(values.buffer);
          const wanted = bits(expected.get(parameter)!);
          const differing = bits(gradient).filter((word, i) => word !== wanted[i]).length;
          assert.equal(differing, 0, `${parameter}, recompute ${recompute}, ${kind} backward`);
        }
      }
    }
  });
}
