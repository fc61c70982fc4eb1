/**
 * AdamW and SGD with momentum, run on the device bucket by bucket, in place.
 *
 * @module
 */

import type { Device, Kernel, Run, Tensor } from "../devices/device.ts";
import { Graph } from "../graph/graph.ts";
import type { Value } from "../graph/value.ts";
import { encodeModel } from "../onnx/encode_model.ts";
import type { Bucket, ParameterStore } from "./parameters.ts";

/** AdamW (Loshchilov and Hutter, 2019), as in PyTorch but that one-dimensional tensors do not decay. */
export interface AdamWOptions {
  /** Which optimizer. */
  readonly kind: "adamw";
  /** Decay of the mean of gradients. */
  readonly beta1: number;
  /** Decay of the mean of their squares. */
  readonly beta2: number;
  /** Added to the root of the second moment. */
  readonly epsilon: number;
  /** Decoupled; on tensors with two or more dimensions only. */
  readonly weightDecay: number;
}

/** PyTorch's defaults of AdamW, with its weight decay. */
export const ADAMW_DEFAULTS: AdamWOptions = {
  kind: "adamw",
  beta1: 0.9,
  beta2: 0.999,
  epsilon: 1e-8,
  weightDecay: 0.01,
};

/** SGD with momentum as in PyTorch: v ← μ·v + g + λ·w, w ← w − η·v. */
export interface SgdOptions {
  /** Which optimizer. */
  readonly kind: "sgd";
  /** Decay of the velocity, μ. */
  readonly momentum: number;
  /** Added to the gradient; on tensors with two or more dimensions only. */
  readonly weightDecay: number;
}

/** An optimizer and its settings, as plain data. */
export type OptimizerOptions = AdamWOptions | SgdOptions;

/** Names of the moments of each optimizer, as PyTorch's state dictionaries call them. */
export const MOMENTS = {
  adamw: ["exp_avg", "exp_avg_sq"],
  sgd: ["momentum_buffer"],
} as const;

/** A bound optimizer: every bucket can be stepped by itself, in any order. */
export interface Optimizer {
  /**
   * Sets what the buckets' steps of optimizer step `step` (from 1) share.
   *
   * @param gradientScale factor of every gradient: below 1 where the norm is clipped.
   * @param versions which weights are stepped, and which are overwritten; both 0 where not given.
   */
  begin(
    step: number,
    learningRate: number,
    gradientScale: number,
    versions?: { readonly from: number; readonly to: number },
  ): void;
  /** Steps one bucket. */
  stepBucket(index: number): Promise<void>;
}

/** What a step starts from: weights, scaled gradients and moments of a bucket, and scalars. */
interface StepInputs {
  readonly w: Value;
  readonly d: Value;
  readonly moments: readonly Value[];
  readonly scalar: (name: string) => Value;
}

/** The weights and moments after a step. */
type StepRule = (g: Graph, inputs: StepInputs) => { weight: Value; moments: readonly Value[] };

/**
 * p ← p·decay − lrT·m/(√v + epsT), with the corrections of the moments' bias folded into the
 * scalars: lrT = η·√(1−β₂ᵗ)/(1−β₁ᵗ), epsT = ε·√(1−β₂ᵗ), decay = 1 − η·λ.
 */
const adamw = ({ beta1, beta2 }: AdamWOptions): StepRule => (g, { w, d, moments, scalar }) => {
  const [m, v] = moments as [Value, Value];
  const first = g.add(g.mul(m, g.scalar(beta1)), g.mul(d, g.scalar(1 - beta1)));
  const second = g.add(g.mul(v, g.scalar(beta2)), g.mul(g.mul(d, d), g.scalar(1 - beta2)));
  const step = g.div(g.mul(first, scalar("rate")), g.add(g.sqrt(second), scalar("epsilon")));
  return { weight: g.sub(g.mul(w, scalar("decay")), step), moments: [first, second] };
};

const sgd = ({ momentum }: SgdOptions): StepRule => (g, { w, d, moments: [v], scalar }) => {
  const gradient = g.add(d, g.mul(w, scalar("decay")));
  const velocity = g.add(g.mul(v!, g.scalar(momentum)), gradient);
  return { weight: g.sub(w, g.mul(velocity, scalar("rate"))), moments: [velocity] };
};

/**
 * The step of a bucket. With FP16 gradients it also returns the FP16 weights, and the gradients
 * widened and scaled: so these lie in memory of ours, where they are counted.
 */
function stepModel(length: number, options: OptimizerOptions, isMixed: boolean): Uint8Array {
  const g = new Graph(), rule = options.kind === "adamw" ? adamw(options) : sgd(options);
  const w = g.input("w", [length]);
  const sum = g.input("d", [length], isMixed ? "f16" : "f32");
  const states = MOMENTS[options.kind].map((_, i) => g.input(`m${i}`, [length]));
  const scalars = new Map(
    Object.keys(scalarValues(options, 1, 0, 1, true)).map((name) => [name, g.input(name, [])]),
  );
  const scalar = (name: string) => scalars.get(name)!;
  const d = g.mul(g.cast(sum, "f32"), scalar("scale"));
  const { weight, moments } = rule(g, { w, d, moments: states, scalar });
  return encodeModel(g, g.inputs.map((value) => ({ name: value.name, value })), [
    { name: "w'", value: weight },
    ...moments.map((value, i) => ({ name: `m${i}'`, value })),
    ...isMixed ? [{ name: "d'", value: d }, { name: "h'", value: g.cast(weight, "f16") }] : [],
  ]);
}

/** The values of the scalars at a step. */
function scalarValues(
  options: OptimizerOptions,
  step: number,
  learningRate: number,
  gradientScale: number,
  isDecayed: boolean,
): Record<string, number> {
  const decay = isDecayed ? options.weightDecay : 0, scale = gradientScale;
  if (options.kind === "sgd") return { scale, decay, rate: learningRate };
  const correction = Math.sqrt(1 - options.beta2 ** step);
  return {
    scale,
    decay: 1 - learningRate * decay,
    rate: learningRate * correction / (1 - options.beta1 ** step),
    epsilon: options.epsilon * correction,
  };
}

/** The memory of an optimizer beside the flat arrays. */
export interface OptimizerMemory {
  /** Scalars of a step, for buckets that decay and for those that do not. */
  readonly scalars: ReadonlyMap<boolean, Readonly<Record<string, Tensor>>>;
  /** Where the states of a bucket visit, when they are offloaded. */
  readonly visitors: readonly Tensor[];
  /** FP16 gradients of a bucket, widened and scaled. */
  readonly gradient?: Tensor;
}

/** The arrays of which the optimizer has a value for each weight: first the master, if any. */
const statesOf = ({ master, moments }: Pick<ParameterStore, "master" | "moments">) =>
  master ? [master, ...moments] : moments;

/** Allocates what an optimizer needs for a step; one bucket uses it after the other. */
export function allocateOptimizer(
  device: Pick<Device, "alloc">,
  store: ParameterStore,
  options: OptimizerOptions,
): OptimizerMemory {
  const names = Object.keys(scalarValues(options, 1, 0, 1, true));
  const scalars = new Map([true, false].map((isDecayed) => [
    isDecayed,
    Object.fromEntries(names.map((name) => [name, device.alloc("f32", [])])),
  ]));
  const longest = store.buckets.reduce((most, { length }) => Math.max(most, length), 0);
  const bucket = () => device.alloc("f32", [longest]);
  return {
    scalars,
    visitors: statesOf(store).filter((state) => "values" in state).map(bucket),
    ...store.master && { gradient: bucket() },
  };
}

/**
 * Binds an optimizer to the buckets of a stage.
 *
 * @param memory by default allocated for it.
 *
 * @example One step of SGD
 * ```ts
 * import assert from "node:assert/strict";
 * import { createParameters, openOptimizer, openReference } from "@troupe/troupe/kernels";
 *
 * const device = await openReference();
 * const store = createParameters(device, [{ name: "b", shape: [16] }], { moments: 1 });
 * device.write(store.gradients, new Float32Array(16).fill(2));
 * const optimizer = await openOptimizer(device, store, { kind: "sgd", momentum: 0, weightDecay: 0 });
 * optimizer.begin(1, 0.5, 1);
 * await optimizer.stepBucket(0);
 * assert.equal((await device.read<Float32Array>(store.weights))[0], -1);
 * device.close();
 * ```
 */
export async function openOptimizer(
  device: Device,
  store: ParameterStore,
  options: OptimizerOptions,
  memory: OptimizerMemory = allocateOptimizer(
    device,
    store,
    options,
  ),
): Promise<Optimizer> {
  const lengths = [...new Set(store.buckets.map(({ length }) => length))];
  const kernels = new Map(
    await Promise.all(lengths.map(async (length) => {
      const model = stepModel(length, options, store.master !== undefined);
      return [length, await device.compile(model)] as const;
    })),
  );
  const { scalars } = memory;
  const bindSteps = (from: number, to: number) =>
    store.buckets.map((bucket) =>
      bindStep(device, store, memory, bucket, kernels.get(bucket.length)!, {
        from: store.versions[from]!,
        to: store.versions[to]!,
      })
    );
  let steps = bindSteps(0, 0);
  const bound = new Map([["0 0", steps]]);
  return {
    begin(step, learningRate, gradientScale, { from, to } = { from: 0, to: 0 }) {
      const key = `${from} ${to}`;
      steps = bound.get(key) ?? bindSteps(from, to);
      bound.set(key, steps);
      for (const [isDecayed, tensors] of scalars) {
        const values = scalarValues(options, step, learningRate, gradientScale, isDecayed);
        for (const [name, value] of Object.entries(values)) {
          device.write(tensors[name]!, Float32Array.of(value));
        }
      }
    },
    stepBucket: (index) => steps[index]!(),
  };
}

/** Binds the step of one bucket; offloaded states visit the device for it. */
function bindStep(
  device: Device,
  store: ParameterStore,
  { scalars, visitors, gradient }: OptimizerMemory,
  { offset, length, isDecayed }: Bucket,
  kernel: Kernel,
  weights: { readonly from: Tensor; readonly to: Tensor },
): Run {
  const { master, gradients } = store;
  const visits: { rest: Float32Array; visitor: Tensor }[] = [];
  const states = statesOf(store).map((state, i) => {
    if (!("values" in state)) return device.view(state, offset, [length]);
    const rest = state.values.subarray(offset, offset + length);
    const visitor = device.view(visitors[i]!, 0, [length]);
    visits.push({ rest, visitor });
    return visitor;
  });
  const stored = device.view(weights.to, offset, [length]);
  const w = master ? states[0]! : device.view(weights.from, offset, [length]);
  const own = master ? states.slice(1) : states;
  const named = (suffix: string) =>
    Object.fromEntries(own.map((moment, i) => [`m${i}${suffix}`, moment]));
  const run = kernel.bind(
    { w, d: device.view(gradients, offset, [length]), ...named(""), ...scalars.get(isDecayed) },
    {
      "w'": master ? w : stored,
      ...named("'"),
      ...gradient && { "d'": device.view(gradient, 0, [length]), "h'": stored },
    },
  );
  if (visits.length === 0) return run;
  return async () => {
    for (const { rest, visitor } of visits) device.write(visitor, rest);
    await run();
    for (const { rest, visitor } of visits) await device.read(visitor, rest);
  };
}
