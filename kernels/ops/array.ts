/**
 * Arrays of the reference device.
 *
 * @module
 */

import { type DType, HOST_ARRAYS, type HostArray } from "../devices/device.ts";
import { elementCount, type Ints } from "../graph/shapes.ts";
import type { Settings, ValueType } from "../graph/value.ts";
import { asHostArray } from "../devices/tensor_memory.ts";

/** Elements as JavaScript numbers. Storing rounds to the dtype; i64 is exact up to 2^53. */
type Values = Float32Array | Float16Array | Int32Array | Float64Array | Uint8Array;

/** A dense array in row-major order. */
export interface NdArray extends ValueType {
  readonly values: Values;
}

const VALUES = { ...HOST_ARRAYS, i64: Float64Array } as const;

/** Creates an array of zeros, or of numbers that are rounded once from f64. */
export function ndArray({ dtype, shape }: ValueType, numbers?: ArrayLike<number>): NdArray {
  const values = new VALUES[dtype](elementCount(shape));
  if (numbers) values.set(numbers);
  return { dtype, shape, values };
}

/** Returns bytes as an array. */
export function fromBytes(dtype: DType, shape: Ints, bytes: Uint8Array): NdArray {
  const data = asHostArray(dtype, bytes);
  const values = data instanceof BigInt64Array ? Float64Array.from(data, Number) : data;
  return { dtype, shape, values };
}

/** Writes an array to `bytes`. */
export function toBytes({ dtype, values }: NdArray, bytes: Uint8Array): void {
  const target: HostArray = asHostArray(dtype, bytes);
  if (target instanceof BigInt64Array) target.set(BigInt64Array.from(values, BigInt));
  else target.set(values);
}

/** Returns the distance of neighbours along each axis, in elements. */
export function stridesOf(shape: Ints): number[] {
  return shape.map((_, axis) => elementCount(shape.slice(axis + 1)));
}

/**
 * Returns the source position of each element of an array of `shape`, in row-major order: `start`
 * plus each index times its stride. A stride of 0 repeats an axis; permuted strides transpose.
 */
export function positions(shape: Ints, strides: Ints, start = 0): Int32Array {
  let places = Int32Array.of(start);
  shape.forEach((size, axis) => {
    const stride = strides[axis]!, longer = new Int32Array(places.length * size);
    let at = 0;
    for (const place of places) {
      for (let i = 0; i < size; i++) longer[at++] = place + i * stride;
    }
    places = longer;
  });
  return places;
}

/** Maps each index into an array of `shape`, in row-major order. */
export function mapIndices(shape: Ints, of: (index: Ints) => number): Int32Array {
  const strides = stridesOf(shape);
  return Int32Array.from(
    { length: elementCount(shape) },
    (_, i) => of(strides.map((stride, axis) => Math.floor(i / stride) % shape[axis]!)),
  );
}

/** Returns the elements of `values` at `places`, in f64. */
export function wide(values: Values, places: Int32Array): Float64Array {
  const result = new Float64Array(places.length);
  for (let i = 0; i < places.length; i++) result[i] = values[places[i]!]!;
  return result;
}

/** Returns the elements of `source` at `places`, as an array of `shape`. */
export function take(source: NdArray, shape: Ints, places: Int32Array): NdArray {
  return ndArray({ dtype: source.dtype, shape }, wide(source.values, places));
}

/** Writes the elements of `part` to an array, the first to place `start`. */
export function put({ values, shape }: NdArray, part: NdArray, start: number): void {
  const places = positions(part.shape, stridesOf(shape), start);
  places.forEach((place, i) => values[place] = part.values[i]!);
}

/** Returns the strides that read an array of shape `from` as an array of shape `to`. */
export function broadcastStrides(from: Ints, to: Ints): number[] {
  const strides = stridesOf(from).map((stride, axis) => from[axis] === 1 ? 0 : stride);
  return [...Array<number>(to.length - from.length).fill(0), ...strides];
}

/** Computes the first output of an operation, or all of them, with the given types. */
export type Reference = (
  inputs: readonly [NdArray, ...NdArray[]],
  node: Settings,
  types: readonly [ValueType, ...ValueType[]],
) => NdArray | NdArray[];
