/**
 * Masks of dropouts.
 *
 * [Note: keyed dropout] A mask is a function of the seed, the step, the micro-batch, the layer's
 * name, the number of the dropout in the layer and the place of each element, as a parameter's
 * initial values are a function of the seed and its name. So masks do not depend on the schedule,
 * the number of workers, the order of actions, recomputation or resumption; there is no state, and
 * a mask need not be stored because it can be computed again.
 *
 * @module
 */

import { RANDOM_MAX, RANDOM_VALUES, randomKernels } from "../devices/cpu/simd.ts";
import { elementCount } from "../graph/shapes.ts";
import type { MaskBox, MaskSpec, Slice } from "./layer.ts";
import { builtin } from "../builtin.ts";

const { createHash } = builtin("node:crypto");

/** The key of a micro-batch's dropout masks. */
export interface DropoutKey {
  /** The seed of the run. */
  readonly seed: number;
  /** The step of the data, from 1. */
  readonly step: number;
  /** The global id of the micro-batch in its step. */
  readonly microBatch: number;
  /** Half of its samples, if micro-batches are computed in halves. */
  readonly half?: 0 | 1;
}

/** A slice of the sequences of a micro-batch. */
interface SampleSlice extends Slice {
  /** Samples of a micro-batch. */
  readonly samples: number;
}

/**
 * Returns a function that writes elements of a mask.
 *
 * @param layer the name of its layer.
 * @param key of the micro-batch; without one, as in an evaluation, all elements are 1.
 * @param slice of the sequence, with its part of the mask of the whole.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const spec = { name: "mask.0", dtype: "f32", shape: [2, 4], probability: 0.5 } as const;
 * const key = { seed: 1, step: 1, microBatch: 0 }, whole = new Float32Array(8);
 * openMask(spec, "hidden 0", key)(whole, 0);
 * assert.ok(whole.every((factor) => factor === 0 || factor === 2));
 * const part = new Float32Array(3);
 * openMask(spec, "hidden 0", key)(part, 5);
 * assert.deepEqual(part, whole.subarray(5));
 * openMask(spec, "hidden 0", undefined)(whole, 0);
 * assert.ok(whole.every((factor) => factor === 1));
 * ```
 */
export function openMask(
  spec: MaskSpec,
  layer: string,
  key: DropoutKey | undefined,
  slice?: SampleSlice,
): FillMask {
  if (!key) return (into) => void into.fill(1);
  if (!slice) return openWhole(spec, layer, key);
  const { index, count, samples } = slice, own = elementCount(spec.shape) / samples;
  const sliced = { whole: [samples, count, own], from: [0, index, 0], size: [samples, 1, own] };
  const { probability, of = spec.name, box = sliced } = spec;
  const whole = { name: of, dtype: spec.dtype, shape: box.whole, probability };
  return cutOut(openWhole(whole, layer, key), box);
}

/** Writes the elements of a mask from element `from`. */
type FillMask = (into: Float32Array, from: number) => void;

function openWhole(
  { name, shape, probability }: MaskSpec,
  layer: string,
  key: DropoutKey,
): FillMask {
  const { seed, step, microBatch, half = 0 } = key;
  // The halves of a micro-batch have the masks of the whole.
  const first = half * elementCount(shape);
  const label = JSON.stringify([seed, step, microBatch, layer, name]);
  const digest = createHash("sha256").update(label).digest();
  const word0 = digest.readInt32LE(0), word1 = digest.readInt32LE(4);
  const [kept] = new Int32Array(Float32Array.of(1 / (1 - probability)).buffer);
  const least = Math.round(probability * 2 ** 31);
  return (into, from) => {
    const { memory, kernels } = randomKernels();
    for (let at = 0; at < into.length; at += RANDOM_MAX) {
      const count = Math.min(RANDOM_MAX, into.length - at), whole = Math.ceil(count / 4) * 4;
      const place = first + from + at;
      kernels.dropoutMask(RANDOM_VALUES, whole, place, word0, word1, least, kept!);
      into.set(new Float32Array(memory.buffer, RANDOM_VALUES, count), at);
    }
  };
}

/** Returns a part of a mask as a mask: rows of its last axis at their places in the whole. */
function cutOut(fill: FillMask, { whole, from, size }: MaskBox): FillMask {
  const run = size.at(-1)!;
  const placeOf = (row: number) => {
    let place = from.at(-1)!, stride = 1;
    for (let axis = size.length - 2; axis >= 0; axis--) {
      stride *= whole[axis + 1]!;
      place += (from[axis]! + row % size[axis]!) * stride;
      row = Math.floor(row / size[axis]!);
    }
    return place;
  };
  return (into, begin) => {
    for (let at = 0; at < into.length;) {
      const row = Math.floor((begin + at) / run), within = (begin + at) % run;
      const count = Math.min(run - within, into.length - at);
      fill(into.subarray(at, at + count), placeOf(row) + within);
      at += count;
    }
  };
}
