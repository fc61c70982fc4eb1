/**
 * Whether the GPU in use computes in FP16.
 *
 * @module
 */

import { Graph } from "../../graph/graph.ts";
import { ONNX_DTYPE } from "../../graph/value.ts";
import { encodeModel } from "../../onnx/encode_model.ts";
import type { GpuApi } from "./gpu_api.ts";

/** Bytes of a buffer: the smallest that is copied whole. */
const BUFFER_BYTES = 16;

const known = new WeakMap<GpuApi, boolean>();

/** Whether a model of one FP16 operation runs: sessions are made also where the GPU cannot. */
export function computesHalf(gpu: GpuApi): boolean {
  const found = known.get(gpu) ?? tryHalf(gpu);
  known.set(gpu, found);
  return found;
}

function tryHalf(gpu: GpuApi): boolean {
  const g = new Graph(), x = g.input("x", [4], "f16");
  const [y] = g.node("Neg", [x], [{ shape: [4], dtype: "f16" }]);
  const session = gpu.createSession(
    encodeModel(g, [{ name: "x", value: x }], [{ name: "y", value: y! }]),
  );
  const buffers = ["x", "y"].map((name) => {
    const memory = gpu.allocate(BUFFER_BYTES);
    return { name, memory, tensor: gpu.deviceTensor(memory, 8, [4], ONNX_DTYPE.f16) };
  });
  const bound = gpu.bind(session, buffers.slice(0, 1), buffers.slice(1));
  try {
    bound.run();
    return true;
  } catch {
    return false;
  } finally {
    bound.release();
    for (const { tensor, memory } of buffers) {
      gpu.releaseTensor(tensor);
      gpu.free(memory);
    }
    gpu.releaseSession(session);
  }
}
