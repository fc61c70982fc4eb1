/**
 * Rewrites a model for the WebGPU provider: FP16 products, missing kernels, outputs in place.
 *
 * [Note: half products] A mixed model computes in f32 between its stored values. On a GPU, matrix products
 * are most of the work, and its fast units take f16: so each product reads its operands in f16 (stored
 * values unchanged, intermediate values rounded first), and its result is f16. Everything else stays f32:
 * softmax, the statistics of norms, losses, sums over rows, and every element-wise step. Values that are
 * only moved are widened afterwards, if needed; sums of rows are narrowed before they are written back,
 * so no table is widened as a whole.
 *
 * An accumulator is added to a product that is already f16, so the sum is computed in f16. It has the
 * bits of an f32 sum that is rounded to f16, because f32 has more than twice the digits of f16.
 *
 * [Note: in place] WebGPU forbids a dispatch that reads and writes one buffer. ONNX Runtime does not
 * check this (its `validationMode` is not `full`), and the result is correct if each written element
 * depends on the same element of the input and on no other: so for the operations of
 * {@linkcode IN_PLACE}, in the operands listed there. Other readers of the input must run before, which
 * the order of the queue guarantees for nodes on which the output depends. But the library removes
 * operations without effect (x·1, a cast to the same type), and fuses two into one (a product and a
 * sum): then another operation, or the last one in another form, reads the input at the end. So values
 * that may be the input under another name count as the input, and the operations before must be in the
 * list too, in any number: in any combination, the whole is element-wise. Every other output that
 * overlaps an input is computed elsewhere and copied.
 *
 * @module
 */

import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { elementCount, sameShape } from "../../graph/shapes.ts";
import { ONNX_DTYPE, type TensorSpec, type ValueType } from "../../graph/value.ts";
import { lowerGraph, valueTypes } from "../../onnx/lower.ts";
import { type GraphProto, ModelProtoSchema, type NodeProto } from "../../onnx/onnx_pb.ts";
import {
  removeUnread,
  type Rewrite,
  rewriteNodes,
  shareEqual,
  type Writer,
} from "../../onnx/rewrite.ts";
import { ALIASES } from "../../onnx/scratch.ts";
import { intOf } from "../../onnx/signature.ts";
import { DTYPE_BYTES } from "../device.ts";
import { geluGrad, maxPoolGrad, orderSums } from "./products.ts";
import { isRowAddition, rewriteGraph } from "./rewrites.ts";

const PRODUCTS = new Set(["MatMul", "FusedMatMul", "Gemm"]);

/** Operations that move elements of their first operand, in f32 or f16. */
const MOVEMENTS = new Set(["Reshape", "Transpose", "Split", "Gather"]);

/** The operation that moves the elements of all its operands. */
const JOIN = "Concat";

const isCastTo = (node: NodeProto, dtype: "f16" | "f32") =>
  node.opType === "Cast" && intOf(node, "to", 0) === ONNX_DTYPE[dtype];

/**
 * Returns the conversions between f16 and f32 in a graph: for f32 values, `loads` has the f16 value that
 * they were converted from, and `stores` the node that rounds them to f16; `read` has the values that
 * other nodes read.
 */
function storesOf(graph: GraphProto, types: ReadonlyMap<string, ValueType>) {
  const loads = new Map<string, string>(), stores = new Map<string, NodeProto>();
  const read = new Set(graph.output.map(({ name = "" }) => name));
  for (const node of graph.node) {
    const [from = ""] = node.input, [to = ""] = node.output, dtype = types.get(from)?.dtype;
    if (isCastTo(node, "f16") && dtype === "f32" && !stores.has(from)) stores.set(from, node);
    else node.input.forEach((name) => read.add(name));
    if (isCastTo(node, "f32") && dtype === "f16") loads.set(to, from);
  }
  return { loads, stores, read };
}

/**
 * Computes the products of a graph in FP16, if the graph stores FP16.
 *
 * @returns true if it does.
 */
function halveProducts(graph: GraphProto, types: ReadonlyMap<string, ValueType>): boolean {
  if (![...types.values()].some(({ dtype }) => dtype === "f16")) return false;
  const { loads, stores, read } = storesOf(graph, types), gone = new Set<NodeProto>();
  const rounded = new Map<string, string>();
  const half = (write: Writer, name: string) => {
    const cast = () => write.node("Cast", [name], { to: ONNX_DTYPE.f16 });
    return loads.get(name) ?? rounded.getOrInsertComputed(name, cast);
  };
  /** Computes a node's outputs in f16, and converts outputs that are read in f32. */
  const returnHalf = (write: Writer, { output }: NodeProto, compute: (to: string[]) => void) => {
    const halves = output.map((y) => {
      const store = stores.get(y);
      if (store) gone.add(store);
      return store?.output[0] ?? `half.${y}`;
    });
    compute(halves);
    output.forEach((y, i) => {
      loads.set(y, halves[i]!);
      if (read.has(y)) write.node("Cast", [halves[i]!], { to: ONNX_DTYPE.f32 }, y);
    });
  };
  const product: Rewrite = (write, node) => {
    const halves = node.input.map((name) => half(write, name));
    returnHalf(write, node, ([output]) => write.again(halves, output));
  };
  const movement: Rewrite = (write, node) => {
    const isMoved = (place: number) => place === 0 || node.opType === JOIN;
    const halves = node.input.map((name, i) => isMoved(i) ? loads.get(name)! : name);
    returnHalf(write, node, (outputs) => write.again(halves, ...outputs));
  };
  rewriteNodes(graph, types, "half", (node) => {
    if (gone.has(node)) return () => {};
    const [first = "", second = ""] = node.input, [y = ""] = node.output;
    if (PRODUCTS.has(node.opType ?? "")) {
      return types.get(first)?.dtype === "f32" ? product : undefined;
    }
    if (node.opType === JOIN) {
      return node.input.every((name) => loads.has(name)) ? movement : undefined;
    }
    if (!loads.has(first)) return undefined;
    const isNarrowed = isRowAddition(node, types.get(second)) && stores.has(y) && !read.has(y);
    return MOVEMENTS.has(node.opType ?? "") || isNarrowed ? movement : undefined;
  });
  removeUnread(graph);
  return true;
}

/** Operands that an operation may overwrite, if they have the shape of the result. */
export const IN_PLACE: Readonly<Record<string, readonly number[]>> = {
  Add: [0, 1],
  Sub: [0, 1],
  Mul: [0, 1],
  Cast: [0],
  Where: [1, 2],
  Gemm: [2], // It adds its third operand to each element as it is written.
  ScatterND: [0], // It writes some rows of its first operand and keeps the others.
  ScatterElements: [0], // As ScatterND, for elements.
  Softmax: [0], // Last axis only: a workgroup reads a whole row before it writes the row.
};

/** Returns whether a node copies elements of an input that a later node may overwrite. */
const isCopy = ({ opType, input }: NodeProto): boolean =>
  opType === "Gather" || opType === JOIN && input.length > 1;

/** Operations that only dispatch kernels, which Max of one operand does not; see [Note: captured runs]. */
const DISPATCHED = new Set(
  [
    ...["Add", "Sub", "Mul", "Div", "Neg", "Sqrt", "Exp", "Log", "Tanh", "Erf", "Sigmoid", "Relu"],
    ...["Cast", "Where", "Equal", "Greater", "Less", "Expand", "Transpose", "Split"],
    ...["Gather", "GatherElements", "MatMul", "Gemm", "Softmax", "LayerNormalization", "Gelu"],
    ...["FastGelu", "ReduceSum", "ReduceMean", "ReduceMax", "ReduceSumSquare", JOIN],
  ],
);

/** Returns whether a graph only dispatches kernels, so that a capture of its commands is complete. */
function isCapturable({ node: nodes, output }: GraphProto): boolean {
  const results = new Set(output.map(({ name }) => name));
  return nodes.every(({ opType = "", output: [y] }) =>
    DISPATCHED.has(opType) || ALIASES.has(opType) && !results.has(y)
  );
}

/** Returns the inputs whose memory each output of a graph may share. */
function inPlaceOutputs(
  graph: GraphProto,
  types: ReadonlyMap<string, ValueType>,
): Map<string, Set<string>> {
  /** Returns whether an output may overwrite an input; `before` are the nodes on which it depends. */
  const mayOverwrite = (output: string, input: string, before: ReadonlySet<NodeProto>) => {
    const own = types.get(output), given = types.get(input);
    const isOwnShape = (name: string) => {
      const shape = types.get(name)?.shape;
      return shape !== undefined && sameShape(shape, own!.shape);
    };
    if (!own || own.dtype !== given?.dtype || !isOwnShape(input)) return false;
    /** Values that may be in the input's memory. */
    const names = new Set([input]);
    for (const node of graph.node) {
      const { opType = "" } = node, [result = ""] = node.output, isMaker = result === output;
      for (const [place, name] of node.input.entries()) {
        if (!names.has(name)) continue;
        if (!isMaker && !before.has(node)) return false;
        const isElementwise = IN_PLACE[opType]?.includes(place) &&
          isByRow(node, own.shape.length) &&
          isOwnShape(name) && isOwnShape(result);
        const isPassed = !isMaker && place === 0 && ALIASES.has(opType);
        if (isElementwise || isPassed) names.add(result);
        else if (isMaker || !isCopy(node)) return false;
      }
      // Later readers of the output read the new values.
      if (isMaker) names.delete(result);
    }
    return true;
  };
  const makers = new Map(graph.node.flatMap((node) => node.output.map((name) => [name, node])));
  const inputs = graph.input.map(({ name = "" }) => name);
  return new Map(graph.output.map(({ name = "" }) => {
    const maker = makers.get(name), before = maker && ancestorsOf(maker, makers);
    const isFree = (input: string) => before && mayOverwrite(name, input, before);
    return [name, new Set(inputs.filter(isFree))];
  }));
}

/** Returns all nodes on which a node depends. */
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

/** Returns false for a softmax over any axis but the last, which uses a transposed copy. */
const isByRow = (node: NodeProto, rank: number) =>
  node.opType !== "Softmax" || [-1, rank - 1].includes(intOf(node, "axis", -1));

/** A value of a model: an input, an output, a constant, or an intermediate value. */
export interface ModelValue extends TensorSpec {
  /** Bytes of its tensor. */
  readonly byteLength: number;
}

/** Returns the largest value with a known shape; undefined if there is none. */
function largestValue(types: ReadonlyMap<string, ValueType>): ModelValue | undefined {
  let largest: ModelValue | undefined;
  for (const [name, { dtype, shape }] of types) {
    const byteLength = elementCount(shape) * DTYPE_BYTES[dtype];
    if (byteLength > (largest?.byteLength ?? -1)) largest = { name, dtype, shape, byteLength };
  }
  return largest;
}

/**
 * Rewrites a model, so that each operation has a kernel on the GPU.
 *
 * @throws {Error} when the bytes are not a model, or an operation has an unsupported form.
 */
export function prepareModel(bytes: Uint8Array) {
  try {
    const model = fromBinary(ModelProtoSchema, bytes), { graph } = model;
    if (!graph) throw new Error("it must hold a graph, received none");
    lowerGraph(graph, { MaxPoolGrad: maxPoolGrad, FastGeluGrad: geluGrad });
    const usesHalf = halveProducts(graph, valueTypes(graph));
    rewriteGraph(graph, valueTypes(graph));
    orderSums(graph, valueTypes(graph));
    shareEqual(graph);
    const types = valueTypes(graph), inPlace = inPlaceOutputs(graph, types);
    return {
      bytes: toBinary(ModelProtoSchema, model),
      /** For each output, the inputs whose memory it may share. */
      inPlace,
      /** True if the commands of its runs can be captured. */
      isCapturable: isCapturable(graph),
      /** True if it computes in FP16. */
      usesHalf,
      /** Its largest value, if any. */
      largest: largestValue(types),
    };
  } catch (error) {
    throw new Error(`Cannot compile the model for webgpu: ${(error as Error).message}`);
  }
}
