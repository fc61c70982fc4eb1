/**
 * Gradients of operations that look elements up by index, and put them back.
 *
 * @module
 */

import { elementCount } from "../shapes.ts";
import type { Node, Value } from "../value.ts";
import { type GradientRule, padded, zeros } from "./rule.ts";

/** The rows of the gradient are added to those of the table, whose axis is brought to the front. */
const gather: GradientRule = (g, node, [dy]) => {
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
};

/** Whether a scatter adds. */
function isAddition({ op, attributes: { reduction } }: Node): boolean {
  if (reduction === "add" || reduction === "none") return reduction === "add";
  throw new TypeError(
    `Cannot differentiate ${op}: its reduction must be none or add, received ${reduction}`,
  );
}

/** Rules of gathers and scatters. */
export const GATHERS: Readonly<Record<string, GradientRule>> = {
  Gather: gather,
  GatherElements: (g, node, [dy]) => {
    const [x, indices] = node.inputs as [Value, Value], axis = node.attributes.axis as number;
    return [g.scatterElements(zeros(g, x.shape), indices, dy!, axis, "add")];
  },
  ScatterElements: (g, node, [dy], needed) => {
    const [, indices, updates] = node.inputs as [Value, Value, Value];
    const axis = node.attributes.axis as number;
    const rest = () => g.scatterElements(dy!, indices, zeros(g, updates.shape), axis);
    return [
      needed[0] ? isAddition(node) ? dy : rest() : undefined,
      undefined,
      needed[2] ? g.gatherElements(dy!, indices, axis) : undefined,
    ];
  },
  ScatterND: (g, node, [dy], needed) => {
    const [, indices, updates] = node.inputs as [Value, Value, Value];
    const rest = () => g.scatterND(dy!, indices, zeros(g, updates.shape));
    return [
      needed[0] ? isAddition(node) ? dy : rest() : undefined,
      undefined,
      needed[2] ? g.gatherND(dy!, indices) : undefined,
    ];
  },
};
