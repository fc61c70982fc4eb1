/**
 * What ONNX Runtime takes for itself while a model runs: the values between its operations.
 *
 * [Note: transient] Inputs and outputs are bound to memory of ours; what is computed in between lies in
 * the library's arena from the operation that makes it to the last one that reads it. The library
 * plans that once for each session, and this repeats its rules: an operation that only looks at its
 * operand in another shape takes nothing, one that works element by element writes over an operand
 * that nobody reads after it, and a value may lie where another of the same size has lain, whose
 * memory is kept for it until then. Some operations take memory for themselves while they compute.
 *
 * @module
 */

import { fromBinary } from "@bufbuild/protobuf";
import { DTYPE_BYTES } from "../devices/device.ts";
import { broadcastShape, elementCount } from "../graph/shapes.ts";
import type { ValueType } from "../graph/value.ts";
import { valueTypes } from "./lower.ts";
import { type GraphProto, ModelProtoSchema, type NodeProto } from "./onnx_pb.ts";

/** The arena gives memory out in pieces of so many bytes. */
const PIECE_BYTES = 256;

/** Operations whose result is their first operand in another shape, in the same memory. */
const ALIASES = new Set(["Reshape", "Identity", "Squeeze", "Unsqueeze"]);

/** Operations that write over their first operand where nobody reads it after them. */
const IN_PLACE = new Set([
  ...["Cast", "Clip", "LogSoftmax", "Relu", "Sigmoid", "Softmax", "Tanh", "ScatterElements"],
  ...["Elu", "HardSigmoid", "LeakyRelu", "Softplus"],
]);

/** A convolution lays so much of its windows side by side at a time, where it has few outputs. */
const SEGMENT_BYTES = 2 ** 16;

type Operands = readonly (ValueType | undefined)[];

/** What a convolution computes with: the windows of an image, side by side, or some of them. */
function windowBytes({ attribute }: NodeProto, [, weight]: Operands, [y]: Operands): number {
  if (!weight || !y) return 0;
  const [outputs = 0, ...rest] = weight.shape, windows = elementCount(y.shape.slice(2));
  const isMoved = attribute.some(({ name, ints }) =>
    name === "strides" && ints.some((stride) => stride !== 1n) ||
    name === "pads" && ints.some((pad) => pad !== 0n)
  );
  if (elementCount(weight.shape.slice(2)) === 1 && !isMoved) return 0;
  const groups = Number(attribute.find(({ name }) => name === "group")?.i ?? 1);
  return outputs / groups > windows
    ? DTYPE_BYTES[y.dtype] * elementCount(rest) * windows
    : SEGMENT_BYTES;
}

/** Of a transposed one: what each element of an image adds, before it is added. */
function addedBytes(_: NodeProto, [x, weight]: Operands): number {
  if (!x || !weight) return 0;
  return DTYPE_BYTES[x.dtype] * elementCount(x.shape.slice(2)) *
    elementCount(weight.shape.slice(1));
}

/** What is chosen of one side: each number of it for each condition. */
function chosenBytes(condition: ValueType | undefined, side: ValueType | undefined): number {
  if (!condition || !side) return 0;
  return bytesOf({ ...side, shape: broadcastShape(condition.shape, side.shape) });
}

/** Bytes that an operation takes for itself while it computes. */
const SCRATCH: Readonly<
  Record<string, (node: NodeProto, operands: Operands, results: Operands) => number>
> = {
  Conv: windowBytes,
  ConvTranspose: addedBytes,
  // What is chosen of either side, the other being zero.
  Where: (_, [condition, a, b]) => chosenBytes(condition, a) + chosenBytes(condition, b),
  // The factor of each element.
  HardSwish: (_, [x]) => bytesOf(x),
  // Logits less their maximum, and the logarithms of probabilities where nobody asked for them.
  SoftmaxCrossEntropyLoss: ({ output }, [logits]) => (output[1] ? 1 : 2) * bytesOf(logits),
};

/** Bytes of a value; none where it is not known. */
const bytesOf = (type: ValueType | undefined) =>
  type
    ? Math.ceil(elementCount(type.shape) * DTYPE_BYTES[type.dtype] / PIECE_BYTES) * PIECE_BYTES
    : 0;

/** A piece of the arena, from the operation that takes it to the one after which it is given back. */
interface Piece {
  readonly type: ValueType;
  readonly from: number;
  to: number;
  /** Reads to come of what lies in it now. */
  reads: number;
}

/**
 * The most bytes that lie in the arena at a time while a model runs.
 *
 * @param bytes the model, as its device computes it.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { encodeModel, Graph, transientBytes } from "@troupe/troupe/kernels";
 *
 * const g = new Graph(), x = g.input("x", [64, 64]);
 * const bounded = g.tanh(g.matmul(x, x)); // lies over the product
 * const y = g.matmul(bounded, x);
 * const model = encodeModel(g, [{ name: "x", value: x }], [{ name: "y", value: y }]);
 * assert.equal(transientBytes(model), 4 * 64 * 64);
 * ```
 */
export function transientBytes(bytes: Uint8Array): number {
  const { graph } = fromBinary(ModelProtoSchema, bytes);
  if (!graph) return 0;
  const types = valueTypes(graph), nodes = inOrder(graph);
  const pieces = piecesOf(graph, nodes, types);
  const typesOf = (names: readonly string[]) => names.map((name) => types.get(name));
  const changes = new Float64Array(nodes.length + 1);
  for (const { type, from, to } of pieces) {
    changes[from]! += bytesOf(type);
    changes[to + 1]! -= bytesOf(type);
  }
  let held = 0, most = 0;
  for (const [at, node] of nodes.entries()) {
    held += changes[at]!;
    const scratchOf = SCRATCH[node.opType ?? ""];
    const scratch = scratchOf?.(node, typesOf(node.input), typesOf(node.output)) ?? 0;
    most = Math.max(most, held + scratch);
  }
  return most;
}

/**
 * The operations in the order in which the library runs them: depth first from the last one whose
 * results nobody reads, and of several operands that first which was made last.
 */
function inOrder({ node: nodes }: GraphProto): NodeProto[] {
  const makers = new Map(nodes.flatMap((node, at) => node.output.map((name) => [name, at])));
  const operands = nodes.map(({ input }) => input.flatMap((name) => makers.get(name) ?? []));
  const read = new Set(operands.flat()), order = new Set<number>(), seen = new Set<number>();
  // The last of the stack comes next: a node after its operands, which are put above it.
  const stack = [...nodes.keys()].filter((at) => !read.has(at));
  for (let at = stack.at(-1); at !== undefined; at = stack.at(-1)) {
    if (seen.has(at)) order.add(stack.pop()!);
    else operands[at]!.toSorted((a, b) => a - b).forEach((operand) => stack.push(operand));
    seen.add(at);
  }
  return Array.from(order, (at) => nodes[at]!);
}

/** The pieces that the values of a graph lie in, but for those that are bound or constant. */
function piecesOf(
  { input, output, initializer }: GraphProto,
  nodes: readonly NodeProto[],
  types: ReadonlyMap<string, ValueType>,
): Piece[] {
  const outside = new Set([...input, ...output, ...initializer].map(({ name }) => name));
  const reads = Map.groupBy(nodes.flatMap((node) => node.input), (name) => name);
  const places = new Map<string, Piece>(), pieces: Piece[] = [], free = new Map<string, Piece[]>();
  const take = (type: ValueType, from: number): Piece => {
    const alike = free.get(kindOf(type))?.pop();
    if (alike) return alike;
    const piece = { type, from, to: from, reads: 0 };
    pieces.push(piece);
    return piece;
  };
  for (const [at, node] of nodes.entries()) {
    const operand = places.get(node.input[0] ?? ""), touched = new Set<Piece>();
    for (const name of node.output) {
      const type = types.get(name);
      if (!type || outside.has(name)) continue;
      const piece = ALIASES.has(node.opType ?? "")
        ? operand
        : overwritten(node, operand, type) ?? take(type, at);
      if (!piece) continue; // it is bound memory in another shape
      piece.reads += reads.get(name)?.length ?? 0;
      places.set(name, piece);
      touched.add(piece);
    }
    for (const piece of node.input.flatMap((name) => places.get(name) ?? [])) {
      piece.reads--;
      touched.add(piece);
    }
    for (const piece of touched) {
      piece.to = at;
      if (piece.reads > 0) continue;
      const kind = kindOf(piece.type), alike = free.get(kind);
      if (alike) alike.push(piece);
      else free.set(kind, [piece]);
    }
  }
  return pieces;
}

/** Values of one kind take the same memory. */
const kindOf = ({ dtype, shape }: ValueType) => `${DTYPE_BYTES[dtype]} ${shape}`;

/** The piece of the first operand, where the result may lie over it. */
function overwritten(
  { opType = "" }: NodeProto,
  operand: Piece | undefined,
  type: ValueType,
): Piece | undefined {
  const isLast = operand?.reads === 1 && kindOf(operand.type) === kindOf(type);
  return isLast && IN_PLACE.has(opType) ? operand : undefined;
}
