/**
 * AdamW and SGD with momentum, run on the device bucket by bucket, in place.
 *
 * @module
 */

import type { Device, Run, Tensor } from "./device.ts";
import { elementCount, Graph } from "./graph.ts";
import { encodeModel } from "./onnx.ts";
import type { ParameterStore } from "./parameters.ts";

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
   */
  begin(step: number, learningRate: number, gradientScale: number): void;
  /** Steps one bucket. */
  stepBucket(index: number): Promise<void>;
}

/**
 * p ← p·decay − lrT·m/(√v + epsT), with the corrections of the moments' bias folded into the
 * scalars: lrT = η·√(1−β₂ᵗ)/(1−β₁ᵗ), epsT = ε·√(1−β₂ᵗ), decay = 1 − η·λ.
 */
function adamw(length: number, { beta1, beta2 }: AdamWOptions): Uint8Array {
  const g = new Graph();
  const [w, sum, m, v] = ["w", "d", "m0", "m1"].map((name) => g.input(name, [length]));
  const [scale, decay, rate, epsilon] = ["scale", "decay", "rate", "epsilon"].map((name) =>
    g.input(name, [])
  );
  const d = g.mul(sum!, scale!);
  const first = g.add(g.mul(m!, g.scalar(beta1)), g.mul(d, g.scalar(1 - beta1)));
  const second = g.add(g.mul(v!, g.scalar(beta2)), g.mul(g.mul(d, d), g.scalar(1 - beta2)));
  const step = g.div(g.mul(first, rate!), g.add(g.sqrt(second), epsilon!));
  const weight = g.sub(g.mul(w!, decay!), step);
  return encodeModel(g, g.inputs.map((value) => ({ name: value.name, value })), [
    { name: "w'", value: weight },
    { name: "m0'", value: first },
    { name: "m1'", value: second },
  ]);
}

function sgd(length: number, { momentum }: SgdOptions): Uint8Array {
  const g = new Graph();
  const [w, d, v] = ["w", "d", "m0"].map((name) => g.input(name, [length]));
  const [scale, decay, rate] = ["scale", "decay", "rate"].map((name) => g.input(name, []));
  const gradient = g.add(g.mul(d!, scale!), g.mul(w!, decay!));
  const velocity = g.add(g.mul(v!, g.scalar(momentum)), gradient);
  return encodeModel(g, g.inputs.map((value) => ({ name: value.name, value })), [
    { name: "w'", value: g.sub(w!, g.mul(velocity, rate!)) },
    { name: "m0'", value: velocity },
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

/**
 * Binds an optimizer to the buckets of a stage.
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
): Promise<Optimizer> {
  const lengths = [...new Set(store.buckets.map(({ length }) => length))];
  const kernels = new Map(
    await Promise.all(lengths.map(async (length) => {
      const model = options.kind === "adamw" ? adamw(length, options) : sgd(length, options);
      return [length, await device.compile(model)] as const;
    })),
  );
  const scalars = new Map<boolean, Record<string, Tensor>>();
  for (const isDecayed of [true, false]) {
    const names = Object.keys(scalarValues(options, 1, 0, 1, isDecayed));
    scalars.set(
      isDecayed,
      Object.fromEntries(names.map((name) => [name, device.alloc("f32", [])])),
    );
  }
  const runs = store.buckets.map(({ offset, length, isDecayed }): Run => {
    const view = (tensor: Tensor) => device.view(tensor, offset, [length]);
    const moments = store.moments.map(view), weight = view(store.weights);
    const named = (suffix: string) =>
      Object.fromEntries(moments.map((moment, i) => [`m${i}${suffix}`, moment]));
    return kernels.get(length)!.bind(
      { w: weight, d: view(store.gradients), ...named(""), ...scalars.get(isDecayed) },
      { "w'": weight, ...named("'") },
    );
  });
  return {
    begin(step, learningRate, gradientScale) {
      for (const [isDecayed, tensors] of scalars) {
        const values = scalarValues(options, step, learningRate, gradientScale, isDecayed);
        for (const [name, value] of Object.entries(values)) {
          device.write(tensors[name]!, Float32Array.of(value));
        }
      }
    },
    stepBucket: (index) => runs[index]!(),
  };
}

/** Sums of squares of each parameter's gradient, each in one fixed order. */
export async function openGradientSquares(
  device: Device,
  store: ParameterStore,
): Promise<() => Promise<Map<string, number>>> {
  const counts = [...new Set(store.parameters.map(({ shape }) => elementCount(shape)))];
  const kernels = new Map(
    await Promise.all(counts.map(async (count) => {
      const g = new Graph(), d = g.input("d", [count]);
      const outputs = [{ name: "sum", value: g.sumOfSquares(d) }];
      const model = encodeModel(g, [{ name: "d", value: d }], outputs);
      return [count, await device.compile(model)] as const;
    })),
  );
  const sums = device.alloc("f32", [store.parameters.length]);
  const runs = store.parameters.map(({ shape, gradient }, i) => {
    const count = elementCount(shape);
    return kernels.get(count)!.bind(
      { d: device.view(gradient, 0, [count]) },
      { sum: device.view(sums, i, []) },
    );
  });
  return async () => {
    for (const run of runs) await run();
    const values = await device.read<Float32Array>(sums);
    return new Map(store.parameters.map(({ name }, i) => [name, values[i]!]));
  };
}
