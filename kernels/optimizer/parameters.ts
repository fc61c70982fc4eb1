/**
 * Weights, gradients and optimizer moments of a stage in flat arrays, with a view per parameter.
 *
 * In mixed precision, weights and gradients are FP16, and the optimizer has FP32 weights of its own,
 * the *master*. What only the optimizer uses, master and moments, may be *offloaded*: then it rests
 * on the host and visits the device bucket by bucket (AxoNN, section V-B).
 *
 * Tensors with two or more dimensions come first: they alone are subject to weight decay. The flat
 * arrays are cut into *buckets*, the units of the optimizer; no bucket holds tensors of both sorts.
 *
 * @module
 */

import type { Device, Tensor } from "../devices/device.ts";
import { elementCount } from "../graph/shapes.ts";
import { type Precision, storageDtype } from "../layers/precision.ts";
import { type FlatRange, type FlatState, hostState } from "./flat_state.ts";

/** A parameter's place in the flat arrays. */
export interface Parameter {
  /** Full name: `transformer.h.0.attn.c_attn.weight`. */
  readonly name: string;
  /** Its sizes. */
  readonly shape: readonly number[];
  /** Its values, in each version of the weights. */
  readonly weights: readonly Tensor[];
  /** The sum of its gradients in this step. */
  readonly gradient: Tensor;
}

/** The unit of an optimizer step. */
export interface Bucket extends FlatRange {
  /** Whether weight decay applies. */
  readonly isDecayed: boolean;
}

/** The flat arrays of a stage. */
export interface ParameterStore {
  /** The parameters in the order of their places. */
  readonly parameters: readonly Parameter[];
  /** Where each parameter lies in the flat arrays, in elements, by full name. */
  readonly ranges: ReadonlyMap<string, FlatRange>;
  /** The buckets in order; together they cover the arrays. */
  readonly buckets: readonly Bucket[];
  /** All weights, as the models read them: version 0. */
  readonly weights: Tensor;
  /** The versions of all weights. */
  readonly versions: readonly Tensor[];
  /** All gradients, in the type of the weights. */
  readonly gradients: Tensor;
  /** FP32 weights where the others are FP16. */
  readonly master?: FlatState;
  /** All moments of the optimizer. */
  readonly moments: readonly FlatState[];
}

/** How a stage keeps its parameters. */
export interface StoreOptions {
  /** Moments of the optimizer: AdamW 2, SGD with momentum 1. */
  readonly moments: number;
  /** Elements of a bucket; {@linkcode BUCKET_SIZE} where not given. */
  readonly bucketSize?: number;
  /** In which type weights and gradients are stored; fp32 where not given. */
  readonly precision?: Precision;
  /** Whether master and moments rest on the host. */
  readonly offload?: boolean;
  /** Versions of the weights; 1 where not given. */
  readonly versions?: number;
}

/** Elements of a bucket unless asked otherwise: the fastest piece for AdamW on a CPU. */
export const BUCKET_SIZE = 65_536;

/** Parameters start at multiples of this many elements: 64 bytes of f32. */
const ALIGNMENT = 16;

const aligned = (elements: number) => Math.ceil(elements / ALIGNMENT) * ALIGNMENT;

/**
 * Elements of the flat arrays of parameters with these shapes: each begins at a multiple of 16.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { flatLength } from "@troupe/troupe/kernels";
 *
 * assert.equal(flatLength([{ shape: [8, 10] }, { shape: [10] }]), 80 + 16);
 * ```
 */
export function flatLength(specs: readonly { shape: readonly number[] }[]): number {
  return specs.reduce((sum, { shape }) => sum + aligned(elementCount(shape)), 0);
}

/**
 * Lays out parameters on a device; everything starts as zero.
 *
 * @param specs full names and shapes.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { createParameters, openReference } from "@troupe/troupe/kernels";
 *
 * const device = await openReference();
 * const { buckets } = createParameters(
 *   device,
 *   [{ name: "w", shape: [8, 10] }, { name: "b", shape: [10] }],
 *   { moments: 2, bucketSize: 64 },
 * );
 * assert.deepEqual(buckets, [
 *   { offset: 0, length: 64, isDecayed: true },
 *   { offset: 64, length: 16, isDecayed: true },
 *   { offset: 80, length: 16, isDecayed: false },
 * ]);
 * device.close();
 * ```
 */
export function createParameters(
  device: Pick<Device, "alloc" | "view">,
  specs: readonly { name: string; shape: readonly number[] }[],
  options: StoreOptions,
): ParameterStore {
  const { bucketSize = BUCKET_SIZE, precision = "fp32", offload = false } = options;
  const decayed = specs.filter(({ shape }) => shape.length >= 2);
  const rest = specs.filter(({ shape }) => shape.length < 2);
  const border = flatLength(decayed), total = border + flatLength(rest);
  const dtype = storageDtype(precision);
  const versions = Array.from(
    { length: options.versions ?? 1 },
    () => device.alloc(dtype, [total]),
  );
  const gradients = device.alloc(dtype, [total]);
  const state = () => offload ? hostState(total) : device.alloc("f32", [total]);
  let offset = 0;
  const ranges = new Map<string, FlatRange>();
  const parameters = [...decayed, ...rest].map(({ name, shape }) => {
    const view = (tensor: Tensor) => device.view(tensor, offset, shape);
    const parameter = { name, shape, weights: versions.map(view), gradient: view(gradients) };
    ranges.set(name, { offset, length: elementCount(shape) });
    offset += aligned(elementCount(shape));
    return parameter;
  });
  const buckets = [
    ...bucketsOf(0, border, bucketSize, true),
    ...bucketsOf(border, total, bucketSize, false),
  ];
  return {
    parameters,
    ranges,
    buckets,
    weights: versions[0]!,
    versions,
    gradients,
    ...precision === "fp16" && { master: state() },
    moments: Array.from({ length: options.moments }, state),
  };
}

function bucketsOf(from: number, to: number, size: number, isDecayed: boolean): Bucket[] {
  return Array.from({ length: Math.ceil((to - from) / size) }, (_, i) => {
    const offset = from + i * size;
    return { offset, length: Math.min(size, to - offset), isDecayed };
  });
}
