/**
 * Operations that move elements without computing: shapes, slices, gathers and scatters.
 *
 * @module
 */

import { broadcastShape, elementCount } from "../../graph/shapes.ts";
import {
  type Attributes,
  broadcastStrides,
  fromFront,
  type NdArray,
  ndArray,
  type Operation,
  positions,
  stridesOf,
  take,
} from "./array.ts";

/** `array` with entry `at` replaced. */
function replaced(array: readonly number[], at: number, entry: number): number[] {
  return array.map((old, i) => i === at ? entry : old);
}

const reshape: Operation = ([x, target], attributes) => {
  const keepZero = attributes.number("allowzero", 0) === 1;
  const shape = [...target!.values].map((size, i) => size === 0 && !keepZero ? x!.shape[i]! : size);
  const free = shape.indexOf(-1);
  if (free >= 0) shape[free] = elementCount(x!.shape) / -elementCount(shape);
  return { ...x!, shape };
};

const transpose: Operation = ([x], attributes) => {
  const axes = attributes.numbers("perm") ?? x!.shape.map((_, i) => x!.shape.length - 1 - i);
  const strides = stridesOf(x!.shape);
  const shape = axes.map((axis) => x!.shape[axis]!);
  return take(x!, shape, positions(shape, axes.map((axis) => strides[axis]!)));
};

const expand: Operation = ([x, target]) => {
  const shape = broadcastShape(x!.shape, [...target!.values]);
  return take(x!, shape, positions(shape, broadcastStrides(x!.shape, shape)));
};

const split: Operation = ([x, sizes], attributes, outputs) => {
  const axis = fromFront(attributes.number("axis", 0), x!.shape.length);
  const equal = Math.ceil(x!.shape[axis]! / outputs);
  const strides = stridesOf(x!.shape);
  let start = 0;
  return Array.from({ length: outputs }, (_, i) => {
    const size = sizes ? sizes.values[i]! : Math.min(equal, x!.shape[axis]! - start);
    const shape = replaced(x!.shape, axis, size);
    const part = take(x!, shape, positions(shape, strides, start * strides[axis]!));
    start += size;
    return part;
  });
};

const concat: Operation = (parts, attributes) => {
  const axis = fromFront(attributes.number("axis", 0), parts[0]!.shape.length);
  const total = parts.reduce((sum, part) => sum + part.shape[axis]!, 0);
  const result = ndArray(parts[0]!.dtype, replaced(parts[0]!.shape, axis, total));
  const strides = stridesOf(result.shape);
  let start = 0;
  for (const part of parts) {
    positions(part.shape, strides, start * strides[axis]!)
      .forEach((place, i) => result.values[place] = part.values[i]!);
    start += part.shape[axis]!;
  }
  return result;
};

const slice: Operation = ([x, starts, ends, axes, steps]) => {
  const shape = [...x!.shape];
  const strides = stridesOf(shape);
  let first = 0;
  starts!.values.forEach((from, i) => {
    const axis = fromFront(axes?.values[i] ?? i, shape.length);
    const size = shape[axis]!, step = steps?.values[i] ?? 1;
    const within = (index: number) => {
      const [low, high] = step > 0 ? [0, size] : [-1, size - 1];
      return Math.min(Math.max(index < 0 ? index + size : index, low), high);
    };
    const start = step > 0 ? within(from) : Math.max(within(from), 0);
    shape[axis] = Math.max(0, Math.ceil((within(ends!.values[i]!) - start) / step));
    first += start * strides[axis]!;
    strides[axis]! *= step;
  });
  return take(x!, shape, positions(shape, strides, first));
};

const gather: Operation = ([x, indices], attributes) => {
  const axis = fromFront(attributes.number("axis", 0), x!.shape.length);
  const strides = stridesOf(x!.shape);
  const rest = x!.shape.length - axis - 1;
  const shape = [...x!.shape.slice(0, axis), ...indices!.shape, ...x!.shape.slice(axis + 1)];
  const zeros = (count: number) => Array<number>(count).fill(0);
  const places = positions(shape, [
    ...strides.slice(0, axis),
    ...zeros(indices!.shape.length),
    ...strides.slice(axis + 1),
  ]);
  const from = positions(shape, [...zeros(axis), ...stridesOf(indices!.shape), ...zeros(rest)]);
  const index = (i: number) => checkIndex(indices!.values[from[i]!]!, x!.shape[axis]!);
  return take(x!, shape, places.map((place, i) => place + index(i) * strides[axis]!));
};

/** Where each element of `indices` points in `x`: its own index, but along `axis` the given one. */
function elementPlaces(x: NdArray, indices: NdArray, attributes: Attributes): Int32Array {
  const axis = fromFront(attributes.number("axis", 0), x.shape.length);
  const strides = stridesOf(x.shape);
  return positions(indices.shape, replaced(strides, axis, 0)).map((place, i) =>
    place + checkIndex(indices.values[i]!, x.shape[axis]!) * strides[axis]!
  );
}

/** Where each element of the updates of a ScatterND goes in `x`. */
function slicePlaces(x: NdArray, indices: NdArray): Int32Array {
  const depth = indices.shape.at(-1)!;
  const strides = stridesOf(x.shape);
  const block = elementCount(x.shape.slice(depth));
  const count = elementCount(indices.shape) / depth;
  const starts = Array.from({ length: count }, (_, row) => {
    let start = 0;
    for (let axis = 0; axis < depth; axis++) {
      start += checkIndex(indices.values[row * depth + axis]!, x.shape[axis]!) * strides[axis]!;
    }
    return start;
  });
  return Int32Array.from(
    { length: count * block },
    (_, i) => starts[Math.floor(i / block)]! + i % block,
  );
}

function scatter(
  x: NdArray,
  updates: NdArray,
  places: Int32Array,
  attributes: Attributes,
): NdArray {
  const reduction = attributes.string("reduction", "none");
  if (reduction !== "none" && reduction !== "add") {
    throw new TypeError(`Cannot scatter: reduction must be none or add, received ${reduction}`);
  }
  const sums = new Float64Array(x.values);
  places.forEach((place, i) => {
    sums[place] = updates.values[i]! + (reduction === "add" ? sums[place]! : 0);
  });
  return ndArray(x.dtype, x.shape, sums);
}

function checkIndex(index: number, size: number): number {
  if (index < -size || index >= size) {
    throw new RangeError(
      `Cannot use index ${index}: it must be in ${-size} .. ${size - 1} along this axis`,
    );
  }
  return fromFront(index, size);
}

/** Operations that move elements, by name. */
export const MOVEMENT: Readonly<Record<string, Operation>> = {
  Reshape: reshape,
  Transpose: transpose,
  Expand: expand,
  Split: split,
  Concat: concat,
  Slice: slice,
  Gather: gather,
  GatherElements: ([x, indices], attributes) =>
    take(x!, indices!.shape, elementPlaces(x!, indices!, attributes)),
  ScatterElements: ([x, indices, updates], attributes) =>
    scatter(x!, updates!, elementPlaces(x!, indices!, attributes), attributes),
  ScatterND: ([x, indices, updates], attributes) =>
    scatter(x!, updates!, slicePlaces(x!, indices!), attributes),
};
