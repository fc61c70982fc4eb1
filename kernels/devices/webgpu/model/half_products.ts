/**
 * Products in FP16, in models that store FP16.
 *
 * [Note: half products] A mixed model computes in f32 between what it stores. On a GPU the products
 * of matrices are most of the work, and its fast units take f16: so each product reads its operands
 * in f16, those that are stored as they are and those in between rounded first, and what it returns
 * is f16. All else stays f32: softmax, the statistics of norms, losses, sums over rows, and every
 * element-wise step. What is only moved is widened afterwards, if at all; sums of rows are narrowed
 * before they are put back: no table is widened whole.
 *
 * An accumulator is added to a product that is f16 by then: so in f16, which has the bits of an f32 sum
 * that is rounded to f16, as f32 has more than twice its digits.
 *
 * @module
 */

import { ONNX_DTYPE } from "../../../graph/value.ts";
import type { GraphProto, NodeProto } from "../../../onnx/onnx_pb.ts";
import {
  removeUnread,
  type Rewrite,
  rewriteNodes,
  type Writer,
} from "../../../onnx/graph_writer.ts";
import { intOf, type ValueType } from "../../../onnx/value_types.ts";
import { isRowAddition } from "./rewrites.ts";

const PRODUCTS = new Set(["MatMul", "FusedMatMul", "Gemm"]);

/** Operations that move elements of their first operand, so that it may be wide or narrow. */
const MOVEMENTS = new Set(["Reshape", "Transpose", "Split", "Gather"]);

/** The one that moves the elements of all its operands. */
const JOIN = "Concat";

const isCastTo = (node: NodeProto, dtype: "f16" | "f32") =>
  node.opType === "Cast" && intOf(node, "to", 0) === ONNX_DTYPE[dtype];

/** What a model widens and rounds. */
interface Stores {
  /** The f16 value of one that holds the same numbers in f32. */
  readonly loads: Map<string, string>;
  /** The node that rounds a value. */
  readonly stores: ReadonlyMap<string, NodeProto>;
  /** Values that something else than that node reads. */
  readonly read: ReadonlySet<string>;
}

function storesOf(graph: GraphProto, types: ReadonlyMap<string, ValueType>): Stores {
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
 * Lets the products of a graph compute in FP16, where the graph stores FP16.
 *
 * @returns whether it does.
 */
export function halveProducts(graph: GraphProto, types: ReadonlyMap<string, ValueType>): boolean {
  if (![...types.values()].some(({ dtype }) => dtype === "f16")) return false;
  const { loads, stores, read } = storesOf(graph, types), gone = new Set<NodeProto>();
  const rounded = new Map<string, string>();
  const half = (write: Writer, name: string) => {
    const known = loads.get(name) ?? rounded.get(name);
    if (known) return known;
    const made = write.node("Cast", [name], { to: ONNX_DTYPE.f16 });
    rounded.set(name, made);
    return made;
  };
  /** Computes the f16 values of a node's outputs, and what reads them in f32. */
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
