/**
 * Which outputs of a model may lie in the memory of which of its inputs.
 *
 * [Note: in place] WebGPU forbids a dispatch that reads and writes one buffer. ONNX Runtime does not
 * look (its `validationMode` is not `full`), and the result is right where each element that is
 * written depends on the same element of what is read, and on no other: so for the operations of
 * {@linkcode IN_PLACE}, in the operands named there. Whoever else reads the input must be done before,
 * which the order of the queue promises to those on whom the output depends. But the library leaves
 * out operations that do nothing (x·1, a cast to the same type), and makes one of two (a product and a
 * sum): then another operation, or the last one in another way, reads the input at the end. So what
 * may be the input under another name counts as the input, and those before must be of the list too,
 * in any number: however they are joined, the whole is still element by element. Every other output
 * that is to lie over an input is computed elsewhere and copied.
 *
 * @module
 */

import type { GraphProto, NodeProto } from "../../../onnx/onnx_pb.ts";
import { sameShape } from "../../../graph/shapes.ts";
import { intOf, type ValueType } from "../../../onnx/value_types.ts";

/** Operations that may write over an operand, and which: those of the same shape as the result. */
export const IN_PLACE: Readonly<Record<string, readonly number[]>> = {
  Add: [0, 1],
  Sub: [0, 1],
  Mul: [0, 1],
  Cast: [0],
  Where: [1, 2],
  Gemm: [2], // It adds its third operand to each element when it writes it.
  ScatterND: [0], // It writes some rows of its first operand, and leaves the rest.
  ScatterElements: [0], // Some elements.
  Softmax: [0], // Of the last axis: a workgroup has read all of a row before it writes any of it.
};

/** Operations whose result may be the memory of their first operand in another shape. */
const ALIASES = new Set(["Reshape", "Identity", "Squeeze", "Unsqueeze"]);

/** What reads rows of an input before a scatter writes them: no library makes one of these two. */
const LOOKUP = "Gather";

/** For each output of a graph the inputs in whose memory it may lie. */
export function inPlaceOutputs(
  graph: GraphProto,
  types: ReadonlyMap<string, ValueType>,
): Map<string, Set<string>> {
  const makers = new Map(graph.node.flatMap((node) => node.output.map((name) => [name, node])));
  const inputs = graph.input.map(({ name = "" }) => name);
  return new Map(graph.output.map(({ name = "" }) => {
    const maker = makers.get(name), before = maker && ancestorsOf(maker, makers);
    const isFree = (input: string) =>
      before && mayOverwrite(graph.node, types, name, input, before);
    return [name, new Set(inputs.filter(isFree))];
  }));
}

/** All nodes on which a node depends. */
function ancestorsOf(node: NodeProto, makers: ReadonlyMap<string, NodeProto>): Set<NodeProto> {
  const found = new Set<NodeProto>(), waiting = [...node.input];
  for (let name = waiting.pop(); name !== undefined; name = waiting.pop()) {
    const maker = makers.get(name);
    if (!maker || found.has(maker)) continue;
    found.add(maker);
    waiting.push(...maker.input);
  }
  return found;
}

/** Whether a softmax is one of the last axis; any other is computed on a transposed copy. */
const isByRow = (node: NodeProto, rank: number) =>
  node.opType !== "Softmax" || [-1, rank - 1].includes(intOf(node, "axis", -1));

/** Whether an output may lie in the memory of an input; `before` are the nodes on which it depends. */
function mayOverwrite(
  nodes: readonly NodeProto[],
  types: ReadonlyMap<string, ValueType>,
  output: string,
  input: string,
  before: ReadonlySet<NodeProto>,
): boolean {
  const own = types.get(output), given = types.get(input);
  const isOwnShape = (name: string) => {
    const shape = types.get(name)?.shape;
    return shape !== undefined && sameShape(shape, own!.shape);
  };
  if (!own || own.dtype !== given?.dtype || !isOwnShape(input)) return false;
  /** What may be the input's memory. */
  const names = new Set([input]);
  for (const node of nodes) {
    const { opType = "" } = node, [result = ""] = node.output, isMaker = result === output;
    for (const [place, name] of node.input.entries()) {
      if (!names.has(name)) continue;
      if (!isMaker && !before.has(node)) return false;
      const isElementwise = IN_PLACE[opType]?.includes(place) && isByRow(node, own.shape.length) &&
        isOwnShape(name) && isOwnShape(result);
      const isPassed = !isMaker && place === 0 && ALIASES.has(opType);
      if (isElementwise || isPassed) names.add(result);
      else if (isMaker || opType !== LOOKUP) return false;
    }
    // What reads the output reads what it should.
    if (isMaker) names.delete(result);
  }
  return true;
}
