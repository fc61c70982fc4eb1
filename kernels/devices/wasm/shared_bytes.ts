/**
 * Memory that all programs of a device use, one after the other.
 *
 * @module
 */

import { allocateBlock, type HeapBlock } from "./heap.ts";
import type { OrtModule, Pointer } from "./wasm_module.ts";

/** As much memory as the program needs that needs most. */
export interface SharedBytes {
  /** Where it begins; it moves when it grows. */
  readonly start: Pointer;
  /** Makes it at least this long. */
  reserve(byteLength: number): void;
  free(): void;
}

/** Nothing as yet. */
export function sharedBytes(ort: OrtModule): SharedBytes {
  let block: HeapBlock | undefined;
  const free = () => {
    if (block) ort._free(block.allocation);
    block = undefined;
  };
  return {
    get start() {
      return block?.start ?? 0;
    },
    reserve(byteLength) {
      if (byteLength <= (block?.byteLength ?? 0)) return;
      free();
      block = allocateBlock(ort, byteLength);
    },
    free,
  };
}
