/**
 * Operations that read and write elements by index.
 *
 * @module
 */

import { assertInput, refusal } from "../errors.ts";
import { elementCount, type Ints, positiveAxis, sameShape } from "../graph/shapes.ts";
import {
  type Node,
  type NodeGraph,
  numberOf,
  type Settings,
  textOf,
  type Value,
  type ValueType,
} from "../graph/value.ts";
import { type NdArray, ndArray, positions, stridesOf, take } from "./array.ts";
import type { Builder } from "./builder.ts";
import {
  axisOf,
  type Call,
  checkMade,
  flat,
  type Known,
  type Methods,
  mustBe,
  neededNumbers,
  one,
  operand,
  operands,
  type Ops,
  padded,
  shaped,
  zeros,
} from "./op.ts";

function checkIndex(index: number, size: number): number {
  if (index >= -size && index < size) return positiveAxis(index, size);
  const must = `it must be in ${-size} .. ${size - 1} along this axis`;
  throw new RangeError(`Cannot use index ${index}: ${must}`);
}

/** Returns the place in `x` for each element of `indices`, which replaces the index along the axis. */
function elementPlaces(x: NdArray, indices: NdArray, node: Settings): Int32Array {
  const axis = axisOf(node, x.shape), strides = stridesOf(x.shape);
  return positions(indices.shape, strides.with(axis, 0)).map((place, i) =>
    place + checkIndex(indices.values[i]!, x.shape[axis]!) * strides[axis]!
  );
}

/** Returns the place in `x` of each element of the updates of a ScatterND. */
function slicePlaces(
  x: Pick<NdArray, "shape">,
  indices: { readonly shape: Ints; readonly values: ArrayLike<number> },
): Int32Array {
  const depth = indices.shape.at(-1)!, strides = stridesOf(x.shape);
  const block = elementCount(x.shape.slice(depth)), count = elementCount(indices.shape) / depth;
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

function scatter(x: NdArray, updates: NdArray, places: Int32Array, node: Settings): NdArray {
  const reduction = textOf(node, "reduction", "none");
  const isKnown = reduction === "none" || reduction === "add";
  assertInput(isKnown, "scatter", "reduction must be none or add", reduction, TypeError);
  const sums = new Float64Array(x.values);
  places.forEach((place, i) => {
    sums[place] = updates.values[i]! + (reduction === "add" ? sums[place]! : 0);
  });
  return ndArray(x, sums);
}

/** Refuses indices with other axes than the tensor, or larger ones beside the axis of the index. */
function checkElementPlaces(known: Known): void {
  const [{ shape }, indices] = known.inputs, axis = axisOf(known, shape), own = indices!.shape;
  const fits = own.length === shape.length &&
    own.every((size, i) => i === axis || size <= shape[i]!);
  const must = `indices must have the axes of [${shape}], at most as large except for axis ${axis}`;
  assertInput(fits, "use indices", must, `[${own}]`);
}

/** Refuses updates with another shape. */
function checkUpdates(wanted: Ints, { shape }: ValueType): void {
  assertInput(sameShape(shape, wanted), "scatter", `updates must be [${wanted}]`, `[${shape}]`);
}

/** Returns whether a scatter adds. */
function isAddition({ op, attributes: { reduction } }: Node): boolean {
  if (reduction === "add" || reduction === "none") return reduction === "add";
  throw refusal(`differentiate ${op}`, "its reduction must be none or add", reduction, TypeError);
}

const reductionOf = (call: Call) => mustBe(call, "reduction", "none", ["none", "add"]);

/** Gathers and scatters. */
export const GATHERS: Ops = {
  Gather: {
    shape: (known) => {
      const [{ shape }, indices] = known.inputs;
      return shaped(known, shape.toSpliced(axisOf(known, shape), 1, ...indices!.shape));
    },
    // The rows of the gradient are added to those of the table, whose axis is brought to the front.
    gradient: (g, node, [dy]) => {
      const [table, indices] = node.inputs as [Value, Value], { shape } = table;
      const axis = node.attributes.axis as number, count = elementCount(indices.shape);
      const all = g.reshape(dy!, shape.with(axis, count));
      if (count === 1 && indices.data) {
        return [padded(g, all, axis, Number(indices.data[0]), shape[axis]!)];
      }
      const places = shape.map((_, i) => i), others = places.filter((i) => i !== axis);
      const toFront = [axis, ...others], isFirst = axis === 0;
      const rows = isFirst ? all : g.transpose(all, toFront);
      const base = zeros(g, toFront.map((place) => shape[place]!));
      const sums = g.scatterAdd(base, g.reshape(indices, [count]), rows);
      return [isFirst ? sums : g.transpose(sums, places.map((place) => toFront.indexOf(place)))];
    },
    reference: ([x, indices], node, [{ shape }]) => {
      const axis = axisOf(node, x.shape), strides = stridesOf(x.shape);
      const rest = x.shape.length - axis - 1;
      const zeros = (count: number) => Array<number>(count).fill(0);
      const places = positions(shape, strides.toSpliced(axis, 1, ...zeros(indices!.shape.length)));
      const from = positions(shape, [...zeros(axis), ...stridesOf(indices!.shape), ...zeros(rest)]);
      const index = (i: number) => checkIndex(indices!.values[from[i]!]!, x.shape[axis]!);
      return take(x, shape, places.map((place, i) => place + index(i) * strides[axis]!));
    },
    read: (call) => {
      const [x, at] = operands(call, 2);
      // A field is used without a cast, so that its bounds are found.
      const [source] = at.node?.op === "Cast" ? at.node.inputs : [];
      const indices = source?.dtype === "i32" && at.dtype === "i64" ? source : at;
      return call.g.gather(x, indices, numberOf(call, "axis", 0));
    },
  },
  GatherElements: {
    shape: (known) => {
      checkElementPlaces(known);
      return shaped(known, known.inputs[1]!.shape);
    },
    gradient: (g, node, [dy]) => {
      const [x, indices] = node.inputs as [Value, Value], axis = node.attributes.axis as number;
      return [g.scatterElements(zeros(g, x.shape), indices, dy!, axis, "add")];
    },
    reference: ([x, indices], node) => take(x, indices!.shape, elementPlaces(x, indices!, node)),
    read: (call) => call.g.gatherElements(...operands(call, 2), numberOf(call, "axis", 0)),
  },
  GatherND: {
    read: (call) => {
      mustBe(call, "batch_dims", 0, [0]);
      return call.g.gatherND(...operands(call, 2));
    },
  },
  ScatterElements: {
    shape: (known) => {
      const [x, indices, updates] = known.inputs;
      checkElementPlaces(known);
      checkUpdates(indices!.shape, updates!);
      return [x];
    },
    gradient: (g, node, [dy]) => {
      const [, indices, updates] = node.inputs as [Value, Value, Value];
      const axis = node.attributes.axis as number;
      const rest = () => g.scatterElements(dy!, indices, zeros(g, updates.shape), axis);
      const added = () => g.gatherElements(dy!, indices, axis);
      return [isAddition(node) ? dy : rest, undefined, added];
    },
    reference: ([x, indices, updates], node) =>
      scatter(x, updates!, elementPlaces(x, indices!, node), node),
    read: (call) =>
      call.g.scatterElements(...operands(call, 3), numberOf(call, "axis", 0), reductionOf(call)),
  },
  ScatterND: {
    shape: ({ inputs: [x, indices, updates] }) => {
      const outer = indices!.shape.slice(0, -1), depth = indices!.shape.at(-1)!;
      checkUpdates([...outer, ...x.shape.slice(depth)], updates!);
      return [x];
    },
    gradient: (g, node, [dy]) => {
      const [, indices, updates] = node.inputs as [Value, Value, Value];
      const rest = () => g.scatterND(dy!, indices, zeros(g, updates.shape));
      return [isAddition(node) ? dy : rest, undefined, () => g.gatherND(dy!, indices)];
    },
    reference: ([x, indices, updates], node) =>
      scatter(x, updates!, slicePlaces(x, indices!), node),
    read: (call) => call.g.scatterND(...operands(call, 3), reductionOf(call)),
  },
  OneHot: {
    settings: [1, 2],
    gradient: flat,
    read: (call) => {
      const [size = 0] = neededNumbers(call, 1), [off = 0, on = 1] = neededNumbers(call, 2);
      checkMade("its depth", size);
      return call.g.oneHot(operand(call, 0), size, { axis: numberOf(call, "axis", -1), on, off });
    },
  },
};

/** Counts negative indices from the front, if they are constant. @throws {RangeError} if one is outside. */
function positiveIndices(g: NodeGraph, indices: Value, size: number): Value {
  const { data, shape, dtype } = indices;
  if (!data) return indices;
  const whole = Array.from(data, Number).map((index) => checkIndex(index, size));
  if (!data.some((index) => index < 0)) return indices;
  return dtype === "i64"
    ? g.constant(BigInt64Array.from(whole, BigInt), shape, dtype)
    : g.constant(Int32Array.from(whole), shape, dtype);
}

/** Merges the axes that `indices` address. */
function rowsOf(g: Builder, a: Value, indices: Value): Value {
  const depth = indices.shape.at(-1) ?? 0, must = `their last axis must be 1 .. ${a.shape.length}`;
  assertInput(depth >= 1 && depth <= a.shape.length, "use indices", must, `[${indices.shape}]`);
  return g.reshape(a, [elementCount(a.shape.slice(0, depth)), ...a.shape.slice(depth)]);
}

/** Converts indices of several axes to indices [...n] of the rows of {@linkcode rowsOf}. */
function rowIndices(g: Builder, a: Value, indices: Value): Value {
  const depth = indices.shape.at(-1)!, shape = indices.shape.slice(0, -1);
  if (depth === 1) return g.reshape(indices, shape);
  const addressed = a.shape.slice(0, depth), strides = Int32Array.from(stridesOf(addressed));
  if (indices.data) {
    const values = Array.from(indices.data, Number);
    const rows = slicePlaces({ shape: addressed }, { shape: indices.shape, values });
    return g.constant(rows, shape, "i32");
  }
  const places = g.mul(g.cast(indices, "i32"), g.constant(strides, [depth], "i32"));
  return g.sum(places, [shape.length]);
}

function gathered(g: Builder, op: string, a: Value, indices: Value, axis: number): Value {
  const at = positiveAxis(axis, a.shape.length);
  return one(g, GATHERS, op, [a, positiveIndices(g, indices, a.shape[at]!)], { axis: at });
}

/** Methods that add gathers and scatters. */
export const GATHER_METHODS: Methods = {
  gather: (g, table, indices, axis = 0) => gathered(g, "Gather", table, indices, axis),
  gatherElements: (g, a, indices, axis) => gathered(g, "GatherElements", a, indices, axis),
  gatherND: (g, a, indices) => g.gather(rowsOf(g, a, indices), rowIndices(g, a, indices)),
  scatterElements: (g, base, indices, updates, axis, reduction = "none") =>
    one(g, GATHERS, "ScatterElements", [base, indices, updates], {
      axis: positiveAxis(axis, base.shape.length),
      reduction,
    }),
  scatterND: (g, base, indices, updates, reduction = "none") => {
    const rows = rowsOf(g, base, indices), count = elementCount(indices.shape.slice(0, -1));
    const column = g.reshape(rowIndices(g, base, indices), [count, 1]);
    const flat = g.reshape(updates, [count, ...rows.shape.slice(1)]);
    const inputs = [rows, g.cast(column, "i64"), flat];
    return g.reshape(one(g, GATHERS, "ScatterND", inputs, { reduction }), base.shape);
  },
  oneHot: (g, indices, size, { axis = -1, on = 1, off = 0 } = {}) => {
    const rank = indices.shape.length + 1, at = positiveAxis(axis, rank);
    const only = (own: number) => Array.from({ length: rank }, (_, i) => i === at ? own : 1);
    const places = Int32Array.from({ length: size }, (_, i) => i);
    const isPlace = g.equal(
      g.reshape(g.cast(indices, "i32"), indices.shape.toSpliced(at, 0, 1)),
      g.constant(places, only(size), "i32"),
    );
    return g.where(isPlace, g.scalar(on), g.scalar(off));
  },
  scatterAdd: (g, base, indices, updates) => {
    const column = g.reshape(g.cast(indices, "i64"), [indices.shape[0]!, 1]);
    return one(g, GATHERS, "ScatterND", [base, column, updates], { reduction: "add" });
  },
  scatterAddColumns: (g, base, columns, updates) => {
    const at = g.reshape(columns, [columns.shape[0]!, 1]);
    return one(g, GATHERS, "ScatterElements", [base, at, updates], { axis: 1, reduction: "add" });
  },
};
