/**
 * What lives between the models of a layer: activations that F saves for the backward, or that are
 * computed again, and what I hands to W.
 *
 * @module
 */

import type { Graph } from "../graph/graph.ts";
import type { Node, Value } from "../graph/value.ts";
import { elementCount, sameShape } from "../graph/shapes.ts";
import { sliceNodes } from "../graph/slice.ts";
import { isDropout } from "../layers/layer.ts";
import type { Port } from "../onnx/encode_model.ts";

/** Which activations are computed again in the backward pass instead of being saved. */
export type Recompute = "none" | "cheap" | "full";

/** The policies of {@linkcode Recompute}, for checks and help texts. */
export const RECOMPUTE_POLICIES: readonly Recompute[] = ["none", "cheap", "full"];

/** Outputs of these ops cost little to compute again. */
const CHEAP_OPS = new Set([
  ...["LayerNormalization", "SimplifiedLayerNormalization", "FastGelu", "Gelu", "QuickGelu"],
]);

/** Outputs of these ops have the elements of their inputs in another order: those are saved. */
const MOVES = new Set(["Reshape", "Concat", "Identity"]);

const sizeOf = (values: readonly Value[]) =>
  values.reduce((sum, { shape }) => sum + elementCount(shape), 0);

/** Whether a value was, step by step, made of something smaller, as scores of attention are. */
function isGrown({ node }: Value): boolean {
  while (node && (node.op === "Softmax" || node.op === "Add" || isDropout(node))) {
    node = node.inputs[0]!.node;
  }
  if (node?.op !== "FusedMatMul" && node?.op !== "MatMul") return false;
  return sizeOf(node.outputs) > sizeOf(node.inputs);
}

/**
 * The forward values at which the backward pass stops, under a recomputation policy.
 *
 * @param kept values that are kept anyway.
 */
export function savedValues(
  outputs: readonly Value[],
  forwardNodes: ReadonlySet<Node>,
  recompute: Recompute,
  kept: readonly Value[] = [],
): Value[] {
  const saved = new Set<Value>(), seen = new Set<Value>(kept);
  const pending = [...outputs];
  while (pending.length > 0) {
    const value = pending.pop()!;
    if (seen.has(value) || !value.node) continue;
    seen.add(value);
    const again = !forwardNodes.has(value.node) || recompute === "full" ||
      MOVES.has(value.node.op) ||
      (recompute === "cheap" &&
        (CHEAP_OPS.has(value.node.op) || isDropout(value.node) || isGrown(value)));
    if (again) pending.push(...value.node.inputs);
    else saved.add(value);
  }
  return [...saved].sort((a, b) => a.node!.id - b.node!.id || a.name.localeCompare(b.name));
}

/** Operations whose result may take the place of their first operand, element by element. */
const OVERWRITING = new Set(["Softmax", "ScatterElements"]);

/**
 * What takes the place of saved activations before the backward, step by step.
 *
 * [Note: activations that are overwritten] The largest activation of a language model are its logits.
 * Their gradient is as large, and needs nothing else of them: it is computed over them, each step by
 * a model of its own, so that no third copy stands beside. A saved value qualifies where one
 * operation of the backward reads it, which is among {@linkcode OVERWRITING}.
 *
 * @returns for each saved value that qualifies the values that lie in its place, in order.
 */
export function overwrittenValues(
  g: Graph,
  saved: readonly Value[],
  ends: readonly Value[],
  kept: readonly Value[] = [],
): Map<Value, Value[]> {
  const nodes = sliceNodes(g, [...g.inputs, ...kept, ...saved], ends);
  const readings = nodes.flatMap((node) =>
    [...new Set(node.inputs)].map((value) => ({ value, node }))
  );
  const readers = Map.groupBy(readings, ({ value }) => value);
  const isEnd = new Set(ends);
  const next = (value: Value) => {
    const [reader, ...others] = readers.get(value) ?? [];
    if (!reader || others.length > 0 || isEnd.has(value)) return undefined;
    const { op, inputs, outputs: [result] } = reader.node;
    const isInPlace = OVERWRITING.has(op) && inputs.lastIndexOf(value) === 0 &&
      sameShape(result!.shape, value.shape);
    return isInPlace ? result : undefined;
  };
  return new Map(saved.flatMap((value) => {
    const steps: Value[] = [];
    for (let step = next(value); step; step = next(step)) steps.push(step);
    return steps.length > 0 ? [[value, steps]] : [];
  }));
}

/** What I computes and W reads. */
export function carriedValues(
  g: Graph,
  known: readonly Port[],
  forInput: readonly Port[],
  gradients: readonly Port[],
): Value[] {
  const values = known.map((port) => port.value), given = new Set(values);
  const inputNodes = new Set(sliceNodes(g, values, forInput.map((port) => port.value)));
  const weightNodes = sliceNodes(g, values, gradients.map((port) => port.value));
  const isCarried = (value: Value) =>
    value.node !== undefined && inputNodes.has(value.node) && !given.has(value);
  const read = weightNodes.filter((node) => !inputNodes.has(node)).flatMap((node) => node.inputs);
  const wanted = [...read, ...gradients.map((port) => port.value)];
  return [...new Set(wanted.filter(isCarried))].sort((a, b) => a.node!.id - b.node!.id);
}
