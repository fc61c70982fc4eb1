/**
 * Memory in the heap of ONNX Runtime's WebAssembly build.
 *
 * @module
 */

import { ALIGNMENT } from "../onnx_runtime/settings.ts";
import type { OrtModule, Pointer } from "./wasm_module.ts";

const HEAP_BYTES = 2 ** 32;

/** A block of the heap. */
export interface HeapBlock {
  /** What `_malloc` returned. */
  readonly allocation: Pointer;
  /** The first aligned address in it. */
  readonly start: Pointer;
  readonly byteLength: number;
}

/**
 * Allocates bytes, whatever is in them.
 *
 * @throws {RangeError} when the heap is full.
 */
export function allocateBytes(ort: OrtModule, byteLength: number): Pointer {
  // Its argument is a 32-bit number, which a larger one would wrap around in silence.
  const pointer = byteLength < HEAP_BYTES ? ort._malloc(byteLength) : 0;
  if (pointer === 0) {
    throw new RangeError(
      `Cannot allocate on the wasm device: its heap must stay below 4 GB, received ${byteLength} bytes more; use more workers or the native device`,
    );
  }
  return pointer;
}

/** Allocates a zeroed block. */
export function allocateBlock(ort: OrtModule, byteLength: number): HeapBlock {
  const allocation = allocateBytes(ort, byteLength + ALIGNMENT);
  // Not by bit masks, which are signed: the heap reaches beyond 2 GB.
  const start = Math.ceil(allocation / ALIGNMENT) * ALIGNMENT;
  ort.HEAPU8.fill(0, start, start + byteLength);
  return { allocation, start, byteLength };
}
