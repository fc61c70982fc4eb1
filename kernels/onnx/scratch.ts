/**
 * Computes the memory that ONNX Runtime takes while a model runs, for intermediate values.
 *
 * [Note: scratch] Inputs and outputs are bound to memory of Troupe. An intermediate value is in the
 * library's arena from the operation that computes it to its last reader. The library plans the
 * arena once for each session, by these rules: an operation that only changes the shape of its
 * operand takes no memory, an element-wise operation overwrites an operand without later readers,
 * and a value may reuse the memory of an earlier value of the same size, which is kept for it until
 * then. Some operations also take memory while they compute.
 *
 * @module
 */

import { fromBinary } from "@bufbuild/protobuf";
import { DTYPE_BYTES } from "../devices/device.ts";
import { broadcastShape, elementCount } from "../graph/shapes.ts";
import type { ValueType } from "../graph/value.ts";
import { windowsOfProto } from "../ops/windows.ts";
import { valueTypes } from "./lower.ts";
import { type GraphProto, ModelProtoSchema, type NodeProto } from "./onnx_pb.ts";
import { intOf } from "./signature.ts";

/** Memory of the arena is allocated in multiples of this number of bytes. */
const PIECE_BYTES = 256;

/** Operations whose result is in the memory of their first operand. */
export const ALIASES: ReadonlySet<string> = new Set([
  "Reshape",
  "Identity",
  "Squeeze",
  "Unsqueeze",
]);

/** Operations that overwrite their first operand if it has no later readers. */
const IN_PLACE = new Set([
  ...["Cast", "Clip", "LogSoftmax", "Relu", "Sigmoid", "Softmax", "Tanh", "ScatterElements"],
  ...["Elu", "HardSigmoid", "LeakyRelu", "Softplus"],
]);

/** Bytes of the windows that a convolution with few outputs copies at a time. */
const SEGMENT_BYTES = 2 ** 16;

type Operands = readonly (ValueType | undefined)[];

/** Returns the bytes of the windows that a convolution copies: those of an image, or some of them. */
function windowBytes(node: NodeProto, [x, weight]: Operands, [y]: Operands): number {
  if (!x || !weight || !y) return 0;
  const [outputs = 0, ...rest] = weight.shape, windows = elementCount(y.shape.slice(2));
  const { kernel, strides, pads } = windowsOfProto(node, x.shape.slice(2), weight.shape.slice(2));
  const isMoved = strides.some((stride) => stride !== 1) || pads.some((pad) => pad !== 0);
  if (elementCount(kernel) === 1 && !isMoved) return 0;
  return outputs / intOf(node, "group", 1) > windows
    ? DTYPE_BYTES[y.dtype] * elementCount(rest) * windows
    : SEGMENT_BYTES;
}

/** Returns the bytes of the products of a transposed convolution, before they are added. */
function addedBytes(_: NodeProto, [x, weight]: Operands): number {
  if (!x || !weight) return 0;
  return DTYPE_BYTES[x.dtype] * elementCount(x.shape.slice(2)) *
    elementCount(weight.shape.slice(1));
}

/** Returns the bytes of one side of a Where, broadcast to its condition. */
function chosenBytes(condition: ValueType | undefined, side: ValueType | undefined): number {
  if (!condition || !side) return 0;
  return bytesOf({ ...side, shape: broadcastShape(condition.shape, side.shape) });
}

/** Bytes that an operation takes while it computes. */
const SCRATCH: Readonly<
  Record<string, (node: NodeProto, operands: Operands, results: Operands) => number>
> = {
  Conv: windowBytes,
  ConvTranspose: addedBytes,
  // A copy of each side, with zeros for the elements of the other one.
  Where: (_, [condition, a, b]) => chosenBytes(condition, a) + chosenBytes(condition, b),
  // A factor for each element.
  HardSwish: (_, [x]) => bytesOf(x),
};

/** Returns the bytes of a value; 0 if its type is not known. */
const bytesOf = (type: ValueType | undefined) =>
  type
    ? Math.ceil(elementCount(type.shape) * DTYPE_BYTES[type.dtype] / PIECE_BYTES) * PIECE_BYTES
    : 0;

/** A piece of the arena, from the operation that takes it to the last one that uses it. */
interface Piece {
  readonly type: ValueType;
  readonly from: number;
  to: number;
  /** Remaining reads of its current value. */
  reads: number;
}

/**
 * Returns the peak number of bytes in the arena while a model runs.
 *
 * @param bytes the model, as prepared for its device.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { encodeModel, Graph } from "@troupe/troupe/kernels";
 *
 * const g = new Graph(), x = g.input("x", [64, 64]);
 * const bounded = g.tanh(g.matmul(x, x)); // lies over the product
 * const y = g.matmul(bounded, x);
 * const model = encodeModel(g, [{ name: "x", value: x }], [{ name: "y", value: y }]);
 * assert.equal(scratchBytes(model), 4 * 64 * 64);
 * ```
 */
export function scratchBytes(bytes: Uint8Array): number {
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
 * Returns the operations in the order in which the library runs them: depth first from the last one
 * without readers; of several operands, the one that was computed last comes first.
 */
function inOrder({ node: nodes }: GraphProto): NodeProto[] {
  const makers = new Map(nodes.flatMap((node, at) => node.output.map((name) => [name, at])));
  const operands = nodes.map(({ input }) => input.flatMap((name) => makers.get(name) ?? []));
  const read = new Set(operands.flat()), order = new Set<number>(), seen = new Set<number>();
  // The top of the stack is next: a node follows its operands, which are pushed above it.
  const stack = [...nodes.keys()].filter((at) => !read.has(at));
  for (let at = stack.at(-1); at !== undefined; at = stack.at(-1)) {
    if (seen.has(at)) order.add(stack.pop()!);
    else operands[at]!.toSorted((a, b) => a - b).forEach((operand) => stack.push(operand));
    seen.add(at);
  }
  return Array.from(order, (at) => nodes[at]!);
}

/** Returns the pieces of the values of a graph, except for bound and constant values. */
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
      free.getOrInsert(kindOf(piece.type), []).push(piece);
    }
  }
  return pieces;
}

/** Returns a key of values that can share memory. */
const kindOf = ({ dtype, shape }: ValueType) => `${DTYPE_BYTES[dtype]} ${shape}`;

/** Returns the piece of the first operand if the result may overwrite it. */
function overwritten({ opType = "" }: NodeProto, operand: Piece | undefined, type: ValueType) {
  const isLast = operand?.reads === 1 && kindOf(operand.type) === kindOf(type);
  return isLast && IN_PLACE.has(opType) ? operand : undefined;
}
