/**
 * Which outputs of a model may lie in the memory of which of its inputs.
 *
 * [Note: in place] WebGPU forbids a dispatch that reads and writes one buffer. ONNX Runtime does not
 * look (its `validationMode` is not `full`), and the result is right where each element that is
 * written depends on the same element of what is read, and on no other. That is so for the operations
 * of {@linkcode IN_PLACE}, and only in the operands named there; whoever else reads the input must be
 * done before, which the order of the queue promises to those on whom the output depends. Every other
 * output that is to lie over an input is computed elsewhere and copied.
 *
 * @module
 */

import type { GraphProto, NodeProto } from "../../../onnx/onnx_pb.ts";
import { sameShape } from "../../../graph/shapes.ts";
import type { ValueType } from "./model_shapes.ts";

/** Operations that may write over an operand, and which: those of the same shape as the result. */
export const IN_PLACE: Readonly<Record<string, readonly number[]>> = {
  Add: [0, 1],
  Sub: [0, 1],
  Mul: [0, 1],
  Div: [0, 1],
  Neg: [0],
  Exp: [0],
  Sqrt: [0],
  Tanh: [0],
  Where: [1, 2],
  Gemm: [2], // It adds its third operand to each element when it writes it.
  ScatterND: [0], // It writes some rows of its first operand, and leaves the rest.
};

/** Operations whose result may be the memory of their first operand under another name. */
const ALIASES = new Set(["Reshape", "Identity", "Squeeze", "Unsqueeze"]);

/** For each output of a graph the inputs in whose memory it may lie. */
export function inPlaceOutputs(
  { node: nodes, input, output }: GraphProto,
  types: ReadonlyMap<string, ValueType>,
): Map<string, Set<string>> {
  const makers = new Map(nodes.flatMap((node) => node.output.map((name) => [name, node])));
  const inputs = input.map(({ name }) => name ?? "");
  const readers = readersOf(nodes, inputs);
  return new Map(output.map(({ name = "" }) => {
    const maker = makers.get(name), own = types.get(name);
    if (!maker || !own) return [name, new Set<string>()];
    const places = IN_PLACE[maker.opType ?? ""] ?? [], before = ancestorsOf(maker, makers);
    const isFree = (one: string) => {
      const type = types.get(one);
      if (type?.dtype !== own.dtype || !sameShape(type.shape, own.shape)) return false;
      return readers.get(one)!.every(({ node, place }) =>
        node === maker ? places.includes(place) : before.has(node)
      );
    };
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

/** A node that reads an input, and as which operand; −1 where it does so under another name. */
interface Reader {
  readonly node: NodeProto;
  readonly place: number;
}

/** For each input who reads it, or what may be its memory under another name. */
function readersOf(nodes: readonly NodeProto[], inputs: readonly string[]): Map<string, Reader[]> {
  const owners = new Map(inputs.map((name) => [name, name]));
  const readers = new Map(inputs.map((name): [string, Reader[]] => [name, []]));
  for (const node of nodes) {
    for (const [place, name] of node.input.entries()) {
      const owner = owners.get(name);
      if (owner !== undefined) {
        readers.get(owner)!.push({ node, place: owner === name ? place : -1 });
      }
    }
    const owner = owners.get(node.input[0] ?? "");
    if (owner !== undefined && ALIASES.has(node.opType ?? "")) {
      owners.set(node.output[0] ?? "", owner);
    }
  }
  return readers;
}
