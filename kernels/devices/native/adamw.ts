/**
 * AdamW on the native device in one pass over memory, by a kernel of our own.
 *
 * @module
 */

import { fromBinary } from "@bufbuild/protobuf";
import { TROUPE } from "../../graph/value.ts";
import { ModelProtoSchema } from "../../onnx/onnx_pb.ts";
import { signatureOf } from "../../onnx/signature.ts";
import { valueTypes } from "../../onnx/value_types.ts";
import type { Binding, BoundProgram } from "../engine/engine_device.ts";
import { ownCall } from "../simd/own_nodes.ts";
import type { KernelMemory } from "./kernel_memory.ts";
import type { NativeBytes } from "./ort_memory.ts";

type Bindings = readonly Binding<NativeBytes>[];

/** Binds a model to memory; undefined where not all of its arrays lie where kernels see them. */
export type BindAdamw = (inputs: Bindings, outputs: Bindings) => BoundProgram | undefined;

/** How a model is bound to our kernel; undefined where it is more than one step of AdamW. */
export function adamwOf(model: Uint8Array, memory: KernelMemory): BindAdamw | undefined {
  const { graph } = fromBinary(ModelProtoSchema, model), node = graph?.node[0];
  if (!graph || graph.node.length > 1 || node?.domain !== TROUPE || node.opType !== "AdamW") {
    return undefined;
  }
  const call = ownCall(node, valueTypes(graph, signatureOf(graph).inputs));
  return call && ((inputs, outputs) => {
    const bindings = new Map([...inputs, ...outputs].map((one) => [one.name, one]));
    const scalars: Bindings = inputs.filter(({ shape }) => shape.length === 0);
    const offsetOf = (name: string) => {
      const binding = bindings.get(name), scalar = binding ? scalars.indexOf(binding) : -1;
      if (scalar >= 0) return memory.scratch.byteOffset + 4 * scalar;
      const start = binding && memory.offsetOf(binding.block);
      return start === undefined ? undefined : start + binding!.byteOffset;
    };
    const from = node.input.map(offsetOf), to = node.output.map(offsetOf);
    const isThere = (at: number | undefined) => at !== undefined;
    if (!from.every(isThere) || !to.every(isThere)) return undefined;
    const values = scalars.map(({ block, byteOffset }) =>
      new Float32Array(block.bytes.buffer, byteOffset, 1)
    );
    return {
      run() {
        values.forEach((value, i) => memory.scratch[i] = value[0]!);
        call.run(memory.kernels, from, to, 0);
      },
      release() {},
    };
  });
}
