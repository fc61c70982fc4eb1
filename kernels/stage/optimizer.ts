/**
 * AdamW, Lion, Adafactor and SGD with momentum, run on the device bucket by bucket, in place.
 *
 * [Note: one step for many tensors] Where a bucket is several tensors, a run joins them, steps all of
 * their elements together, and splits the result: a GPU takes about 10 µs for an operation of any small
 * size, and a step has a dozen operations. Each element has the bits of a step of its tensor alone.
 *
 * @module
 */

import type { Device, Kernel, Run, Tensor } from "../devices/device.ts";
import { Graph } from "../ops/graph.ts";
import { elementCount, type Ints } from "../graph/shapes.ts";
import { TROUPE, type Value } from "../graph/value.ts";
import { encodeGraph } from "../onnx/encode.ts";
import {
  type AdafactorOptions,
  type AdamWOptions,
  type OptimizerOptions,
  type SgdOptions,
  stateCount,
} from "./options.ts";
import {
  type Bucket,
  type FlatRange,
  type FlatTensor,
  type ParameterStore,
  piecesOf,
  type ShapedRange,
  viewFlat,
} from "./parameters.ts";

/** Inputs of a step: weights, gradients and their factor, moments of a bucket, and scalars. */
interface StepInputs {
  readonly w: Value;
  readonly d: Value;
  readonly scale: Value;
  readonly moments: readonly Value[];
  readonly scalar: (name: string) => Value;
}

/** The weights and moments after a step. */
type StepRule = (g: Graph, inputs: StepInputs) => { weight: Value; moments: readonly Value[] };

/**
 * p ← p·decay − lrT·m/(√v + epsT), with the corrections of the moments' bias folded into the
 * scalars: lrT = η·√(1−β₂ᵗ)/(1−β₁ᵗ), epsT = ε·√(1−β₂ᵗ), decay = 1 − η·λ.
 */
const adamw = ({ beta1, beta2 }: AdamWOptions): StepRule => (g, inputs) => {
  const { w, d, scale, moments, scalar } = inputs;
  const scalars = [scale, ...["decay", "rate", "epsilon"].map(scalar)];
  // Attributes are rounded to f32, where 1 − β of the rounded β would differ.
  const attributes = {
    beta1: { float: beta1 },
    rest1: { float: 1 - beta1 },
    beta2: { float: beta2 },
    rest2: { float: 1 - beta2 },
  };
  const shapes = [w, ...moments].map(({ shape }) => shape);
  const next = g.node("AdamW", [w, d, ...moments, ...scalars], shapes, attributes, TROUPE);
  const [weight, ...own] = next as [Value, Value, Value];
  return { weight, moments: own };
};

const sgd = ({ momentum }: SgdOptions): StepRule => (g, { w, d, scale, moments: [v], scalar }) => {
  const gradient = g.add(g.mul(d, scale), g.mul(w, scalar("decay")));
  const velocity = g.add(g.mul(v!, g.scalar(momentum)), gradient);
  return { weight: g.sub(w, g.mul(velocity, scalar("rate"))), moments: [velocity] };
};

/** The direction has the sign of the moment moved towards the gradient; the moment moves by 1 − β₂. */
const lion = ({ beta1, beta2 }: Pick<AdamWOptions, "beta1" | "beta2">): StepRule => (g, inputs) => {
  const { w, d, scale, moments: [m], scalar } = inputs, gradient = g.mul(d, scale);
  const apart = g.sub(m!, gradient); // the only reader of the moment, which its next value overwrites
  const moved = (beta: number) => g.add(g.mul(apart, g.scalar(beta)), gradient);
  const change = g.mul(g.sign(moved(beta1)), scalar("rate"));
  return { weight: g.sub(g.mul(w, scalar("decay")), change), moments: [moved(beta2)] };
};

/** PyTorch's smallest mean of squared gradients, of f32. */
const LEAST_SQUARE = 2 ** -23;

/** Adafactor of a whole parameter. */
const adafactor = ({ epsilon, clipThreshold }: AdafactorOptions): StepRule => (g, inputs) => {
  const { w, d, scale, moments: [rows, columns], scalar } = inputs, { shape } = w;
  const gradient = g.mul(d, scale), squares = g.mul(gradient, gradient);
  const moved = (mean: Value, next: Value) => g.add(mean, g.mul(g.sub(next, mean), scalar("mix")));
  const count = elementCount(shape);
  const rms = (x: Value) => g.sqrt(g.mul(g.sumOfSquares(x), g.scalar(1 / count)));
  // A copy with a row of zeros: then a GPU may write the new weights over the old ones.
  const rowed = shape.length === 0 ? g.reshape(w, [1]) : w;
  const copied = g.concat([rowed, g.expand(g.scalar(0), [1, ...shape.slice(1)])], 0);
  const next = [moved(rows!, columns ? g.mean(squares, [-1], false) : squares)];
  let mean = next[0]!;
  if (columns) {
    next.push(moved(columns, g.mean(squares, [-2], false)));
    const row = g.reshape(next[0]!, [...shape.slice(0, -1), 1]);
    const column = g.reshape(next[1]!, [...shape.slice(0, -2), 1, shape.at(-1)!]);
    mean = g.div(g.mul(row, column), g.maximum(g.mean(row, [-2], true), g.scalar(LEAST_SQUARE)));
  }
  const root = g.sqrt(g.maximum(mean, g.scalar(LEAST_SQUARE ** 2))), update = g.div(gradient, root);
  const rate = g.mul(scalar("rate"), g.maximum(rms(copied), g.scalar(epsilon)));
  const clip = g.maximum(g.mul(rms(update), g.scalar(1 / clipThreshold)), g.scalar(1));
  const change = g.mul(update, g.div(rate, clip));
  return { weight: g.sub(g.mul(w, scalar("decay")), change), moments: next };
};

const RULES = { adamw, sgd, lion, adafactor } as const;

/** Encodes one step of averages of the weights: e ← e + (1 − d)·(w − e), with the factor as `rest`. */
function averageModel({ stored, states }: StepShape, isMixed: boolean): Uint8Array {
  const g = new Graph(), rest = g.input("rest", []);
  const inputs = (array: string, shapes: readonly Ints[]) =>
    namesOf(array, shapes).map((name, i) => g.input(name, shapes[i]!));
  const weights = inputs("w", isMixed ? states : stored), averages = inputs("e", states);
  const joined = states.length < weights.length ? [g.concat(weights, 0)] : weights;
  const moved = namesOf("e'", states).map((name, i) => {
    const e = averages[i]!;
    return [name, g.add(e, g.mul(g.sub(joined[i]!, e), rest))];
  });
  return encodeGraph(g, Object.fromEntries(moved));
}

/** The shapes of the tensors that one run steps. */
export interface StepShape {
  /** Weights and gradients as the models read them. */
  readonly stored: readonly Ints[];
  /** Master and averages; one tensor where they are on the host. */
  readonly states: readonly Ints[];
  /** Each moment but the average. */
  readonly moments: readonly (readonly Ints[])[];
}

/** Names the tensors of an array: `w`, or `w.0`, `w.1` and so on. */
const namesOf = (array: string, { length }: readonly unknown[]): string[] =>
  Array.from({ length }, (_, i) => length === 1 ? array : `${array}.${i}`);

/**
 * Encodes one step. With FP16 gradients it also returns the FP16 weights, and the widened and scaled
 * gradients: so their memory is allocated and counted by us.
 */
export function stepModel(
  { stored, states: lengths, moments: given }: StepShape,
  options: OptimizerOptions,
  isMixed: boolean,
): Uint8Array {
  const g = new Graph(), rule = RULES[options.kind](options as never);
  const joined = (array: string, parts: readonly Ints[], dtype: "f16" | "f32" = "f32") => {
    const values = namesOf(array, parts).map((name, i) => g.input(name, parts[i]!, dtype));
    return values.length === 1 ? values[0]! : g.concat(values, 0);
  };
  const apart = (array: string, value: Value, parts: readonly Ints[]) => {
    const values = parts.length === 1
      ? [value]
      : g.split(value, 0, parts.map(([length]) => length!));
    return namesOf(array, parts).map((name, i) => [name, values[i]!] as const);
  };
  const weights = isMixed ? lengths : stored;
  const w = joined("w", weights), sum = joined("d", stored, isMixed ? "f16" : "f32");
  const states = given.map((parts, i) => joined(`m${i}`, parts));
  const scalars = new Map(
    Object.keys(scalarValues(options, 1, 0, 1, true)).map((name) => [name, g.input(name, [])]),
  );
  const scalar = (name: string) => scalars.get(name)!;
  const own = isMixed
    ? { d: g.mul(g.cast(sum, "f32"), scalar("scale")), scale: g.scalar(1) }
    : { d: sum, scale: scalar("scale") };
  const { weight, moments } = rule(g, { w, ...own, moments: states, scalar });
  const outputs = [
    ...apart("w'", weight, weights),
    ...moments.flatMap((value, i) => apart(`m${i}'`, value, given[i]!)),
    ...isMixed ? [["d'", own.d] as const, ...apart("h'", g.cast(weight, "f16"), stored)] : [],
  ];
  return encodeGraph(g, Object.fromEntries(outputs));
}

/** Returns the values of the scalars at a step. */
export function scalarValues(
  options: OptimizerOptions,
  step: number,
  learningRate: number,
  gradientScale: number,
  isDecayed: boolean,
  group?: number,
): Record<string, number> {
  const { rate: factor = 1, weightDecay = options.weightDecay } = options.groups?.[group ?? -1] ??
    {};
  const decay = isDecayed ? weightDecay : 0, scale = gradientScale, rate = learningRate * factor;
  if (options.kind === "sgd") return { scale, decay, rate };
  if (options.kind === "lion") return { scale, decay: 1 - rate * decay, rate };
  if (options.kind === "adafactor") {
    const mix = step ** options.beta2Decay;
    return { scale, decay: 1 - rate * decay, rate: Math.min(rate, 1 / Math.sqrt(step)), mix };
  }
  const correction = Math.sqrt(1 - options.beta2 ** step);
  return {
    scale,
    decay: 1 - rate * decay,
    rate: rate * correction / (1 - options.beta1 ** step),
    epsilon: options.epsilon * correction,
  };
}

/** Returns the arrays with one value per weight that a step updates: the master, if any, and moments. */
const statesOf = ({ master, moments }: ParameterStore) => master ? [master, ...moments] : moments;

/** Returns what the run of a bucket steps. */
function shapeOf(store: ParameterStore, bucket: Bucket, { kind }: OptimizerOptions): StepShape {
  const { whole } = bucket, count = stateCount({ kind });
  if (whole) {
    const own = whole.moments.slice(0, count).filter((moment) => moment !== undefined);
    const stored = [whole.shape];
    return { stored, states: stored, moments: own.map(({ shape }) => [shape]) };
  }
  const stored = piecesOf(store, bucket).map(({ length }) => [length]);
  const isOffloaded = statesOf(store).some((state) => "values" in state);
  const states = isOffloaded ? [[bucket.length]] : stored;
  return { stored, states, moments: Array.from({ length: count }, () => states) };
}

/** Returns the shapes of all steps, each once: a model is compiled for each. */
export const stepShapes = (
  store: ParameterStore,
  options: OptimizerOptions,
): Map<string, StepShape> =>
  new Map(store.buckets.map((bucket) => {
    const shape = shapeOf(store, bucket, options);
    return [JSON.stringify(shape), shape];
  }));

/** Allocates the memory of a step besides the flat arrays; buckets use it one after the other. */
export function allocateOptimizer(
  device: Pick<Device, "alloc">,
  store: ParameterStore,
  options: OptimizerOptions,
) {
  const names = Object.keys(scalarValues(options, 1, 0, 1, true));
  const scalars = [undefined, ...options.groups?.keys() ?? []].flatMap((group) =>
    [true, false].map((isDecayed) => ({
      ...{ group, isDecayed },
      tensors: Object.fromEntries(names.map((name) => [name, device.alloc("f32", [])])),
    }))
  );
  const longest = store.buckets.reduce((most, { length }) => Math.max(most, length), 0);
  const bucket = () => device.alloc("f32", [longest]);
  return {
    /** Scalars of a step, for buckets of each group with and without weight decay. */
    scalars,
    /** Temporary copies of offloaded states of a bucket. */
    visitors: statesOf(store).filter((state) => "values" in state).map(bucket),
    /** FP16 gradients of a bucket, widened and scaled. */
    gradient: store.master && bucket(),
    /** Part of the distance by which averages of the weights move. */
    rest: options.ema === undefined ? undefined : device.alloc("f32", []),
  };
}

/** The memory of an optimizer besides the flat arrays. */
export type OptimizerMemory = ReturnType<typeof allocateOptimizer>;

/**
 * Binds an optimizer to the buckets of a stage, which can be stepped separately, in any order.
 *
 * @param memory allocated by default.
 *
 * @example One step of SGD
 * ```ts
 * import assert from "node:assert/strict";
 * import { openReference, SGD_DEFAULTS } from "@troupe/troupe/kernels";
 * import { createParameters } from "./parameters.ts";
 *
 * const device = await openReference(), settings = { optimizer: SGD_DEFAULTS };
 * const store = createParameters(device, [{ name: "b", shape: [16] }], settings);
 * const { weights: [weights], gradient } = store.parameters[0]!;
 * device.write(gradient, new Float32Array(16).fill(2));
 * const optimizer = await openOptimizer(device, store, SGD_DEFAULTS);
 * optimizer.begin(1, 0.5, 1);
 * await optimizer.stepBucket(0);
 * assert.equal((await device.read<Float32Array>(weights!))[0], -1);
 * device.close();
 * ```
 */
export async function openOptimizer(
  device: Device,
  store: ParameterStore,
  options: OptimizerOptions,
  memory: OptimizerMemory = allocateOptimizer(device, store, options),
) {
  const kernels = new Map(
    await Promise.all(
      stepShapes(store, options).entries().map(async ([key, shape]) => {
        const isMixed = store.master !== undefined, model = stepModel(shape, options, isMixed);
        const average = memory.rest && await device.compile(averageModel(shape, isMixed));
        return [key, { step: await device.compile(model), average }] as const;
      }),
    ),
  );
  const { scalars, rest } = memory;
  const bindSteps = (from: number, to: number) =>
    store.buckets.map((bucket) => {
      const kernel = kernels.get(JSON.stringify(shapeOf(store, bucket, options)))!;
      return bindStep(device, store, memory, bucket, kernel, { from, to });
    });
  let steps = bindSteps(0, 0);
  const bound = new Map([["0 0", steps]]);
  return {
    /**
     * Sets the values that all buckets share in optimizer step `step` (from 1).
     *
     * @param gradientScale factor of every gradient: below 1 where the norm is clipped.
     * @param versions version of the weights that is read, and version that is written.
     */
    begin(
      step: number,
      learningRate: number,
      gradientScale: number,
      { from, to } = { from: 0, to: 0 },
    ) {
      steps = bound.getOrInsertComputed(`${from} ${to}`, () => bindSteps(from, to));
      if (rest) device.write(rest, Float32Array.of(1 - options.ema!));
      for (const { isDecayed, group, tensors } of scalars) {
        const values = scalarValues(options, step, learningRate, gradientScale, isDecayed, group);
        for (const [name, value] of Object.entries(values)) {
          device.write(tensors[name]!, Float32Array.of(value));
        }
      }
    },
    /** Steps one bucket. */
    stepBucket: (index: number) => steps[index]!(),
  };
}

/** A range, with a shape if it is a whole tensor. */
type Place = FlatRange & Partial<ShapedRange>;

/** Binds the step of a bucket; offloaded states are copied to the device and back. */
function bindStep(
  device: Device,
  store: ParameterStore,
  { scalars, visitors, gradient, rest: factor }: OptimizerMemory,
  bucket: Bucket,
  kernels: { readonly step: Kernel; readonly average: Kernel | undefined },
  versions: { readonly from: number; readonly to: number },
): Run {
  const { master, gradients } = store, { isDecayed, group, whole } = bucket;
  const own = whole && { offset: bucket.offset, length: elementCount(whole.shape), ...whole };
  /** Returns the parts in a flat array: a whole parameter, or a piece of each tensor. */
  const partsOf = (flat: FlatTensor, place: ShapedRange | undefined = own): Tensor[] => {
    const pieces = place ? [place] : piecesOf(store, bucket);
    return pieces.map(({ offset, length, shape = [length] }: Place) =>
      viewFlat(device, flat, offset, shape)
    );
  };
  const visits: { rest: Float32Array; visitor: Tensor }[] = [];
  const places = whole && [...master ? [own] : [], ...whole.moments];
  const states = statesOf(store).flatMap((state, i) => {
    const place = places?.[i];
    if (places && !place) return []; // a moment that this parameter does not have
    if (!("values" in state)) return [partsOf(state, place)];
    const { offset, length, shape = [length] }: Place = place ?? bucket;
    const rest = state.values.subarray(offset, offset + length);
    const visitor = device.view(visitors[i]!, 0, shape);
    visits.push({ rest, visitor });
    return [[visitor]];
  });
  const stored = partsOf(store.versions[versions.to]!);
  const w = master ? states[0]! : partsOf(store.versions[versions.from]!);
  const all = master ? states.slice(1) : states, stepped = factor ? all.slice(0, -1) : all;
  const { tensors } = scalars.find((one) => one.isDecayed === isDecayed && one.group === group)!;
  const named = (array: string, tensors: readonly Tensor[]) =>
    Object.fromEntries(namesOf(array, tensors).map((name, i) => [name, tensors[i]!]));
  const moments = (suffix: string) =>
    Object.assign({}, ...stepped.map((tensors, i) => named(`m${i}${suffix}`, tensors)));
  const step = kernels.step.bind(
    {
      ...named("w", w),
      ...named("d", partsOf(gradients)),
      ...moments(""),
      ...tensors,
    },
    {
      ...named("w'", master ? w : stored),
      ...moments("'"),
      ...gradient && {
        "d'": device.view(gradient, 0, whole?.shape ?? [bucket.length]),
        ...named("h'", stored),
      },
    },
  );
  const averages = all.at(-1)!;
  const average = factor && kernels.average?.bind(
    { ...named("w", master ? w : stored), ...named("e", averages), rest: factor },
    named("e'", averages),
  );
  return async () => {
    for (const { rest, visitor } of visits) device.write(visitor, rest);
    await step();
    await average?.();
    for (const { rest, visitor } of visits) await device.read(visitor, rest);
  };
}
