/**
 * Operations that look elements up by index, and put them back.
 *
 * @module
 */

import { type NodeGraph, one, type Value } from "../value.ts";
import { elementCount, positiveAxis } from "../shapes.ts";
import { MoveGraph } from "./moves.ts";

/** A graph to which gathers and scatters are added. */
export class GatherGraph extends MoveGraph {
  /** Entries of an axis, the first by default, by index; an axis [n] becomes the shape of the indices. */
  gather(table: Value, indices: Value, axis = 0): Value {
    const at = positiveAxis(axis, table.shape.length), { shape } = table;
    const fromFront = positiveIndices(this, indices, shape[at]!);
    return one(
      this,
      "Gather",
      [table, fromFront],
      [...shape.slice(0, at), ...indices.shape, ...shape.slice(at + 1)],
      { axis: at },
    );
  }
  /** An element for each of the indices: its own place, but along `axis` the index. */
  gatherElements(a: Value, indices: Value, axis: number): Value {
    const at = positiveAxis(axis, a.shape.length);
    const fromFront = positiveIndices(this, indices, a.shape[at]!);
    return one(this, "GatherElements", [a, fromFront], indices.shape, { axis: at });
  }
  /** What lies at the places that the last axis of `indices` [...n, k] names along the first k axes. */
  gatherND(a: Value, indices: Value): Value {
    return this.gather(this.#rows(a, indices), this.#rowIndices(a, indices));
  }
  /** A tensor with the axes as one that `indices` name. */
  #rows(a: Value, indices: Value): Value {
    const depth = indices.shape.at(-1)!;
    return this.reshape(a, [elementCount(a.shape.slice(0, depth)), ...a.shape.slice(depth)]);
  }
  /** Places along several axes as indices [...n] of the rows of {@linkcode #rows}. */
  #rowIndices(a: Value, indices: Value): Value {
    const depth = indices.shape.at(-1)!, shape = indices.shape.slice(0, -1);
    if (depth === 1) return this.reshape(indices, shape);
    const strides = Int32Array.from(
      { length: depth },
      (_, axis) => elementCount(a.shape.slice(axis + 1, depth)),
    );
    if (indices.data) {
      const numbers = Array.from(indices.data, Number);
      const rows = Int32Array.from(
        { length: numbers.length / depth },
        (_, row) =>
          strides.reduce((sum, stride, axis) => {
            const index = numbers[row * depth + axis]!;
            return sum + stride * (index < 0 ? index + a.shape[axis]! : index);
          }, 0),
      );
      return this.constant(rows, shape, "i32");
    }
    const places = this.mul(this.cast(indices, "i32"), this.constant(strides, [depth], "i32"));
    return one(this, "ReduceSum", [places, this.int64([shape.length])], shape, { keepdims: 0 });
  }
  /** `base` with `updates` in the places, or added to those, from where {@linkcode gatherElements} takes. */
  scatterElements(
    base: Value,
    indices: Value,
    updates: Value,
    axis: number,
    reduction: "none" | "add" = "none",
  ): Value {
    const attributes = { axis: positiveAxis(axis, base.shape.length), reduction };
    return one(this, "ScatterElements", [base, indices, updates], base.shape, attributes);
  }
  /** `base` with `updates` in the places, or added to those, from where {@linkcode gatherND} takes. */
  scatterND(
    base: Value,
    indices: Value,
    updates: Value,
    reduction: "none" | "add" = "none",
  ): Value {
    const rows = this.#rows(base, indices), count = elementCount(indices.shape.slice(0, -1));
    const column = this.reshape(this.#rowIndices(base, indices), [count, 1]);
    const flat = this.reshape(updates, [count, ...rows.shape.slice(1)]);
    const inputs = [rows, this.cast(column, "i64"), flat];
    return this.reshape(one(this, "ScatterND", inputs, rows.shape, { reduction }), base.shape);
  }
  /** `on` where the index is that of the place along a new axis, the last by default, else `off`. */
  oneHot(indices: Value, size: number, { axis = -1, on = 1, off = 0 } = {}): Value {
    const rank = indices.shape.length + 1, at = positiveAxis(axis, rank);
    const only = (own: number) => Array.from({ length: rank }, (_, i) => i === at ? own : 1);
    const places = Int32Array.from({ length: size }, (_, i) => i);
    const isPlace = this.equal(
      this.reshape(this.cast(indices, "i32"), indices.shape.toSpliced(at, 0, 1)),
      this.constant(places, only(size), "i32"),
    );
    return this.where(isPlace, this.scalar(on), this.scalar(off));
  }
  /** `base` with `updates` [n, ...] added to its rows `indices` [n]. */
  scatterAdd(base: Value, indices: Value, updates: Value): Value {
    const column = this.reshape(this.cast(indices, "i64"), [indices.shape[0]!, 1]);
    return one(this, "ScatterND", [base, column, updates], base.shape, { reduction: "add" });
  }
  /** `base` [n, k] with `updates` [n, 1] added to column `columns` [n] of each row. */
  scatterAddColumns(base: Value, columns: Value, updates: Value): Value {
    const at = this.reshape(columns, [columns.shape[0]!, 1]);
    return one(this, "ScatterElements", [base, at, updates], base.shape, {
      axis: 1,
      reduction: "add",
    });
  }
}

/** Indices with those below 0 counted from the front, where they are constant. */
function positiveIndices(g: NodeGraph, indices: Value, size: number): Value {
  const { data, shape, dtype } = indices;
  if (!data?.some((index) => index < 0)) return indices;
  const whole = Array.from(data, Number).map((index) => index < 0 ? index + size : index);
  return dtype === "i64"
    ? g.constant(BigInt64Array.from(whole, BigInt), shape, dtype)
    : g.constant(Int32Array.from(whole), shape, dtype);
}
