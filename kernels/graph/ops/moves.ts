/**
 * Operations that move elements without computing.
 *
 * @module
 */

import { one } from "../node_graph.ts";
import {
  broadcastShape,
  elementCount,
  joinedShape,
  partShape,
  positiveAxis,
  sameShape,
  transposedShape,
} from "../shapes.ts";
import type { Value } from "../value.ts";
import { ElementwiseGraph } from "./elementwise.ts";

/** A graph to which operations that move elements are added. */
export class MoveGraph extends ElementwiseGraph {
  /** The same elements in another shape; free. */
  reshape(a: Value, shape: readonly number[]): Value {
    if (sameShape(a.shape, shape)) return a;
    if (elementCount(shape) !== elementCount(a.shape)) {
      throw new RangeError(
        `Cannot reshape: the number of elements must stay, received [${a.shape}] and [${shape}]`,
      );
    }
    return one(this, "Reshape", [a, this.int64(shape)], shape);
  }
  /** Axes in another order. */
  transpose(a: Value, permutation: readonly number[]): Value {
    return one(this, "Transpose", [a], transposedShape(a.shape, permutation), {
      perm: permutation,
    });
  }
  /** Repeats axes of size one. */
  expand(a: Value, shape: readonly number[]): Value {
    if (sameShape(a.shape, shape)) return a;
    if (!sameShape(broadcastShape(a.shape, shape), shape)) {
      throw new RangeError(`Cannot expand: [${a.shape}] must broadcast to [${shape}]`);
    }
    return one(this, "Expand", [a, this.int64(shape)], shape);
  }
  /** `count` equal parts along an axis. */
  split(a: Value, axis: number, count: number): Value[] {
    const at = positiveAxis(axis, a.shape.length);
    const part = partShape(a.shape, at, count);
    const outputs = Array.from({ length: count }, () => part);
    return this.node("Split", [a], outputs, { axis: at, num_outputs: count });
  }
  /** Joins tensors along an axis. */
  concat(values: readonly Value[], axis: number): Value {
    const at = positiveAxis(axis, values[0]!.shape.length);
    return one(this, "Concat", values, joinedShape(values.map(({ shape }) => shape), at), {
      axis: at,
    });
  }

  /** Rows of a table by int32 index: [rows, ...] and [...n] give [...n, ...]. */
  gather(table: Value, indices: Value): Value {
    return one(this, "Gather", [table, indices], [...indices.shape, ...table.shape.slice(1)], {
      axis: 0,
    });
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
