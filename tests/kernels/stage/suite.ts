/** Tests of a stage and its optimizer on any device, which is open while they run. */

import assert from "node:assert/strict";
import {
  ADAMW_DEFAULTS,
  type Batch,
  compileModel,
  type Device,
  gpt2,
  type Model,
  type ModelProgram,
  type Precision,
  type Recompute,
  type TokenBatch,
} from "../../../kernels/mod.ts";
import { createParameters } from "../../../kernels/stage/parameters.ts";
import { cutIntoStages } from "../../../kernels/compile/layout.ts";
import { F16_MAX } from "../../../kernels/precision.ts";
import { openGradientNorms } from "../../../kernels/stage/gradients.ts";
import { openOptimizer } from "../../../kernels/stage/optimizer.ts";
import {
  type AdamWOptions,
  completeOptimizer,
  SGD_DEFAULTS,
  type SgdOptions,
  type StageOptions,
} from "../../../kernels/stage/options.ts";
import { planMemory, totalBytes } from "../../../kernels/stage/memory.ts";
import { splitBatch } from "../../../kernels/batch.ts";
import { substream } from "../../../kernels/random.ts";
import { readFlat, writeFlat } from "../../../kernels/stage/parameters.ts";
import { IS_DEEP } from "../../depth.ts";
import type { RegisterTest } from "../../devices.ts";
import { assertClose } from "./pytorch.ts";
import {
  assertSameBits,
  backward,
  drawTokens,
  drawWeights,
  forward,
  gradientsOf,
  openStages,
  train,
} from "./stage_runs.ts";

/** Returns the open device. */
export type OpenDevice = () => Device;

/** Six layers, in micro-batches of two samples. */
export const CONFIG = { layers: 2, hidden: 16, heads: 2, seq: 8, vocab: 32 };
/** Samples of a micro-batch. */
export const SAMPLES = 2;
/** The model of {@linkcode CONFIG}. */
export const MODEL = gpt2(CONFIG, SAMPLES);
/** One layer a stage: embedding, two blocks of attention and mlp, head. */
export const STAGES = 6;
/** Micro-batches of {@linkcode MODEL}. */
export const BATCHES = drawTokens(4, SAMPLES * CONFIG.seq, CONFIG.vocab);

/** SGD that decays. */
export const SGD: SgdOptions = { kind: "sgd", momentum: 0.9, weightDecay: 0.1 };
const ADAMW: AdamWOptions = { ...ADAMW_DEFAULTS, beta2: 0.95, weightDecay: 0.1 };

/** The whole stages 0, 3 and 4 (block 1), and weights here and there. */
export const isFrozen = (name: string) =>
  /^transformer\.(w.e|h\.1)\.|c_fc\.weight|ln_f\.bias/.test(name);

/** Registers the test of parameters that are not trained. */
export function testFrozen(name: string, open: OpenDevice, test: RegisterTest = Deno.test): void {
  test(`frozen parameters on ${name} stay as they are and change no other gradient`, async () => {
    const unfrozen = compileModel(MODEL, "cheap"), first = drawWeights(unfrozen);
    const all = await train(await openStages(open(), unfrozen, STAGES), BATCHES, "whole");
    const expected = new Map([...all].filter(([key]) => !isFrozen(key)));
    const program = compileModel(MODEL, "cheap", { frozen: isFrozen });
    const ways = [{ backward: "whole" }, { backward: "split", recomputeInterval: 1 }] as const;
    for (const options of name === "webgpu" && !IS_DEEP ? ways.slice(1) : ways) {
      const stages = await openStages(open(), program, STAGES, options);
      const received = await train(stages, BATCHES, options.backward);
      assertSameBits(received, expected, JSON.stringify(options));
      for (const stage of stages) {
        await stage.optimize(1, 0.01);
        const { weights, moments } = await stage.save();
        for (const [parameter, values] of weights) {
          const wanted = first.get(parameter)!;
          if (isFrozen(parameter)) assert.deepEqual(values, wanted, `${parameter} must stay`);
          else assert.notDeepEqual(values, wanted, `${parameter} must be trained`);
          assert.equal(moments.has(`${parameter}.exp_avg`), !isFrozen(parameter));
        }
      }
    }
  });
}

/** Losses, gradients, weights and moments of two steps, the second perhaps from a saved state. */
async function twoSteps(
  device: Device,
  precision: Precision,
  options: Partial<StageOptions>,
  isSaved: boolean,
) {
  const program = compileModel(MODEL, "none", { precision });
  const results = new Map<string, Float32Array>();
  let [stage] = await openStages(device, program, 1, options);
  for (const step of [1, 2]) {
    stage!.zeroGradients();
    for (const [key, values] of await train([stage!], BATCHES.slice(2), "whole")) {
      results.set(`${step} ${key}`, values);
    }
    await stage!.optimize(step, 0.01, 0.5);
    if (step === 2 || !isSaved) continue;
    const state = await stage!.save();
    [stage] = await openStages(device, program, 1, options);
    stage!.load(state);
  }
  const { weights, moments } = await stage!.save();
  return new Map([...results, ...weights, ...moments]);
}

/** Tokens of the short sample. */
export const SHORT = 5;
const isPadding = (i: number) => i >= SHORT && i < CONFIG.seq;
/** Two samples of all tokens. */
export const full = BATCHES[0]!;
/** The first of them has `SHORT` tokens and is filled up. */
export const padded: TokenBatch = {
  ids: full.ids!.map((id, i) => isPadding(i) ? 0 : id),
  targets: full.targets!.map((id, i) => isPadding(i) ? -1 : id),
};

/** The losses and gradients of one micro-batch. */
async function computeOne(
  device: Device,
  model: Model,
  fields: Batch,
  weights: ReadonlyMap<string, Float32Array>,
) {
  const stages = await openStages(device, compileModel(model, "cheap"), 1);
  stages[0]!.load({ weights, moments: new Map() });
  const losses = await forward(stages, 0, fields);
  await backward(stages, 0, "B", 0.25);
  return { losses, gradients: await gradientsOf(stages) };
}

/** Registers the tests of micro-batches of different lengths. */
export function testLengths(name: string, open: OpenDevice, test: RegisterTest = Deno.test): void {
  const weights = drawWeights(compileModel(MODEL, "none"));

  test(`a padded sample has the loss and gradient of a short one on ${name}`, async () => {
    const wpe = "transformer.wpe.weight", rows = SHORT * CONFIG.hidden;
    const cut = new Map(weights).set(wpe, weights.get(wpe)!.slice(0, rows));
    const [first, second] = splitBatch(padded, 2) as [Batch, Batch];
    const [ids, targets] = [first.ids!, first.targets!].map((one) => one.subarray(0, SHORT));
    const head = { ids: ids!, targets: targets! };
    const received = await computeOne(open(), MODEL, padded, weights);
    const short = await computeOne(open(), gpt2({ ...CONFIG, seq: SHORT }, 1), head, cut);
    const long = await computeOne(open(), gpt2(CONFIG, 1), second, weights);
    const losses = Float32Array.of(short.losses[0]!, long.losses[0]!);
    assertClose(new Map([["", received.losses]]), new Map([["", losses]]), 1e-5, "losses");
    const sums = Array.from(long.gradients, ([key, values]) => {
      const own = short.gradients.get(key)!;
      return [key, values.map((value, i) => value + (own[i] ?? 0))] as const;
    });
    assertClose(received.gradients, new Map(sums), 2e-5);
  });

  test(`a micro-batch without predictions on ${name} has no loss and no gradient`, async () => {
    const fields = { ids: full.ids!, targets: full.targets!.map(() => -1) };
    const { losses, gradients } = await computeOne(open(), MODEL, fields, weights);
    for (const [key, values] of [["losses", losses] as const, ...gradients]) {
      assert.ok(values.every((value) => value === 0), key);
    }
  });
}

/** Trains two stages; planned, counted and allocated bytes must be equal. */
export async function assertPlanned(
  device: Device,
  model: ModelProgram,
  way: Partial<StageOptions>,
  what: string,
): Promise<void> {
  const options = { optimizer: ADAMW_DEFAULTS, backward: "whole", ...way } as const;
  const { hasFreeViews, allocatedBytes: before } = device;
  const stages = await openStages(device, model, 2, options);
  // Two micro-batches in flight, one between I and W, a step, and a third micro-batch.
  const slots = { slices: [2], backwards: [1], contexts: 0 };
  const plan = { ...options, hasFreeViews, slots };
  const planned = cutIntoStages(model, 2).map((program) => planMemory(program, plan));
  for (const m of [0, 1]) await forward(stages, m, BATCHES[m]!);
  const kinds = { whole: ["B"], split: ["I", "W"], never: [] } as const,
    own = kinds[options.backward];
  for (const m of [0, 1]) for (const kind of own) await backward(stages, m, kind);
  for (const stage of stages) {
    if (options.backward === "never") [0, 1].forEach((m) => stage.drop(m));
    await stage.checkGradients(2);
    await stage.gradientSquares();
    await stage.optimize(1, 1e-3);
  }
  await forward(stages, 2, BATCHES[2]!);
  assert.deepEqual(stages.map(({ memory }) => memory), planned, what);
  const total = planned.reduce((sum, memory) => sum + totalBytes(memory.device), 0);
  assert.equal(device.allocatedBytes - before, total, what);
}

/** Ways to train, on a GPU. */
const WAYS: readonly (readonly [Recompute, { dropout?: number }, Partial<StageOptions>])[] = [
  ["cheap", { dropout: 0.1 }, {}],
  ["none", {}, { addends: 3 }],
  ["full", {}, { optimizer: SGD, offload: true }],
  ["none", {}, { backward: "split", recomputeInterval: 2 }],
  ["none", {}, { optimizer: completeOptimizer({ kind: "adafactor", ema: 0.5 }) }],
];

/** Registers the test of the bytes of a stage: a device's kernels must take none when they are bound. */
export function testPlannedMemory(name: string, open: OpenDevice, test: RegisterTest): void {
  test(`every byte of a stage on ${name} is planned, and binding takes none`, async () => {
    for (const [recompute, config, options] of WAYS) {
      const program = compileModel(gpt2({ ...CONFIG, ...config }, SAMPLES), recompute);
      await assertPlanned(open(), program, options, JSON.stringify([recompute, config, options]));
    }
  });
}

/** Optimizers that step each number alone. */
type FlatOptimizer = AdamWOptions | SgdOptions;

/** PyTorch's rule for one number, in f64. */
function update(options: FlatOptimizer, step: number, rate: number, decay: number) {
  return (w: number, g: number, moments: number[]): number => {
    if (options.kind === "sgd") {
      moments[0] = options.momentum * moments[0]! + g + decay * w;
      return w - rate * moments[0]!;
    }
    const { beta1, beta2 } = options;
    moments[0] = beta1 * moments[0]! + (1 - beta1) * g;
    moments[1] = beta2 * moments[1]! + (1 - beta2) * g * g;
    const first = moments[0]! / (1 - beta1 ** step), second = moments[1]! / (1 - beta2 ** step);
    return w * (1 - rate * decay) - rate * first / (Math.sqrt(second) + options.epsilon);
  };
}

/** Steps of the optimizer whose gradients have another factor each, as clipping and loss scales give. */
async function assertFollowsRule(device: Device, options: FlatOptimizer, precision: Precision) {
  const shapes = { weight: [40, 50], bias: [50] };
  const specs = Object.entries(shapes).map(([name, shape]) => ({ name, shape }));
  const store = createParameters(device, specs, { optimizer: options, bucketSize: 512, precision });
  const optimizer = await openOptimizer(device, store, options), generator = substream(3, "steps");
  const isHalf = precision === "fp16", states = store.master ?? store.versions[0]!;
  const draw = (length: number) =>
    Float32Array.from({ length }, () => Math.f16round((generator.next() | 0) / 2 ** 31));
  const lengths = store.parameters.map(({ shape }) => shape.reduce((a, b) => a * b, 1));
  const expected = lengths.map((length) =>
    Array.from(draw(length), (value) => ({ value, moments: [0, 0] }))
  );
  for (const [i, { name, weights }] of store.parameters.entries()) {
    const values = Float32Array.from(expected[i]!, ({ value }) => value);
    device.write(weights[0]!, isHalf ? new Float16Array(values) : values);
    if (store.master) writeFlat(device, store.master, store.ranges.get(name)!.offset, values);
  }
  for (let step = 1; step <= 5; step++) {
    const scale = 2 ** (step - 3), rate = 0.01 * step;
    for (const [i, { shape, gradient }] of store.parameters.entries()) {
      const gradients = draw(lengths[i]!);
      device.write(gradient, isHalf ? new Float16Array(gradients) : gradients);
      const rule = update(options, step, rate, shape.length >= 2 ? options.weightDecay : 0);
      expected[i]!.forEach((one, k) =>
        one.value = rule(one.value, scale * gradients[k]!, one.moments)
      );
    }
    optimizer.begin(step, rate, scale);
    for (const b of store.buckets.keys()) await optimizer.stepBucket(b);
  }
  for (const [i, { name, weights }] of store.parameters.entries()) {
    const { offset, length } = store.ranges.get(name)!, received = new Float32Array(length);
    await readFlat(device, states, offset, received);
    const stored = await device.read<Float32Array>(weights[0]!);
    expected[i]!.forEach(({ value }, k) => {
      const what = `${name}[${k}]: ${received[k]}, not ${value}`;
      assert.ok(Math.abs(received[k]! - value) < 4e-6, what);
      assert.equal(stored[k], isHalf ? Math.f16round(received[k]!) : received[k], what);
    });
  }
}

/** Norms and votes of gradients that can be set one by one, by default of two FP16 pieces and a vector. */
export async function openNorms(
  device: Device,
  precision: Precision,
  [weight, bias]: readonly (readonly number[])[] = [[700, 100], [5]],
) {
  const specs = [{ name: "weight", shape: weight! }, { name: "bias", shape: bias! }];
  const store = createParameters(device, specs, { optimizer: SGD_DEFAULTS, precision });
  const one = (value: number) =>
    precision === "fp16" ? Float16Array.of(value) : Float32Array.of(value);
  const set = (parameter: number, at: number, value: number) =>
    device.write(device.view(store.parameters[parameter]!.gradient, at, [1]), one(value));
  return { ...await openGradientNorms(device, store), set };
}

/** Registers the tests of a step in a precision: its vote, its rule, and states that are saved or on the host. */
export function testSteps(
  name: string,
  open: OpenDevice,
  precision: Precision,
  test: RegisterTest = Deno.test,
): void {
  for (const options of [ADAMW, SGD]) {
    test(`${options.kind} on ${name} follows PyTorch's rule in ${precision} and decays matrices only`, () =>
      assertFollowsRule(open(), options, precision));
  }

  test(`a saved and an offloaded ${precision} stage on ${name} continue with the same bits`, async () => {
    const optimizer = name === "reference" ? SGD : ADAMW;
    const expected = await twoSteps(open(), precision, { optimizer }, false);
    // 1000 is no divisor of the stage: its last buckets are shorter than the others.
    for (const options of [{}, { offload: true, bucketSize: 1000 }]) {
      const received = await twoSteps(open(), precision, { ...options, optimizer }, true);
      assertSameBits(received, expected, `${optimizer.kind}, ${JSON.stringify(options)}`);
    }
  });

  test(`one ${precision} gradient on ${name} that is not finite is enough to refuse a step, and sums of squares are exact where f32 is`, async () => {
    const { areSafe, squares, set } = await openNorms(open(), precision);
    const places = [[0, 0, NaN], [0, 3, -Infinity], [0, 69_999, NaN], [1, 4, Infinity]] as const;
    for (const [parameter, at, value] of places) {
      set(parameter, at, value);
      assert.equal(await areSafe(1), false, `${value} at ${at}`);
      set(parameter, at, 0);
      assert.equal(await areSafe(1), true);
    }
    for (const at of [0, 65_535, 65_536, 69_999]) set(0, at, 2);
    set(1, 2, -3);
    assert.deepEqual(await squares(), new Map([["weight", 16], ["bias", 9]]));
  });

  /** Gradients, each with the numbers of copies that are safe and unsafe. */
  const limits = precision !== "fp16" ? [[1e18, 10, 14], [2e19, 0, 1]] : [
    ...[[-F16_MAX, 1, 2], [F16_MAX / 2, 2, 3], [6536, 10, 11], [6540, 9, 10]],
    ...[[1911, 34, 35], [1912, 33, 34]],
  ];
  test(`copies of a ${precision} gradient on ${name} are refused where a sum may overflow`, async () => {
    const { areSafe, set } = await openNorms(open(), precision);
    for (const [gradient, safe, unsafe] of limits) {
      set(0, 65_537, gradient!);
      if (safe! > 0) assert.equal(await areSafe(safe!), true, `${safe} copies of ${gradient}`);
      assert.equal(await areSafe(unsafe!), false, `${unsafe} copies of ${gradient}`);
    }
  });
}
