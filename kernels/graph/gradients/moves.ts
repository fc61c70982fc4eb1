/**
 * Gradients of operations that move elements without computing.
 *
 * @module
 */

import type { Graph } from "../graph.ts";
import type { Value } from "../value.ts";
import { type GradientRule, padded, unary, unbroadcast, zeros } from "./rule.ts";

/** Puts what was cut from an axis of `size` back in its places, with 0 between. */
function putBack(
  g: Graph,
  dy: Value,
  axis: number,
  { start, step, size }: { start: number; step: number; size: number },
): Value {
  const count = dy.shape[axis]!;
  if (step < 0) {
    const backwards = g.cut(dy, [-1], [-Infinity], [axis], [-1]);
    return putBack(g, backwards, axis, { start: start + (count - 1) * step, step: -step, size });
  }
  const spread = () =>
    padded(g, g.reshape(dy, dy.shape.toSpliced(axis + 1, 0, 1)), axis + 1, 0, step);
  const whole = step === 1 ? dy : g.reshape(spread(), dy.shape.with(axis, count * step));
  const fitting = g.cut(whole, [0], [size - start], [axis]);
  return padded(g, fitting, axis, start, size);
}

const slice: GradientRule = (g, node, [dy]) => {
  const [x, ...numbers] = node.inputs as [Value, ...Value[]];
  const [starts, , axes, steps] = numbers.map(({ data }) => Array.from(data!, Number));
  return [starts!.reduce((rest, start, i) => {
    const axis = axes![i]!;
    return putBack(g, rest, axis, { start, step: steps?.[i] ?? 1, size: x.shape[axis]! });
  }, dy!)];
};

/** Rules of operations that move elements. */
export const MOVES: Readonly<Record<string, GradientRule>> = {
  Reshape: unary((g, dy, x) => g.reshape(dy, x.shape)),
  Expand: unary((g, dy, x) => unbroadcast(g, dy, x.shape)),
  Transpose: unary((g, dy, _x, _y, node) => {
    const permutation = node.attributes.perm as readonly number[];
    return g.transpose(dy, permutation.map((_, axis) => permutation.indexOf(axis)));
  }),
  Split: (g, node, cotangents) => {
    const parts = cotangents.map((dy, i) => dy ?? zeros(g, node.outputs[i]!.shape));
    return [g.concat(parts, node.attributes.axis as number)];
  },
  Concat: (g, node, [dy]) => {
    const axis = node.attributes.axis as number, sizes = node.inputs.map((x) => x.shape[axis]!);
    if (sizes.length === 1) return [dy];
    return g.split(dy!, axis, sizes.every((size) => size === sizes[0]) ? sizes.length : sizes);
  },
  Slice: slice,
};
