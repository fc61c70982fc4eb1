/**
 * What it is to compute a node by a kernel of ours.
 *
 * @module
 */

import type { NodeProto } from "../../onnx/onnx_pb.ts";
import type { ValueType } from "../../onnx/value_types.ts";
import type { Address, SimdKernels } from "./load_kernels.ts";

/** A node that is computed by a kernel of ours. */
export interface OwnCall {
  /** Bytes of working memory that it takes. */
  readonly workBytes?: number;
  /** Computes it once its inputs and outputs have addresses, in the node's order. */
  readonly run: (
    kernels: SimdKernels,
    inputs: readonly Address[],
    outputs: readonly Address[],
    work: Address,
  ) => void;
}

/** How a node is computed, given the types of its inputs; undefined where it is not. */
export type OwnNode = (
  node: NodeProto,
  types: readonly [ValueType, ...ValueType[]],
) => OwnCall | undefined;
