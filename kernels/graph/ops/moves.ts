/**
 * Operations that move elements without computing.
 *
 * @module
 */

import { one, type Value } from "../value.ts";
import {
  broadcastShape,
  type Cut,
  cutOf,
  elementCount,
  endOf,
  joinedShape,
  partShape,
  partShapes,
  positiveAxis,
  sameShape,
  transposedShape,
} from "../shapes.ts";
import { ChoiceGraph } from "./choices.ts";

/** A graph to which operations that move elements are added. */
export class MoveGraph extends ChoiceGraph {
  /**
   * The same elements in another shape; free. One size may be -1: it follows from the others.
   *
   * @example
   * ```ts
   * import assert from "node:assert/strict";
   * import { Graph } from "@troupe/troupe/kernels";
   *
   * const g = new Graph(), x = g.input("x", [8, 3, 4]);
   * assert.deepEqual(g.reshape(x, [8, -1]).shape, [8, 12]);
   * assert.deepEqual(g.flatten(x).shape, [8, 12]);
   * ```
   */
  reshape(a: Value, shape: readonly number[]): Value {
    const free = shape.indexOf(-1), others = -elementCount(shape);
    const sizes = free < 0 ? shape : shape.with(free, elementCount(a.shape) / others);
    if (sameShape(a.shape, sizes)) return a;
    const isShape = sizes.every((size) => Number.isInteger(size) && size >= 0);
    if (!isShape || elementCount(sizes) !== elementCount(a.shape)) {
      throw new RangeError(
        `Cannot reshape: the number of elements must stay, and at most one size be -1, received [${a.shape}] and [${shape}]`,
      );
    }
    return one(this, "Reshape", [a, this.int64(sizes)], sizes);
  }
  /** A matrix: its rows are the axes before `axis`, the first one by default, its columns the others. */
  flatten(a: Value, axis = 1): Value {
    const at = axis === a.shape.length ? axis : positiveAxis(axis, a.shape.length);
    return this.reshape(a, [a.shape.slice(0, at), a.shape.slice(at)].map(elementCount));
  }
  /**
   * `a` itself, behind which no gradient flows. It says of a gradient that ends here, or at a
   * comparison or a rounding before, that this is wanted: a parameter whose effect on the loss passes
   * through such places only is not trained, as if it were frozen.
   *
   * @example Rounds forward, and passes the gradient on as if it did not
   * ```ts
   * import assert from "node:assert/strict";
   * import { Graph } from "@troupe/troupe/kernels";
   *
   * const g = new Graph(), x = g.input("x", [4]);
   * const rounded = g.add(x, g.stopGradient(g.sub(g.round(x), x)));
   * assert.deepEqual(rounded.shape, [4]);
   * ```
   */
  stopGradient(a: Value): Value {
    const copy = one(this, "Identity", [a], a.shape);
    this.stops.add(copy.node!);
    return copy;
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
  /** Parts along an axis: so many equal ones, or of these sizes. */
  split(a: Value, axis: number, parts: number | readonly number[]): Value[] {
    const at = positiveAxis(axis, a.shape.length);
    if (typeof parts === "number") {
      const part = partShape(a.shape, at, parts);
      const outputs = Array.from({ length: parts }, () => part);
      return this.node("Split", [a], outputs, { axis: at, num_outputs: parts });
    }
    return this.node("Split", [a, this.int64(parts)], partShapes(a.shape, at, parts), { axis: at });
  }
  /** Joins tensors along an axis. */
  concat(values: readonly Value[], axis: number): Value {
    const at = positiveAxis(axis, values[0]!.shape.length);
    return one(this, "Concat", values, joinedShape(values.map(({ shape }) => shape), at), {
      axis: at,
    });
  }

  /**
   * ONNX's Slice: elements from `starts` to before `ends` along some axes, the first ones by default, each `steps`
   * after the one before; numbers below 0 count from the end, those beyond an end mean it.
   */
  cut(
    a: Value,
    starts: readonly number[],
    ends: readonly number[],
    axes: readonly number[] = starts.map((_, i) => i),
    steps: readonly number[] = starts.map(() => 1),
  ): Value {
    if ([starts, ends, steps].some(({ length }) => length !== axes.length) || steps.includes(0)) {
      throw new RangeError(
        `Cannot cut a tensor: each of ${axes.length} axes must have a start, an end and a step ` +
          `that is not 0, received [${starts}], [${ends}] and [${steps}]`,
      );
    }
    const cuts = axes.map((axis, i): Cut => {
      const at = positiveAxis(axis, a.shape.length);
      return { axis: at, ...cutOf(a.shape[at]!, starts[i]!, ends[i]!, steps[i]!) };
    }).filter(({ axis, start, count, step }) =>
      start !== 0 || step !== 1 || count !== a.shape[axis]!
    );
    if (cuts.length === 0) return a;
    const numbers = (of: (cut: Cut) => number) => this.int64(cuts.map(of));
    const isForwards = cuts.every(({ step }) => step === 1);
    return one(this, "Slice", [
      a,
      numbers(({ start }) => start),
      numbers((cut) => endOf(cut, a.shape[cut.axis]!)),
      numbers(({ axis }) => axis),
      ...isForwards ? [] : [numbers(({ step }) => step)],
    ], a.shape.map((size, axis) => cuts.find((cut) => cut.axis === axis)?.count ?? size));
  }
  /** All elements so many times along each axis. */
  tile(a: Value, repeats: readonly number[]): Value {
    const pairs = (of: (i: number) => readonly number[]) => a.shape.flatMap((_, i) => of(i));
    const apart = this.reshape(a, pairs((i) => [1, a.shape[i]!]));
    const repeated = this.expand(apart, pairs((i) => [repeats[i]!, a.shape[i]!]));
    return this.reshape(repeated, a.shape.map((size, i) => size * repeats[i]!));
  }
  /**
   * The lower triangle of the last two axes, or the upper one: from, or up to, the diagonal that lies
   * `diagonal` to the right of the main one; 0 elsewhere.
   */
  triangle(a: Value, which: "lower" | "upper", diagonal = 0): Value {
    const [rows, columns] = a.shape.slice(-2) as [number, number];
    const isKept = Uint8Array.from({ length: rows * columns }, (_, i) => {
      const right = i % columns - Math.floor(i / columns);
      return +(which === "lower" ? right <= diagonal : right >= diagonal);
    });
    const zero = this.cast(this.scalar(0), a.dtype);
    return this.where(this.constant(isKept, [rows, columns], "bool"), a, zero);
  }
  /**
   * [n, c, h, w] as [n, c/b², h·b, w·b]: channels become blocks of b × b places, those of a block next to
   * each other ("CRD", as PyTorch's pixel shuffle) or not ("DCR").
   */
  depthToSpace(a: Value, block: number, mode: "CRD" | "DCR" = "CRD"): Value {
    const [n, c, h, w] = a.shape as [number, number, number, number], rest = c / block ** 2;
    const isNear = mode === "CRD";
    const apart = this.reshape(a, [
      n,
      ...isNear ? [rest, block, block] : [block, block, rest],
      h,
      w,
    ]);
    const turned = this.transpose(apart, isNear ? [0, 1, 4, 2, 5, 3] : [0, 3, 4, 1, 5, 2]);
    return this.reshape(turned, [n, rest, h * block, w * block]);
  }
}
