/** The rules of optimizers, groups of parameters and averages, by hand; rates of one cycle. */

import assert from "node:assert/strict";
import { fromBinary } from "@bufbuild/protobuf";
import {
  ADAMW_DEFAULTS,
  type AdamWOptions,
  compileModel,
  type Layer,
  learningRateAt,
  mlp,
  openReference,
  type OptimizerOptions,
} from "../../../kernels/mod.ts";
import { completeOptimizer, groupOf, openStage } from "../../../kernels/internal.ts";
import { lowerModel } from "../../../kernels/onnx/lower.ts";
import { ModelProtoSchema } from "../../../kernels/onnx/onnx_pb.ts";
import { stepModel } from "../../../kernels/stage/optimizer.ts";
import { ownMemory } from "../own_memory.ts";
import { drawWeights, gradientsOf } from "../stage/stage_runs.ts";

const MODEL = mlp({ inputs: 5, hidden: 4, layers: 1, classes: 3 }, 2);
const [FIRST, ...OTHERS] = MODEL.layers as Layer[];
/** The first layer times a number. */
const SCALED: Layer = {
  ...FIRST!,
  build: (g, x) =>
    g.mul(FIRST!.build(g, x), g.parameter("scale", [], { kind: "constant", value: 0.7 })),
};
const PROGRAM = compileModel({ ...MODEL, layers: [SCALED, ...OTHERS] }, "none");
const BATCH = {
  features: Float32Array.from({ length: 10 }, (_, i) => Math.sin(i)),
  labels: Int32Array.of(2, 0),
};

type Values = ReadonlyMap<string, Float32Array>;

/**
 * Takes two steps; returns the gradients of each, and the state before and after each. Offloaded
 * states are those of a device with separate memory.
 */
async function stepTwice(optimizer: OptimizerOptions, rate: number, offload = false) {
  const reference = await openReference(), states: { weights: Values; moments: Values }[] = [];
  const device = offload ? ownMemory(reference) : reference;
  const stage = await openStage(device, PROGRAM, { optimizer, backward: "whole", offload });
  const weights = drawWeights(PROGRAM);
  const averages = Array.from(weights, ([name, one]) => [`${name}.ema`, one] as const);
  stage.load({ weights, moments: new Map(averages) });
  states.push(await stage.save());
  const gradients: Values[] = [];
  for (const step of [1, 2]) {
    stage.zeroGradients();
    await stage.forward(0, undefined, BATCH);
    await stage.backward(0, "B", undefined, 0.5);
    gradients.push(await gradientsOf([stage]));
    await stage.optimize(step, rate);
    states.push(await stage.save());
  }
  device.close();
  return { gradients, states };
}

function assertNear(found: Float32Array, wanted: number[], what: string): void {
  const off = wanted.map((value, i) => Math.abs(value - found[i]!));
  assert.ok(off.length === found.length && Math.max(...off) < 1e-6, `${what}: ${Math.max(...off)}`);
}

Deno.test("Lion steps by the sign of the moment moved towards the gradient", async () => {
  const lion = completeOptimizer({ kind: "lion", weightDecay: 0.1 });
  assert.deepEqual(lion, { kind: "lion", beta1: 0.9, beta2: 0.99, weightDecay: 0.1 });
  const rate = 0.01, { gradients, states } = await stepTwice(lion, rate);
  for (const { name, shape } of PROGRAM.parameters) {
    for (const [i, all] of gradients.entries()) {
      const g = all.get(name)!, w = states[i]!.weights.get(name)!;
      const m = states[i]!.moments.get(`${name}.exp_avg`)!,
        kept = 1 - rate * (shape.length > 1 ? 0.1 : 0);
      const sign = (k: number) => Math.sign(0.9 * m[k]! + 0.1 * g[k]!);
      const next = Array.from(w, (one, k) => one * kept - rate * sign(k));
      assertNear(states[i + 1]!.weights.get(name)!, next, name);
      const moved = Array.from(m, (one, k) => 0.99 * one + 0.01 * g[k]!);
      assertNear(states[i + 1]!.moments.get(`${name}.exp_avg`)!, moved, `${name}.exp_avg`);
    }
  }
});

Deno.test("each value that a step overwrites has been read by then, in any order of operations", () => {
  const shapes = { stored: [[2, 3]], states: [[2, 3]] }, held = { adamw: 2, sgd: 1, lion: 1 };
  for (const [kind, count] of Object.entries({ ...held, adafactor: 2 })) {
    const moments = kind === "adafactor" ? [[[2]], [[3]]] : Array(count).fill([[2, 3]]);
    const options = completeOptimizer({ kind } as { kind: OptimizerOptions["kind"] });
    for (const isMixed of [false, true]) {
      const model = lowerModel(stepModel({ ...shapes, moments }, options, isMixed));
      const { node, output } = fromBinary(ModelProtoSchema, model).graph!;
      const maker = new Map(node.flatMap((one) => one.output.map((name) => [name, one])));
      const before = (name: string): (typeof node)[number][] => {
        const one = maker.get(name);
        return one ? [one, ...one.input.flatMap(before)] : [];
      };
      const written = output.map(({ name = "" }) => name).filter((name) => /^(w|m\d)'/.test(name));
      assert.equal(written.length, 1 + count);
      for (const name of written) {
        const readers = node.filter(({ input }) => input.includes(name.replace("'", "")));
        const earlier = new Set(before(name));
        const areEarlier = readers.length > 0 && readers.every((one) => earlier.has(one));
        assert.ok(areEarlier, `${kind} ${name}`);
      }
    }
  }
});

/** The settings of PyTorch's Adafactor; `mean` has the means of squares. */
interface Factored {
  readonly w: Float32Array;
  readonly g: Float32Array;
  readonly mean: readonly (Float32Array | undefined)[];
  readonly step: number;
  readonly shape: readonly number[];
}

/** PyTorch's Adafactor of one tensor, in f64. */
function adafactor(
  { w, g, mean: [rows, columns], step, shape: [height = 1, width = 1] }: Factored,
  rate: number,
) {
  const rms = (values: ArrayLike<number>) =>
    Math.sqrt(Array.from(values).reduce((sum, one) => sum + one * one, 0) / values.length);
  const mix = step ** -0.8, moved = (mean: number, next: number) => mean + mix * (next - mean);
  const isFactored = columns !== undefined;
  const meanOf = (count: number, at: (i: number) => number) =>
    Array.from({ length: count }, (_, i) => g[at(i)]! ** 2).reduce((a, b) => a + b) / count;
  const next = [
    Array.from(
      rows!,
      (one, i) => moved(one, isFactored ? meanOf(width, (j) => i * width + j) : g[i]! ** 2),
    ),
    Array.from(columns ?? [], (one, j) => moved(one, meanOf(height, (i) => i * width + j))),
  ] as const;
  const [tall, wide] = next, all = tall.reduce((a, b) => a + b) / tall.length;
  const update = Array.from(
    g,
    (one, i) =>
      one /
      Math.sqrt(isFactored ? tall[Math.floor(i / width)]! * wide[i % width]! / all : tall[i]!),
  );
  const factor = Math.min(rate, step ** -0.5) * Math.max(1e-3, rms(w)) /
    Math.max(1, rms(update) / 0.9);
  const kept = 1 - rate * (isFactored ? 0.1 : 0);
  return { next, weights: Array.from(w, (one, i) => one * kept - factor * update[i]!) };
}

Deno.test("Adafactor keeps means of rows and columns, and bounds updates", async () => {
  const options = completeOptimizer({ kind: "adafactor", weightDecay: 0.1, clipThreshold: 0.9 });
  const rate = 0.8, { gradients, states } = await stepTwice(options, rate);
  for (const { name, shape } of PROGRAM.parameters) {
    const moments = shape.length > 1 ? ["row_var", "col_var"] : ["variance"];
    for (const [i, all] of gradients.entries()) {
      const read = (at: number) =>
        moments.map((moment) => states[at]!.moments.get(`${name}.${moment}`));
      const w = states[i]!.weights.get(name)!, g = all.get(name)!;
      const { next, weights } = adafactor({ w, g, shape, mean: read(i), step: i + 1 }, rate);
      assertNear(states[i + 1]!.weights.get(name)!, weights, name);
      for (const [k, found] of read(i + 1).entries()) assertNear(found!, next[k]!, `${name}, ${k}`);
    }
  }
  assert.equal(states[0]!.moments.size, 3 + 4, "means of two biases, a number and two weights");
});

Deno.test("a group has its rate and its decay, also of biases, and the first that matches counts", async () => {
  const groups: AdamWOptions["groups"] = [
    { match: "*.0.bias", rate: 3, weightDecay: 0.5 },
    { match: "*bias", rate: 0 },
    { match: "*.0.*", weightDecay: 0 },
  ];
  const sgd = { kind: "sgd", momentum: 0, weightDecay: 0.2 } as const, rate = 0.1;
  const { gradients, states } = await stepTwice({ ...sgd, groups }, rate);
  const settings = new Map<string, readonly [factor: number, decay: number]>();
  for (const { name, shape } of PROGRAM.parameters) {
    const index = groupOf({ ...sgd, groups }, name),
      { rate: factor = 1, weightDecay } = groups[index ?? -1] ?? {};
    const [f, d] = [factor, weightDecay ?? (shape.length > 1 ? 0.2 : 0)];
    settings.set(name, [f, d]);
    const g = gradients[1]!.get(name)!, w = states[1]!.weights.get(name)!;
    const next = Array.from(w, (one, k) => one - rate * f * (g[k]! + d * one));
    assertNear(states[2]!.weights.get(name)!, next, name);
  }
  assert.deepEqual([...settings.values()], [[1, 0], [3, 0.5], [1, 0], [1, 0.2], [0, 0]]);
});

Deno.test("an average moves by 1 − d of its distance, and changes no weight", async () => {
  const plain = await stepTwice(ADAMW_DEFAULTS, 0.1);
  const averaged = { ...ADAMW_DEFAULTS, ema: 0.75 }, { states } = await stepTwice(averaged, 0.1);
  const offloaded = await stepTwice(averaged, 0.1, true);
  assert.deepEqual(offloaded.states, states);
  for (const { name } of PROGRAM.parameters) {
    assert.deepEqual(states[2]!.weights.get(name), plain.states[2]!.weights.get(name));
    let average = Array.from(states[0]!.weights.get(name)!);
    for (const { weights, moments } of states.slice(1)) {
      average = average.map((one, k) => one + 0.25 * (weights.get(name)![k]! - one));
      assertNear(moments.get(`${name}.ema`)!, average, name);
    }
  }
});

Deno.test("one cycle has the rates of PyTorch's OneCycleLR", () => {
  const ratesOf = (more: { warmup: number; minRate?: number }) => {
    const cycle = { rate: 1, schedule: "one-cycle", steps: 10, ...more } as const;
    return Array.from({ length: 10 }, (_, i) => learningRateAt(cycle, i + 1));
  };
  const near = (found: number[], wanted: number[]) =>
    wanted.forEach((rate, i) => assert.ok(Math.abs(rate - found[i]!) < 1e-12, `step ${i + 1}`));
  // Of PyTorch 1.13: OneCycleLR(max_lr=1, total_steps=10), then pct_start=0.4, final_div_factor=0.4.
  near(ratesOf({ warmup: 0 }), [
    ...[0.040000000000000036, 0.52, 1.0, 0.9504846320134737, 0.8117456539497631],
    ...[0.6112620219362893, 0.38874197806371075, 0.18825834605023697, 0.049519367986526286, 4e-06],
  ]);
  near(ratesOf({ warmup: 4, minRate: 0.1 }), [
    ...[0.040000000000000036, 0.28, 0.7599999999999999, 1.0, 0.9397114317029974],
    ...[0.775, 0.55, 0.3250000000000001, 0.16028856829700258, 0.09999999999999999],
  ]);
});
