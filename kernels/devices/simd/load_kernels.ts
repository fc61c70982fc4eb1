/**
 * Our own kernels in WebAssembly, which compute four numbers at once in any memory.
 *
 * @module
 */

import { KERNELS_MODULE } from "./kernels_module.ts";

/** The address of an array in the memory. */
export type Address = number;

/** The kernels; `source/` says what each computes, and of which numbers and addresses. */
export type KernelName =
  | "adamw"
  | "crossEntropy"
  | "dropoutMask"
  | "gelu"
  | "geluGrad"
  | "gemm"
  | "layerNorm"
  | "layerNormInputGrad"
  | "layerNormWeightGrad"
  | "logSoftmax"
  | "normals"
  | "softmax"
  | "softmaxGrad"
  | "sumOfSquares"
  | "zero";

/** The kernels over one memory. */
export type SimdKernels = Readonly<Record<KernelName, (...given: readonly number[]) => void>>;

let module: WebAssembly.Module | undefined;

/**
 * The kernels over a memory.
 *
 * @param memory shared, of up to 4 GiB.
 */
export function loadKernels(memory: WebAssembly.Memory): SimdKernels {
  module ??= new WebAssembly.Module(Uint8Array.fromBase64(KERNELS_MODULE));
  const { exports } = new WebAssembly.Instance(module, { env: { memory } });
  return exports as unknown as SimdKernels;
}
