/**
 * The GPU as all devices of this isolate share it: opened by the first, closed by the last.
 *
 * @module
 */

import { Graph } from "../../graph/graph.ts";
import { encodeModel } from "../../onnx/encode_model.ts";
import { type GpuApi, openGpu } from "./gpu_api.ts";
import type { Adapter } from "./adapters/adapter.ts";
import { seeingAdapter } from "./adapters/process_adapter.ts";
import { claimGpu, releaseGpu } from "./owner.ts";

interface Context {
  readonly gpu: GpuApi;
  readonly library: string;
  users: number;
}

let context: Context | undefined;

/** A model of one node, whose session keeps the GPU's device open. */
function smallestModel(): Uint8Array {
  const g = new Graph(), x = g.input("x", [4]);
  return encodeModel(g, [{ name: "x", value: x }], [{ name: "y", value: g.neg(x) }]);
}

/**
 * Waits until the GPU has done all that it was given.
 *
 * [Note: nothing pending at the end] A process that ends while the GPU still works for it crashes in
 * the driver. What is copied to the host was computed after all that was queued before.
 */
function drain({ gpu }: Context): void {
  const memory = gpu.allocate(16), source = gpu.deviceTensor(memory, 4, [4], 2);
  const target = gpu.hostTensor(new Uint8Array(4));
  gpu.copy(source, target);
  for (const tensor of [source, target]) gpu.releaseTensor(tensor);
  gpu.free(memory);
}

const drainAtEnd = () => context && drain(context);

/**
 * Opens the GPU, or shares it where this isolate has it open.
 *
 * @throws {Error} when another isolate has it, the process has used another adapter, or the library cannot
 * be loaded.
 */
export function enterGpu(library: string, adapter: Adapter): GpuApi {
  if (!context) {
    claimGpu();
    try {
      context = {
        gpu: seeingAdapter(adapter, () => openGpu(library, smallestModel())),
        library,
        users: 0,
      };
    } catch (error) {
      releaseGpu();
      throw error;
    }
    globalThis.addEventListener("unload", drainAtEnd);
  }
  context.users++;
  return context.gpu;
}

/** Ends one {@linkcode enterGpu}. */
export function leaveGpu(): void {
  if (!context || --context.users > 0) return;
  const { gpu } = context;
  drain(context);
  context = undefined;
  globalThis.removeEventListener("unload", drainAtEnd);
  gpu.close();
  releaseGpu();
}
