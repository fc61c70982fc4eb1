/**
 * A model as the WebGPU provider takes it.
 *
 * @module
 */

import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { lowerGraph } from "../../../onnx/fused_ops.ts";
import { ModelProtoSchema } from "../../../onnx/onnx_pb.ts";
import { signatureOf } from "../../../onnx/signature.ts";
import { halveProducts } from "./half_products.ts";
import { inPlaceOutputs } from "./in_place.ts";
import { maxPoolGrad } from "./max_pool_grad.ts";
import { largestValue, type ModelValue } from "./largest_value.ts";
import { valueTypes } from "../../../onnx/value_types.ts";
import { rewriteGraph } from "./rewrites.ts";
import { orderSums } from "./sum_order.ts";

/** A model of which each operation has a kernel on the GPU. */
export interface PreparedModel {
  readonly bytes: Uint8Array;
  /** For each output the inputs in whose memory it may lie. */
  readonly inPlace: ReadonlyMap<string, ReadonlySet<string>>;
  /** Whether it computes in FP16. */
  readonly usesHalf: boolean;
  /** Its largest value; undefined where it has none. */
  readonly largest: ModelValue | undefined;
}

/**
 * Rewrites a model.
 *
 * @throws {Error} when the bytes are no model, or use an operation in a form that is not known.
 */
export function prepareModel(bytes: Uint8Array): PreparedModel {
  try {
    const model = fromBinary(ModelProtoSchema, bytes), { graph } = model;
    if (!graph) throw new Error("it must hold a graph, received none");
    lowerGraph(graph, { MaxPoolGrad: maxPoolGrad });
    const { inputs } = signatureOf(graph);
    const usesHalf = halveProducts(graph, valueTypes(graph, inputs));
    rewriteGraph(graph, valueTypes(graph, inputs));
    orderSums(graph, valueTypes(graph, inputs));
    const types = valueTypes(graph, inputs), inPlace = inPlaceOutputs(graph, types);
    return {
      bytes: toBinary(ModelProtoSchema, model),
      inPlace,
      usesHalf,
      largest: largestValue(types),
    };
  } catch (error) {
    throw new Error(`Cannot compile the model for webgpu: ${(error as Error).message}`);
  }
}
