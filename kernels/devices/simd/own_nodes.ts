/**
 * The nodes of a model that our own kernels compute, and how.
 *
 * @module
 */

import { elementCount } from "../../graph/shapes.ts";
import { type FusedOp, TROUPE } from "../../graph/value.ts";
import type { NodeProto } from "../../onnx/onnx_pb.ts";
import { floatOf, type ValueType } from "../../onnx/value_types.ts";
import type { Address, SimdKernels } from "./load_kernels.ts";

/** Computes a node once its inputs and outputs have addresses, in the node's order. */
export type OwnCall = (
  kernels: SimdKernels,
  inputs: readonly Address[],
  outputs: readonly Address[],
) => void;

/** How a node is computed, given the type of its first input. */
type OwnNode = (node: NodeProto, type: ValueType) => OwnCall;

const adamw: OwnNode = (node, { shape }) => {
  const count = elementCount(shape);
  const factors = ["beta1", "rest1", "beta2", "rest2"].map((name) => floatOf(node, name, 0));
  return (kernels, inputs, outputs) => kernels.adamw(count, ...inputs, ...outputs, ...factors);
};

const OWN: Readonly<Partial<Record<FusedOp, OwnNode>>> = { AdamW: adamw };

/** What of our operations stays in a model that is compiled with our kernels. */
export const KEPT = Object.fromEntries(
  Object.keys(OWN).map((op) => [op, "keep"]),
) as Readonly<Partial<Record<FusedOp, "keep">>>;

/** How our kernels compute a node; undefined where they do not, or the type of its input is not known. */
export function ownCall(
  node: NodeProto,
  types: ReadonlyMap<string, ValueType>,
): OwnCall | undefined {
  const own = node.domain === TROUPE ? OWN[node.opType as FusedOp] : undefined;
  const type = types.get(node.input[0] ?? "");
  return type && own?.(node, type);
}
