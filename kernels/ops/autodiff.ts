/**
 * Reverse-mode automatic differentiation of a graph, written into the same graph.
 *
 * @module
 */

import { refusal } from "../errors.ts";
import { type Ints, sameShape } from "../graph/shapes.ts";
import type { Node, NodeGraph, Value } from "../graph/value.ts";
import type { Builder } from "./builder.ts";
import { GRADIENTS, isFlat } from "./table.ts";

/**
 * Adds the nodes that compute the gradients of `outputs` with respect to `wanted`.
 *
 * @param outputs pairs of an output and its cotangent (∂loss/∂output, of the same shape).
 * @param wanted values to return gradients of.
 * @returns the gradients in the order of `wanted`; `undefined` if no output depends on the value.
 * @throws {TypeError} with the operation, when a gradient must flow through an operation without a
 * rule.
 *
 * @example d(x·x)/dx = 2x
 * ```ts
 * import assert from "node:assert/strict";
 * import { addGradients, encodeModel, Graph, openReference } from "@troupe/troupe/kernels";
 *
 * const g = new Graph();
 * const x = g.input("x", [3]), dy = g.input("dy", [3]);
 * const [dx] = addGradients(g, [[g.mul(x, x), dy]], [x]);
 *
 * const device = await openReference();
 * const kernel = await device.compile(
 *   encodeModel(g, [{ name: "x", value: x }, { name: "dy", value: dy }], [
 *     { name: "dx", value: dx! },
 *   ]),
 * );
 * const [tx, tdy, tdx] = [0, 0, 0].map(() => device.alloc("f32", [3]));
 * device.write(tx!, Float32Array.of(1, 2, 3));
 * device.write(tdy!, Float32Array.of(1, 1, 1));
 * await kernel.bind({ x: tx!, dy: tdy! }, { dx: tdx! })();
 * assert.deepEqual([...await device.read<Float32Array>(tdx!)], [2, 4, 6]);
 * device.close();
 * ```
 */
export function addGradients(
  graph: Builder,
  outputs: readonly (readonly [output: Value, cotangent: Value])[],
  wanted: readonly Value[],
): (Value | undefined)[] {
  const forward = [...graph.nodes], dependent = dependentValues(graph, wanted);
  const cotangents = new Map<Value, Value>();
  const accumulate = (value: Value, cotangent: Value) => {
    const sum = cotangents.get(value);
    cotangents.set(value, sum ? graph.add(sum, cotangent) : cotangent);
  };
  for (const [output, cotangent] of outputs) accumulate(output, cotangent);
  for (const node of forward.reverse()) {
    if (!node.outputs.some((output) => cotangents.has(output))) continue;
    const needed = node.inputs.map((input) => dependent.has(input));
    if (!needed.includes(true)) continue;
    const rule = GRADIENTS[node.op];
    const must = "every op between the parameters and the loss must have a gradient";
    if (!rule) throw refusal("differentiate", must, node.op, TypeError);
    const given = node.outputs.map((output) => cotangents.get(output));
    const found = rule(graph, node, given, needed).map((cotangent, i) => {
      if (!needed[i]) return undefined;
      const value = typeof cotangent === "function" ? cotangent() : cotangent;
      return value && unbroadcast(graph, value, node.inputs[i]!.shape);
    });
    found.forEach((cotangent, i) => {
      if (cotangent) accumulate(node.inputs[i]!, cotangent);
    });
  }
  return wanted.map((value) => cotangents.get(value));
}

/** Sums a gradient over the axes along which a tensor of a shape was broadcast. */
function unbroadcast(g: Builder, gradient: Value, shape: Ints): Value {
  if (sameShape(gradient.shape, shape)) return gradient;
  const extra = gradient.shape.length - shape.length;
  const axes = gradient.shape.flatMap((size, i) =>
    i < extra || (shape[i - extra] === 1 && size !== 1) ? [i] : []
  );
  return g.reshape(g.sum(gradient, axes), shape);
}

/** Returns whether a value can have a gradient. */
const isReal = ({ dtype }: Value): boolean => dtype === "f32" || dtype === "f16";

/** Returns whether gradients flow through a node. */
export const passesGradient = (graph: NodeGraph, node: Node): boolean =>
  node.outputs.some(isReal) && !isFlat(node.op) && !graph.stops.has(node);

/** Returns values and their sources, through the nodes for which `passes` returns true. */
export function sourcesOf(
  graph: NodeGraph,
  values: readonly Value[],
  passes: (node: Node) => boolean,
): Set<Value> {
  const sources = new Set(values);
  for (const node of graph.nodes.toReversed()) {
    if (!node.outputs.some((output) => sources.has(output)) || !passes(node)) continue;
    for (const input of node.inputs) sources.add(input);
  }
  return sources;
}

/** Returns the differentiable values among some values of a graph, and those computed from them. */
export function dependentValues(graph: NodeGraph, values: readonly Value[]): Set<Value> {
  const dependent = new Set(values.filter(isReal));
  for (const node of graph.nodes) {
    if (node.inputs.some((input) => dependent.has(input))) {
      for (const output of node.outputs.filter(isReal)) dependent.add(output);
    }
  }
  return dependent;
}
