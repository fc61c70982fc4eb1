/**
 * What rules of gradients are made of.
 *
 * @module
 */

import type { Graph } from "../graph.ts";
import { sameShape } from "../shapes.ts";
import { type FusedOp, type Node, TROUPE, type Value } from "../value.ts";

/** Computes the cotangents of a node's inputs from those of its outputs. */
export type GradientRule = (
  g: Graph,
  node: Node,
  cotangents: readonly (Value | undefined)[],
  /** Which inputs need a gradient. */
  needed: readonly boolean[],
) => (Value | undefined)[];

/** Sums `gradient` over the axes along which a tensor of shape `shape` was broadcast. */
export function unbroadcast(g: Graph, gradient: Value, shape: readonly number[]): Value {
  if (sameShape(gradient.shape, shape)) return gradient;
  const extra = gradient.shape.length - shape.length;
  const axes = gradient.shape.flatMap((size, i) =>
    i < extra || (shape[i - extra] === 1 && size !== 1) ? [i] : []
  );
  return g.reshape(g.sum(gradient, axes), shape);
}

/** `part` from `start` of an axis of `size`, and 0 elsewhere. */
export function padded(g: Graph, part: Value, axis: number, start: number, size: number): Value {
  const blank = (width: number) => width > 0 ? [zeros(g, part.shape.with(axis, width))] : [];
  const parts = [...blank(start), part, ...blank(size - start - part.shape[axis]!)];
  return parts.length === 1 ? part : g.concat(parts, axis);
}

/** A rule for ops with one input and one output. */
export function unary(
  rule: (g: Graph, dy: Value, x: Value, y: Value, node: Node) => Value,
): GradientRule {
  return (g, node, [dy]) => [rule(g, dy!, node.inputs[0]!, node.outputs[0]!, node)];
}

/** A rule for element-wise ops with two inputs, which may have been broadcast. */
export function binary(
  left: (g: Graph, dy: Value, a: Value, b: Value, y: Value) => Value,
  right: (g: Graph, dy: Value, a: Value, b: Value, y: Value) => Value,
): GradientRule {
  return (g, node, [dy], needed) => {
    const [a, b] = node.inputs as [Value, Value], y = node.outputs[0]!;
    return [
      needed[0] ? unbroadcast(g, left(g, dy!, a, b, y), a.shape) : undefined,
      needed[1] ? unbroadcast(g, right(g, dy!, a, b, y), b.shape) : undefined,
    ];
  };
}

/** The rule of steps: their slope is 0 wherever they have one, so nothing is trained through them. */
export const flat: GradientRule = () => [];

/** An operation of our own, of which the first output is like the first input. */
export function fused(
  g: Graph,
  op: FusedOp,
  inputs: readonly Value[],
  outputs: readonly (readonly number[])[] = [inputs[0]!.shape],
): Value[] {
  return g.node(op, inputs, outputs, {}, TROUPE);
}

/** A tensor of zeros; {@linkcode isZeros} recognises it, so that sums need not start from it. */
export function zeros(g: Graph, shape: readonly number[]): Value {
  return g.expand(g.scalar(0), shape);
}

/** Whether a value was made by {@linkcode zeros}. */
export function isZeros(value: Value): boolean {
  const [source] = value.node?.op === "Expand" ? value.node.inputs : [];
  return source?.data?.length === 1 && source.data[0] === 0;
}
