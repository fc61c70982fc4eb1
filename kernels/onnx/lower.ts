/**
 * Rewrites Troupe's operations as operations of ONNX.
 *
 * A gradient would be many small operations in ONNX, each with a pass over memory. Graphs therefore
 * contain it as one operation of Troupe. Before a device compiles a model, it chooses how to
 * compute the operation: by a special kernel, by the rewrite in its record, or by a rewrite that is
 * faster there.
 *
 * @module
 */

import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { dtypeNumbered, type FusedOp, TROUPE, type ValueType } from "../graph/value.ts";
import { opOf } from "../ops/table.ts";
import { type GraphProto, ModelProtoSchema, type NodeProto } from "./onnx_pb.ts";
import { type Rewrite, rewriteNodes } from "./rewrite.ts";
import { attributesOf, signatureOf, wholeNumbers } from "./signature.ts";

/** A device's rewrites of Troupe's operations; `"keep"` if it has a kernel. */
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
 * Returns a model without operations of Troupe, which every device can compute.
 *
 * @param own special rewrites of the device.
 * @throws {Error} when the bytes are not a model.
 */
export function lowerModel(bytes: Uint8Array, own: FusedRewrites = {}): Uint8Array {
  const model = fromBinary(ModelProtoSchema, bytes), { graph } = model;
  if (!graph?.node.some(({ domain }) => domain === TROUPE)) return bytes;
  lowerGraph(graph, own);
  return toBinary(ModelProtoSchema, model);
}

/** Returns a function that returns the whole numbers of a node's constant inputs. */
export function constantNumbers(graph: GraphProto) {
  const constants = new Map(graph.initializer.map((one) => [one.name, one]));
  return ({ input }: NodeProto) => (place: number): readonly number[] | undefined => {
    const constant = constants.get(input[place]);
    return constant && wholeNumbers(constant);
  };
}

/**
 * Returns the dtypes and shapes of the values of a graph by name, where its operations are known: a
 * model only has those of its inputs and outputs.
 */
export function valueTypes(graph: GraphProto): Map<string, ValueType> {
  const types = new Map<string, ValueType>(
    signatureOf(graph).inputs.map(({ name, dtype, shape }) => [name, { dtype, shape }]),
  );
  for (const { name = "", dataType, dims } of graph.initializer) {
    const dtype = dtypeNumbered(dataType);
    if (dtype) types.set(name, { dtype, shape: dims.map(Number) });
  }
  const numbersOf = constantNumbers(graph);
  for (const node of graph.node) {
    if (node.input.some((name) => name !== "" && !types.has(name))) continue;
    const found = opOf(node.opType, node.domain)?.shape?.({
      attributes: attributesOf(node),
      inputs: node.input.map((name) => types.get(name)!) as [ValueType, ...ValueType[]],
      numbers: numbersOf(node),
      outputs: node.output.length,
    });
    found?.forEach((type, i) => {
      if (node.output[i]) types.set(node.output[i], type);
    });
  }
  return types;
}
