/**
 * Troupe's own operations, written in those of ONNX.
 *
 * A gradient is many small operations in ONNX, each of which passes over memory. Graphs therefore
 * hold it as one operation of Troupe, and each device says before it compiles a model how it computes
 * that: by a kernel of its own, or in operations of ONNX, as its record says or in another way that
 * is faster there.
 *
 * @module
 */

import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { type FusedOp, TROUPE } from "../graph/value.ts";
import { valueTypes } from "../ops/infer.ts";
import { opOf } from "../ops/table.ts";
import { type GraphProto, ModelProtoSchema } from "./onnx_pb.ts";
import { type Rewrite, rewriteNodes } from "./rewrite.ts";

/** How a device computes operations of Troupe: `"keep"` where by a kernel of its own. */
export type FusedRewrites = Readonly<Partial<Record<FusedOp, Rewrite | "keep">>>;

/** Rewrites the operations of Troupe in a graph, in place. */
export function lowerGraph(graph: GraphProto, own: FusedRewrites = {}): void {
  rewriteNodes(graph, valueTypes(graph), "fused", ({ domain, opType }) => {
    if (domain !== TROUPE) return undefined;
    const rewrite = own[opType as FusedOp] ?? opOf(opType, domain)?.lower;
    return rewrite === "keep" ? undefined : rewrite;
  });
}

/**
 * A model without operations of Troupe, as every device can compute it.
 *
 * @param own what a device does in another way.
 * @throws {Error} when the bytes are no model.
 */
export function lowerModel(bytes: Uint8Array, own: FusedRewrites = {}): Uint8Array {
  const model = fromBinary(ModelProtoSchema, bytes), { graph } = model;
  if (!graph?.node.some(({ domain }) => domain === TROUPE)) return bytes;
  lowerGraph(graph, own);
  return toBinary(ModelProtoSchema, model);
}
