/**
 * Runs of a model's stages on one device, for tests that compare bits.
 *
 * @module
 */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import {
  ADAMW_DEFAULTS,
  type Batch,
  type Device,
  type Kernel,
  type ModelProgram,
  openDevice,
  type TokenBatch,
} from "../../../kernels/mod.ts";
import type { BackwardKind } from "../../../kernels/stage/in_flight.ts";
import { cutIntoStages } from "../../../kernels/compile/layout.ts";
import type { DropoutKey } from "../../../kernels/layers/dropout.ts";
import { initialValues } from "../../../kernels/layers/layer.ts";
import { keyed } from "../../../kernels/stage/activations.ts";
import type { KeyedArrays } from "../../../kernels/devices/device.ts";
import { openStage, type Stage } from "../../../kernels/stage/stage.ts";
import type { StageOptions } from "../../../kernels/stage/options.ts";
import { substream } from "../../../kernels/random.ts";
import { withAliases } from "../../../kernels/stage/state.ts";
import { changedDevice } from "../own_memory.ts";

/** First weights of a model, or larger ones: with these, logits depend on every token before. */
export function drawWeights({ parameters }: Pick<ModelProgram, "parameters">, deviation?: number) {
  const own = deviation ? { initializer: { kind: "normal", deviation } as const } : {};
  const values = parameters.map(({ name, spec }) =>
    [name, initialValues({ ...spec, ...own }, name, 1)] as const
  );
  return new Map(values);
}

/** Micro-batches of tokens drawn from a seed. */
export function drawTokens(count: number, length: number, vocab: number): TokenBatch[] {
  const generator = substream(1, "test tokens");
  const draw = () => Int32Array.from({ length }, () => (generator.next() >>> 0) % vocab);
  return Array.from({ length: count }, () => ({ ids: draw(), targets: draw() }));
}

/** A device with another way to compile. */
export function compilingBy(device: Device, compile: Device["compile"]): Device {
  return changedDevice(device, { compile });
}

/** A device that compiles equal models once, for tests that open the same stages again and again. */
export function compilingOnce(device: Device): Device {
  const kernels = new Map<string, Promise<Kernel>>();
  return compilingBy(device, (model) => {
    const hash = createHash("sha256").update(model).digest("hex");
    // Others still use a kernel that one has closed.
    const open = async () => ({ ...await device.compile(model), close() {} });
    const kernel = kernels.get(hash) ?? open();
    kernels.set(hash, kernel);
    return kernel;
  });
}

/**
 * Devices that the tests of a file share, open from the first to the last: each compiles equal models
 * once.
 */
export function sharedDevices(names: readonly string[]): (name: string) => Device {
  const devices = new Map<string, Device>();
  Deno.test.beforeAll(async () => {
    for (const name of names) devices.set(name, compilingOnce(await openDevice(name)));
  });
  Deno.test.afterAll(() => devices.forEach((device) => device.close()));
  return (name) => devices.get(name)!;
}

/** Opens the stages of a model with its first weights. */
export async function openStages(
  device: Device,
  model: ModelProgram,
  count: number,
  options: Partial<StageOptions> = {},
): Promise<Stage[]> {
  const state = withAliases({ weights: drawWeights(model), moments: new Map() }, model.ties);
  const all = { optimizer: ADAMW_DEFAULTS, backward: "whole", ...options } as const;
  return await Promise.all(
    cutIntoStages(model, count).map(async (program) => {
      const stage = await openStage(device, program, all);
      stage.load(state);
      return stage;
    }),
  );
}

/** F of one micro-batch through all stages; the losses. */
export async function forward(
  stages: readonly Stage[],
  m: number,
  fields: Batch,
  dropout?: DropoutKey,
) {
  // By key: named values are kept for the layers that take them.
  let passed: KeyedArrays = {};
  for (const stage of stages) {
    const { output } = await stage.forward(m, passed, fields, undefined, 0, dropout);
    passed = { ...passed, ...keyed(output) };
  }
  return passed.x as Float32Array<ArrayBuffer>;
}

/** One kind of backward of one micro-batch through all stages. */
export async function backward(stages: readonly Stage[], m: number, kind: BackwardKind, scale = 1) {
  let gradients: KeyedArrays = {};
  for (const stage of stages.toReversed()) {
    const found = await stage.backward(m, kind, gradients, scale);
    gradients = { ...gradients, ...found && keyed(found) };
  }
}

/** The gradients of all stages. */
export async function gradientsOf(stages: readonly Stage[]): Promise<Map<string, Float32Array>> {
  const gradients = new Map<string, Float32Array>();
  for (const stage of stages) {
    for (const name of (await stage.gradientSquares()).keys()) {
      const { offset, length } = stage.rangeOf(name);
      gradients.set(name, new Float32Array(await stage.readGradients(offset, length)));
    }
  }
  return gradients;
}

/** Maximum number of micro-batches of {@linkcode train} in flight. */
export const inFlight = 3;

/**
 * Losses and gradients of micro-batches of which up to three are in flight, with W as late as
 * possible.
 */
export async function train(
  stages: readonly Stage[],
  batches: readonly Batch[],
  kind: "whole" | "split",
  dropout?: DropoutKey,
): Promise<Map<string, Float32Array>> {
  const results = new Map<string, Float32Array>();
  for (const [m, fields] of batches.entries()) {
    const key = dropout && { ...dropout, microBatch: m };
    results.set(`loss ${m}`, await forward(stages, m, fields, key));
    if (m + 1 < inFlight) continue;
    await backward(stages, m + 1 - inFlight, kind === "whole" ? "B" : "I");
  }
  for (let m = Math.max(0, batches.length + 1 - inFlight); m < batches.length; m++) {
    await backward(stages, m, kind === "whole" ? "B" : "I");
  }
  if (kind === "split") { for (const m of batches.keys()) await backward(stages, m, "W"); }
  for (const [name, gradient] of await gradientsOf(stages)) results.set(name, gradient);
  return results;
}

/** Both must have the same names, and every array the same bits. */
export function assertSameBits(
  received: ReadonlyMap<string, Float32Array>,
  expected: ReadonlyMap<string, Float32Array>,
  what: string,
): void {
  assert.deepEqual([...received.keys()].sort(), [...expected.keys()].sort(), what);
  const words = (values: Float32Array) =>
    new Int32Array(values.buffer, values.byteOffset, values.length);
  for (const [name, values] of received) {
    assert.deepEqual(words(values), words(expected.get(name)!), `${what}: ${name}`);
  }
}
