/**
 * Operations that resize or pad images.
 *
 * @module
 */

import { assertInput } from "../errors.ts";
import { elementCount, type Ints, positiveAxis } from "../graph/shapes.ts";
import { textOf, type Value } from "../graph/value.ts";
import { mapIndices, ndArray, put, stridesOf, take } from "./array.ts";
import type { Builder, InterpolationOptions } from "./builder.ts";
import {
  type Call,
  checkMade,
  constantNumbers,
  intsOf,
  type Methods,
  mustBe,
  one,
  type Op,
  operand,
  type Ops,
  shaped,
  slope,
} from "./op.ts";

type Interpolation = Required<InterpolationOptions>;

/** Returns the position in an axis of `from` elements of element i of `to`. */
type Coordinate = (i: number, from: number, to: number) => number;

const COORDINATES: Readonly<Record<Interpolation["coordinates"], Coordinate>> = {
  half_pixel: (i, from, to) => (i + 0.5) * from / to - 0.5,
  pytorch_half_pixel: (i, from, to) => to > 1 ? (i + 0.5) * from / to - 0.5 : 0,
  align_corners: (i, from, to) => to > 1 ? i * (from - 1) / (to - 1) : 0,
  asymmetric: (i, from, to) => i * from / to,
};

const NEAREST: Readonly<Record<Interpolation["nearest"], (at: number) => number>> = {
  round_prefer_floor: (at) => Math.ceil(at - 0.5),
  round_prefer_ceil: (at) => Math.floor(at + 0.5),
  floor: Math.floor,
  ceil: Math.ceil,
};

const keysOf = <Key extends string>(record: Readonly<Record<Key, unknown>>) =>
  Object.keys(record) as Key[];

/** Returns the weights [to, from] of an axis whose rows are sums of shares, of places limited to it. */
function weightsOf(
  from: number,
  to: number,
  sharesOf: (row: number) => readonly (readonly [place: number, share: number])[],
): Float32Array {
  const weights = new Float32Array(to * from);
  for (let row = 0; row < to; row++) {
    for (const [place, share] of sharesOf(row)) {
      weights[row * from + Math.min(Math.max(place, 0), from - 1)]! += share;
    }
  }
  return weights;
}

/** Returns the weights [to, from] of an interpolation along an axis; undefined if nothing changes. */
function interpolationWeights(
  from: number,
  to: number,
  { mode = "nearest", coordinates = "half_pixel", nearest = "round_prefer_floor" }:
    InterpolationOptions,
): Float32Array | undefined {
  if (from === to) return undefined;
  return weightsOf(from, to, (row) => {
    const at = COORDINATES[coordinates](row, from, to), below = Math.floor(at);
    if (mode === "nearest") return [[NEAREST[nearest](at), 1]];
    return [[below, 1 - (at - below)], [below + 1, at - below]];
  });
}

/**
 * Returns the weights of padding with elements of the axis; undefined if nothing is padded.
 *
 * @throws {RangeError} when the padding is larger than the axis.
 */
function paddingWeights(
  from: number,
  [before, behind]: readonly [number, number],
  how: "edge" | "reflect",
): Float32Array | undefined {
  if (before === 0 && behind === 0) return undefined;
  const isInside = how === "edge" || Math.max(before, behind) < from;
  const must = `pads must be smaller than the axis, ${from}`;
  assertInput(isInside, "reflect", must, `${before} and ${behind}`);
  return weightsOf(from, before + from + behind, (row) => {
    const at = row - before, last = from - 1;
    return [[how === "edge" ? at : at > last ? 2 * last - at : Math.abs(at), 1]];
  });
}

/** Multiplies an axis by weights [to, from], if there are any. */
function combined(g: Builder, x: Value, axis: number, weights: Float32Array | undefined): Value {
  if (!weights) return x;
  const { shape } = x, from = shape[axis]!, to = weights.length / from;
  const behind = shape.slice(axis + 1), matrix = g.constant(weights, [to, from]);
  if (behind.length === 0) return g.matmul(x, matrix, { transB: true });
  const before = elementCount(shape.slice(0, axis));
  const matrices = g.reshape(x, [before, from, elementCount(behind)]);
  return g.reshape(g.matmul(matrix, matrices), shape.with(axis, to));
}

/** Returns the sizes of the result of a Resize, from sizes or factors. */
function resizedShape(call: Call): Ints {
  const { shape } = operand(call, 0), factors = constantNumbers(call, 2) ?? [];
  const sizes = constantNumbers(call, 3) ?? [];
  const axes = intsOf(call, "axes") ?? shape.map((_, axis) => axis);
  mustBe(call, "keep_aspect_ratio_policy", "stretch", ["stretch"]);
  const result = shape.map((size, axis) => {
    const at = axes.indexOf(axis);
    return at < 0 ? size : sizes[at] ?? size * factors[at]!;
  });
  const isWhole = result.every((size) => Number.isInteger(size) && size >= 1);
  if (isWhole && result[0] === shape[0] && result[1] === shape[1]) return result;
  const must = "the sizes of its result must be positive integers, with equal samples and channels";
  throw new RangeError(`${must}, received [${result}] of [${shape}]`);
}

const resize: Op = {
  settings: [1, 2, 3],
  shape: (known) => {
    const sizes = known.numbers(3);
    return sizes && shaped(known, sizes);
  },
  // The gradient of an element is the sum of those of its copies.
  gradient: slope((g, dy, x) => {
    const [n = 0, channels = 0, ...sizes] = x.shape, images = n * channels;
    const wide = dy.shape.slice(2), factors = wide.map((size, axis) => size / sizes[axis]!);
    const ones = g.constant(new Float32Array(elementCount(factors)).fill(1), [1, 1, ...factors]);
    const sums = g.conv(g.reshape(dy, [images, 1, ...wide]), ones, undefined, { strides: factors });
    return g.reshape(sums, x.shape);
  }),
  // Only the form that graphs use: elements are repeated.
  reference: ([x], node, [{ shape }]) => {
    const strides = stridesOf(x.shape);
    const isRepeated = shape.length === x.shape.length &&
      shape.every((size, axis) => size % x.shape[axis]! === 0);
    const isFloor = textOf(node, "nearest_mode", "round_prefer_floor") === "floor" &&
      textOf(node, "coordinate_transformation_mode", "half_pixel") === "asymmetric";
    const isKnown = isRepeated && isFloor && textOf(node, "mode", "nearest") === "nearest";
    const must = `sizes must be multiples of [${x.shape}], in the mode nearest, asymmetric, floor`;
    assertInput(isKnown, "resize", must, `[${shape}]`, TypeError);
    const placeOf = (at: number, axis: number) =>
      Math.floor(at * x.shape[axis]! / shape[axis]!) * strides[axis]!;
    const places = mapIndices(
      shape,
      (index) => index.reduce((sum, at, axis) => sum + placeOf(at, axis), 0),
    );
    return take(x, shape, places);
  },
  read: (call) => {
    const x = operand(call, 0), { shape } = x, result = resizedShape(call);
    const mode = mustBe(call, "mode", "nearest", ["nearest", "linear"]);
    mustBe(call, "antialias", 0, [0]);
    const places = "coordinate_transformation_mode";
    const coordinates = mustBe(call, places, "half_pixel", keysOf(COORDINATES));
    const nearest = mustBe(call, "nearest_mode", "round_prefer_floor", keysOf(NEAREST));
    const factors = result.map((size, axis) => size / shape[axis]!);
    const isRepeated = mode === "nearest" && factors.every(Number.isInteger) &&
      (coordinates === "asymmetric"
        ? nearest === "floor"
        : coordinates.endsWith("half_pixel") && nearest.startsWith("round_prefer_"));
    if (isRepeated) return call.g.upsample(x, factors.slice(2));
    for (const [axis, size] of result.entries()) {
      checkMade("old sizes times new ones", size === shape[axis] ? 0 : size * shape[axis]!);
    }
    return call.g.resize(x, result.slice(2), { mode, coordinates, nearest });
  },
};

const pad: Op = {
  settings: [1, 2],
  shape: (known) => {
    const [x] = known.inputs, pads = known.numbers(1), rank = x.shape.length;
    if (!pads || known.inputs[3]) return undefined;
    return shaped(known, x.shape.map((size, i) => pads[i]! + size + pads[rank + i]!));
  },
  // Removes the padding.
  gradient: slope((g, dy, x, _, node) => {
    const pads = [...node.inputs[1]!.data as BigInt64Array].map(Number), rank = x.shape.length;
    const ends = x.shape.map((size, axis) => pads[axis]! + size);
    return g.node("Slice", [dy, g.int64(pads.slice(0, rank)), g.int64(ends)], [x.shape])[0]!;
  }),
  reference: ([x, pads, value], node, [type]) => {
    const mode = textOf(node, "mode", "constant"), result = ndArray(type);
    assertInput(mode === "constant", "pad", "the mode must be constant", mode, TypeError);
    result.values.fill(value?.values[0] ?? 0);
    const strides = stridesOf(type.shape);
    put(result, x, strides.reduce((sum, stride, axis) => sum + stride * pads!.values[axis]!, 0));
    return result;
  },
  read: (call) => {
    const x = operand(call, 0), rank = x.shape.length, pads = constantNumbers(call, 1) ?? [];
    const mode = mustBe(call, "mode", "constant", ["constant", "edge", "reflect"]);
    const given = constantNumbers(call, 3) ?? [...x.shape.keys()];
    const axes = given.map((axis) => positiveAxis(axis, rank));
    const all = Array<number>(2 * rank).fill(0);
    for (const [i, axis] of axes.entries()) {
      all[axis] = pads[i]!;
      all[rank + axis] = pads[axes.length + i]!;
    }
    const value = constantNumbers(call, 2)?.[0] ?? 0;
    if (mode === "constant") return call.g.pad(x, all, value);
    for (const [axis, size] of x.shape.entries()) {
      checkMade("old sizes times new ones", size * (size + all[axis]! + all[rank + axis]!));
    }
    return call.g.pad(x, all, mode);
  },
};

/** Operations that resize or pad images. */
export const IMAGES: Ops = { Resize: resize, Pad: pad };

/** Methods that resize or pad images. */
export const IMAGE_METHODS: Methods = {
  upsample: (g, x, factors) => {
    const [n = 0, channels = 0, ...sizes] = x.shape, rank = x.shape.length;
    const times = sizes.map((_, axis) => typeof factors === "number" ? factors : factors[axis]!);
    const areCounts = times.every((factor) => Number.isInteger(factor) && factor >= 1);
    const must = "x must be [n, channels, ...sizes], and factors whole numbers from 1";
    assertInput(rank >= 3 && areCounts, "repeat elements", must, `[${x.shape}] and [${factors}]`);
    const shape = [n, channels, ...sizes.map((size, axis) => size * times[axis]!)];
    const none = g.constant(new Float32Array(0), [0]);
    return one(g, IMAGES, "Resize", [x, none, none, g.int64(shape)], {
      mode: "nearest",
      coordinate_transformation_mode: "asymmetric",
      nearest_mode: "floor",
    });
  },
  resize: (g, x, sizes, options = {}) => {
    const from = x.shape.slice(2);
    const areSizes = sizes.length === from.length && sizes.every((to) => to >= 1);
    const must = `sizes must be ${from.length} whole numbers from 1`;
    assertInput(areSizes, `resize [${x.shape}]`, must, `[${sizes}]`);
    return sizes.reduce(
      (y, to, axis) => combined(g, y, axis + 2, interpolationWeights(from[axis]!, to, options)),
      x,
    );
  },
  pad: (g, x, pads, value = 0) => {
    const rank = x.shape.length;
    const arePads = pads.length === 2 * rank && pads.every((pad) => pad >= 0);
    const must = `pads must be ${2 * rank} whole numbers from 0`;
    assertInput(arePads, `pad [${x.shape}]`, must, `[${pads}]`);
    if (rank === 0) return x;
    if (typeof value === "number") {
      return one(g, IMAGES, "Pad", [x, g.int64(pads), g.scalar(value, x.dtype)]);
    }
    return x.shape.reduce((y, size, axis) => {
      const around = [pads[axis]!, pads[rank + axis]!] as const;
      return combined(g, y, axis, paddingWeights(size, around, value));
    }, x);
  },
};
