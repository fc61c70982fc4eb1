/**
 * Gradients of operations that move elements without computing.
 *
 * @module
 */

import { elementCount } from "../shapes.ts";
import type { Value } from "../value.ts";
import { type GradientRule, unary, unbroadcast, zeros } from "./rule.ts";

/** Rules of operations that move elements. */
export const MOVES: Readonly<Record<string, GradientRule>> = {
  Reshape: unary((g, dy, x) => g.reshape(dy, x.shape)),
  Expand: unary((g, dy, x) => unbroadcast(g, dy, x.shape)),
  Transpose: unary((g, dy, _x, _y, node) => {
    const permutation = node.attributes.perm as readonly number[];
    return g.transpose(dy, permutation.map((_, axis) => permutation.indexOf(axis)));
  }),
  Split: (g, node, cotangents) => {
    const part = node.outputs[0]!.shape;
    const parts = cotangents.map((dy) => dy ?? g.expand(g.scalar(0), part));
    return [g.concat(parts, node.attributes.axis as number)];
  },
  Concat: (g, node, [dy]) => {
    const axis = node.attributes.axis as number, sizes = node.inputs.map((x) => x.shape[axis]!);
    if (sizes.some((size) => size !== sizes[0])) {
      throw new TypeError("Cannot differentiate Concat: its inputs must have equal sizes");
    }
    return sizes.length === 1 ? [dy] : g.split(dy!, axis, sizes.length);
  },
  Gather: (g, node, [dy]) => {
    const [table, indices] = node.inputs as [Value, Value];
    const count = elementCount(indices.shape);
    const rows = g.reshape(dy!, [count, ...table.shape.slice(1)]);
    return [g.scatterAdd(zeros(g, table.shape), g.reshape(indices, [count]), rows)];
  },
};
