/**
 * The device that runs anywhere: ONNX Runtime in WebAssembly.
 *
 * Tensors live in the module's own heap, where kernels read and write them in place. Runs block
 * the isolate, so a worker that wants to overlap computing with messages needs its own.
 *
 * @module
 */

import type { Device } from "../device.ts";
import { hostDevice } from "../engine/host_device.ts";
import { LOG_FATAL } from "../onnx_runtime/settings.ts";
import { loadKernels } from "../simd/load_kernels.ts";
import { allocateBlock, type HeapBlock } from "./heap.ts";
import { compileProgram } from "./program.ts";
import { check, created } from "./session.ts";
import { sharedBytes } from "./shared_bytes.ts";
import { loadOrtModule } from "./wasm_module.ts";

/**
 * Opens ONNX Runtime's WebAssembly build as a device, with a heap of its own of up to 4 GB and one
 * thread. The heap is the garbage collector's once the device is closed and no longer referenced.
 *
 * @throws {Error} when the module cannot be loaded.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { openWasm } from "@troupe/troupe/kernels";
 *
 * const device = await openWasm();
 * const tensor = device.alloc("i32", [3]);
 * device.write(tensor, Int32Array.of(1, 2, 3));
 * assert.deepEqual(await device.read(tensor), Int32Array.of(1, 2, 3));
 * device.close();
 * assert.throws(() => device.zero(tensor), /closed/);
 * ```
 */
export async function openWasm(): Promise<Device> {
  const { ort, memory } = await loadOrtModule();
  check(ort, ort._OrtInit(1, LOG_FATAL) === 0);
  const runOptions = created(ort, ort._OrtCreateRunOptions(LOG_FATAL, 0, false, 0));
  const shared = sharedBytes(ort), kernels = loadKernels(memory);
  return hostDevice<HeapBlock>({
    name: "wasm",
    allocate: (byteLength) => allocateBlock(ort, byteLength),
    bytes: ({ start, byteLength }) => ort.HEAPU8.subarray(start, start + byteLength),
    zero: ({ start }, byteOffset, byteLength) => kernels.zero(start + byteOffset, byteLength),
    release: ({ allocation }) => ort._free(allocation),
    compile: (model) => compileProgram({ ort, runOptions, kernels, shared }, model),
    close() {
      shared.free();
      ort._OrtReleaseRunOptions(runOptions);
    },
  });
}
