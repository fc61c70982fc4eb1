/**
 * Weights, gradients and optimizer moments of a stage in flat arrays, with a view per parameter.
 *
 * Tensors with two or more dimensions come first: they alone are subject to weight decay. The flat
 * arrays are cut into *buckets*, the units of the optimizer; no bucket holds tensors of both sorts.
 *
 * @module
 */

import type { Device, Tensor } from "./device.ts";
import { elementCount } from "./graph.ts";

/** A parameter's place in the flat arrays. */
export interface Parameter {
  /** Full name: `transformer.h.0.attn.c_attn.weight`. */
  readonly name: string;
  /** Its sizes. */
  readonly shape: readonly number[];
  /** Its values. */
  readonly weight: Tensor;
  /** The sum of its gradients in this step. */
  readonly gradient: Tensor;
  /** One view for each moment that the optimizer keeps. */
  readonly moments: readonly Tensor[];
}

/** A range of the flat arrays, in elements: the unit of an optimizer step. */
export interface Bucket {
  /** Where it starts. */
  readonly offset: number;
  /** How long it is. */
  readonly length: number;
  /** Whether weight decay applies. */
  readonly isDecayed: boolean;
}

/** The flat arrays of a stage. */
export interface ParameterStore {
  /** The parameters in the order of their places. */
  readonly parameters: readonly Parameter[];
  /** Where each parameter lies in the flat arrays, in elements, by full name. */
  readonly ranges: ReadonlyMap<string, { readonly offset: number; readonly length: number }>;
  /** The buckets in order; together they cover the arrays. */
  readonly buckets: readonly Bucket[];
  /** All weights. */
  readonly weights: Tensor;
  /** All gradients. */
  readonly gradients: Tensor;
  /** All moments of the optimizer. */
  readonly moments: readonly Tensor[];
}

/** Elements of a bucket unless asked otherwise: the fastest piece for AdamW on a CPU. */
export const BUCKET_SIZE = 65_536;

/** Parameters start at multiples of this many elements: 64 bytes of f32. */
const ALIGNMENT = 16;

const aligned = (elements: number) => Math.ceil(elements / ALIGNMENT) * ALIGNMENT;

/**
 * Lays out parameters on a device; everything starts as zero.
 *
 * @param specs full names and shapes.
 * @param options `moments` of the optimizer (AdamW 2, SGD with momentum 1) and `bucketSize` in
 * elements.
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
  device: Device,
  specs: readonly { name: string; shape: readonly number[] }[],
  options: { moments: number; bucketSize?: number },
): ParameterStore {
  const { moments: momentCount, bucketSize = BUCKET_SIZE } = options;
  const decayed = specs.filter(({ shape }) => shape.length >= 2);
  const rest = specs.filter(({ shape }) => shape.length < 2);
  const sizeOf = (list: typeof specs) =>
    list.reduce((sum, { shape }) => sum + aligned(elementCount(shape)), 0);
  const border = sizeOf(decayed), total = border + sizeOf(rest);
  const flat = () => device.alloc("f32", [total]);
  const weights = flat(), gradients = flat();
  const moments = Array.from({ length: momentCount }, flat);
  let offset = 0;
  const ranges = new Map<string, { offset: number; length: number }>();
  const parameters = [...decayed, ...rest].map(({ name, shape }) => {
    const view = (tensor: Tensor) => device.view(tensor, offset, shape);
    const parameter = {
      name,
      shape,
      weight: view(weights),
      gradient: view(gradients),
      moments: moments.map(view),
    };
    ranges.set(name, { offset, length: elementCount(shape) });
    offset += aligned(elementCount(shape));
    return parameter;
  });
  const buckets = [
    ...bucketsOf(0, border, bucketSize, true),
    ...bucketsOf(border, total, bucketSize, false),
  ];
  return { parameters, ranges, buckets, weights, gradients, moments };
}

function bucketsOf(from: number, to: number, size: number, isDecayed: boolean): Bucket[] {
  return Array.from({ length: Math.ceil((to - from) / size) }, (_, i) => {
    const offset = from + i * size;
    return { offset, length: Math.min(size, to - offset), isDecayed };
  });
}
