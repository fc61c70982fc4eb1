/**
 * Memory of the native device in which our own kernels in WebAssembly compute, too.
 *
 * To ONNX Runtime it is memory like any other. It never moves: as it is shared, all that it may grow to
 * is set aside when it is made, which costs addresses and no memory. It is the garbage collector's once
 * the device is closed and no longer referenced.
 *
 * [Note: who may have it] An isolate that is terminated loses it at once. So a device has it only when
 * no other thread computes on its tensors: when its runs take the isolate's own. See
 * [Note: What outlives an isolate].
 *
 * @module
 */

import { loadKernels, type SimdKernels } from "../simd/load_kernels.ts";
import type { NativeBytes } from "./ort_memory.ts";

const PAGE_BYTES = 65_536;
/** Of 4 GiB, which is as far as kernels see. */
const PAGES_MAX = 65_536;
/** Smaller blocks are not worth a place. */
const BLOCK_BYTES_MIN = 65_536;

/** A part of the memory, in whole pages. */
interface Pages {
  readonly from: number;
  readonly to: number;
}

/** The memory, and the kernels over it. */
export interface KernelMemory {
  readonly kernels: SimdKernels;
  /** The first bytes, for numbers that a kernel reads from memory. */
  readonly scratch: Float32Array;
  /** A zeroed block; undefined where it is small, or there is no place for it. */
  allocate(byteLength: number): NativeBytes | undefined;
  /** Frees a block; false where it is none of this memory. */
  free(block: NativeBytes): boolean;
  /** Where kernels find a block; undefined where it is none of this memory. */
  offsetOf(block: NativeBytes): number | undefined;
}

/** Opens a memory that holds nothing as yet. */
export function openKernelMemory(): KernelMemory {
  const memory = new WebAssembly.Memory({ initial: 1, maximum: PAGES_MAX, shared: true });
  const scratch = new Float32Array(memory.buffer);
  const start = Deno.UnsafePointer.value(Deno.UnsafePointer.of(scratch));
  const used = new Map<NativeBytes, Pages>();
  /** What was freed, in order, no two beside each other. */
  let spare: Pages[] = [];
  const take = (count: number): Pages | undefined => {
    const found = spare.find(({ from, to }) => to - from >= count);
    if (!found) return grow(memory, count);
    const taken = { from: found.from, to: found.from + count };
    spare = spare.flatMap((one) => one !== found ? [one] : cut(one, taken.to));
    new Uint8Array(memory.buffer, taken.from * PAGE_BYTES, count * PAGE_BYTES).fill(0);
    return taken;
  };
  return {
    kernels: loadKernels(memory),
    scratch,
    allocate(byteLength) {
      if (byteLength < BLOCK_BYTES_MIN) return undefined;
      const pages = take(Math.ceil(byteLength / PAGE_BYTES));
      if (!pages) return undefined;
      const address = start + BigInt(pages.from * PAGE_BYTES);
      const allocation = Deno.UnsafePointer.create(address)!;
      const bytes = new Uint8Array(Deno.UnsafePointerView.getArrayBuffer(allocation, byteLength));
      const block = { allocation, address, bytes };
      used.set(block, pages);
      return block;
    },
    free(block) {
      const pages = used.get(block);
      if (pages) spare = joined([...spare, pages]);
      return used.delete(block);
    },
    offsetOf: (block) => used.has(block) ? used.get(block)!.from * PAGE_BYTES : undefined,
  };
}

/** New pages at the end; undefined where there are no more. */
function grow(memory: WebAssembly.Memory, count: number): Pages | undefined {
  try {
    const from = memory.grow(count);
    return { from, to: from + count };
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}

/** What is left of pages from one on. */
const cut = ({ to }: Pages, from: number): Pages[] => from < to ? [{ from, to }] : [];

/** Pages in order, neighbours as one. */
function joined(all: readonly Pages[]): Pages[] {
  const result: Pages[] = [];
  for (const { from, to } of all.toSorted((a, b) => a.from - b.from)) {
    const last = result.at(-1);
    if (last?.to === from) result[result.length - 1] = { from: last.from, to };
    else result.push({ from, to });
  }
  return result;
}
