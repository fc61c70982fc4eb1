/**
 * The GPU as all devices of this isolate share it: opened by the first, closed by the last.
 *
 * @module
 */

import { Graph } from "../../graph/graph.ts";
import { encodeModel } from "../../onnx/encode_model.ts";
import type { Adapter } from "./adapters/adapter.ts";
import { assertOnlyAdapter, seeingAdapter } from "./adapters/process_adapter.ts";
import { endAtOnce } from "./end_at_once.ts";
import { type GpuApi, openGpu } from "./gpu_api.ts";
import { claimGpu } from "./owner.ts";
import { quietly } from "./quiet.ts";

interface Context {
  readonly gpu: GpuApi;
  /** Gives the GPU to whoever comes next. */
  readonly release: () => void;
}

/** Those who have entered, or are about to. */
let users = 0;

let opening: Promise<Context> | undefined, context: Context | undefined;

/** A model of one node, whose session keeps the GPU's device open. */
function smallestModel(): Uint8Array {
  const g = new Graph(), x = g.input("x", [4]);
  return encodeModel(g, [{ name: "x", value: x }], [{ name: "y", value: g.neg(x) }]);
}

/**
 * Waits until the GPU has done all that it was given: what is copied to the host was computed after
 * all that was queued before. Its objects must not be released earlier.
 */
function drain(gpu: GpuApi): void {
  const memory = gpu.allocate(16), source = gpu.deviceTensor(memory, 4, [4], 2);
  const target = gpu.hostTensor(new Uint8Array(4));
  gpu.copy(source, target);
  for (const tensor of [source, target]) gpu.releaseTensor(tensor);
  gpu.free(memory);
}

async function open(library: string, adapter: Adapter): Promise<Context> {
  const release = await claimGpu();
  try {
    assertOnlyAdapter(adapter);
    const gpu = seeingAdapter(adapter, () => quietly(() => openGpu(library, smallestModel())));
    endAtOnce();
    return context = { gpu, release };
  } catch (error) {
    release();
    throw error;
  }
}

/**
 * Opens the GPU, or shares it where this isolate has it open.
 *
 * @throws {Error} when another isolate has it, the process has used another adapter, or the library cannot
 * be loaded.
 */
export async function enterGpu(library: string, adapter: Adapter): Promise<GpuApi> {
  users++;
  try {
    const { gpu } = await (opening ??= open(library, adapter));
    assertOnlyAdapter(adapter);
    return gpu;
  } catch (error) {
    if (context) leaveGpu();
    else if (--users === 0) opening = undefined;
    throw error;
  }
}

/** Ends one {@linkcode enterGpu}. */
export function leaveGpu(): void {
  if (!context || --users > 0) return;
  const { gpu, release } = context;
  opening = context = undefined;
  try {
    drain(gpu);
  } catch {
    // A GPU that was lost has nothing to do any more.
  }
  gpu.close();
  release();
}
