/**
 * A flat array on a device that may lie in several tensors, one behind the other.
 *
 * Where views are free it is one tensor. On a GPU, whose tensors all begin with a buffer, each
 * parameter has its own: a flat array is then read and written part by part.
 *
 * @module
 */

import type { Device, DType, HostArray, MessageArray, Tensor } from "../devices/device.ts";

/** A range of a flat array, in elements. */
export interface FlatRange {
  /** Where it starts. */
  readonly offset: number;
  /** How long it is. */
  readonly length: number;
}

/** A range that lies in a tensor of its own. */
export interface FlatPart extends FlatRange {
  /** The tensor. */
  readonly tensor: Tensor;
}

/** A flat array on a device. */
export interface FlatTensor {
  /** The type of its elements. */
  readonly dtype: DType;
  /** Its tensors in order; together they cover it. */
  readonly parts: readonly FlatPart[];
}

/** Allocates a flat array, zeroed, with a tensor for each range. */
export function allocateFlat(
  device: Pick<Device, "alloc">,
  dtype: DType,
  ranges: readonly FlatRange[],
): FlatTensor {
  const parts = ranges.map((range) => ({ ...range, tensor: device.alloc(dtype, [range.length]) }));
  return { dtype, parts };
}

/** The tensors of flat arrays. */
export const tensorsOf = (arrays: readonly FlatTensor[]): Tensor[] =>
  arrays.flatMap(({ parts }) => parts.map(({ tensor }) => tensor));

/** What some values take of a tensor, from an element on; all of it where none is given. */
export function partOf(
  device: Pick<Device, "view">,
  tensor: Tensor,
  { length }: HostArray,
  from: number | undefined,
): Tensor {
  return from === undefined ? tensor : device.view(tensor, from, [length]);
}

/**
 * A view of elements that lie in one tensor.
 *
 * @throws {RangeError} when they do not.
 */
export function viewFlat(
  device: Pick<Device, "view">,
  { parts }: FlatTensor,
  offset: number,
  shape: readonly number[],
): Tensor {
  const part = parts.findLast((one) => one.offset <= offset);
  if (!part) throw new RangeError(`Cannot view a flat array: it must not be empty`);
  return device.view(part.tensor, offset - part.offset, shape);
}

/** What of a range lies in which tensor, in order. */
function* viewsOf(
  device: Pick<Device, "view">,
  flat: FlatTensor,
  { offset, length }: FlatRange,
) {
  for (const part of flat.parts) {
    const from = Math.max(offset, part.offset);
    const to = Math.min(offset + length, part.offset + part.length);
    if (from >= to) continue;
    const tensor = device.view(part.tensor, from - part.offset, [to - from]);
    yield { tensor, from: from - offset, to: to - offset };
  }
}

/** Copies a range to the host, in an array that owns its buffer. */
export async function readFlat(
  device: Device,
  flat: FlatTensor,
  range: FlatRange,
): Promise<MessageArray> {
  const all = flat.dtype === "f16"
    ? new Float16Array(range.length)
    : new Float32Array(range.length);
  await readFlatInto(device, flat, range.offset, all);
  return all;
}

/** Copies the elements from `offset` on to the host. */
export async function readFlatInto(
  device: Device,
  flat: FlatTensor,
  offset: number,
  into: Float32Array | Float16Array,
): Promise<void> {
  for (const { tensor, from, to } of viewsOf(device, flat, { offset, length: into.length })) {
    await device.read<HostArray>(tensor, into.subarray(from, to));
  }
}

/** Sets the elements from `offset` on. */
export function writeFlat(
  device: Device,
  flat: FlatTensor,
  offset: number,
  values: Float32Array | Float16Array,
): void {
  for (const { tensor, from, to } of viewsOf(device, flat, { offset, length: values.length })) {
    device.write(tensor, values.subarray(from, to));
  }
}

/** Sets all elements to zero. */
export function zeroFlat(device: Device, { parts }: FlatTensor): void {
  for (const { tensor } of parts) device.zero(tensor);
}
