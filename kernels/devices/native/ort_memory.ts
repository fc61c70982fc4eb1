/**
 * Memory of ONNX Runtime's allocator, and tensors over it.
 *
 * @module
 */

import { ALIGNMENT } from "../onnx_runtime/settings.ts";
import type { FunctionTable, Handle } from "../onnx_runtime/function_table.ts";
import { created, SLOT } from "../onnx_runtime/ort_library.ts";

const ARENA_ALLOCATOR = 1;
const DEFAULT_MEMORY = 0;

/** Memory of the library. */
export interface NativeBytes {
  /** What to free. */
  readonly allocation: Handle;
  /** The address of the first byte, a multiple of 64. */
  readonly address: bigint;
  /** The bytes, until they are freed. */
  readonly bytes: Uint8Array<ArrayBuffer>;
}

/** Where memory comes from. */
export interface OrtMemory {
  /** Allocates zeroed memory that the garbage collector does not know of. */
  allocate(byteLength: number): NativeBytes;
  free(memory: NativeBytes): void;
}

/** How tensors are made. */
export interface OrtTensors {
  /** The kind of memory that they lie in. */
  readonly memoryInfo: Handle;
  /** A tensor over memory of the caller. */
  create(
    address: bigint,
    byteLength: number,
    shape: readonly number[],
    onnxDtype: number,
  ): Handle;
  release(tensor: Handle): void;
  /** Frees what makes them. */
  close(): void;
}

/** The default allocator. */
export function makeMemory(api: FunctionTable): OrtMemory {
  const allocator = created((out) => api.sync(SLOT.getDefaultAllocator, ["buffer"])(out));
  const alloc = api.sync(SLOT.allocatorAlloc, ["pointer", "usize", "buffer"]);
  const free = api.sync(SLOT.allocatorFree, ["pointer", "pointer"]);
  return {
    allocate(byteLength) {
      const size = BigInt(byteLength + ALIGNMENT);
      const allocation = created((out) => alloc(allocator, size, out));
      const padding = -Deno.UnsafePointer.value(allocation) & BigInt(ALIGNMENT - 1);
      const first = Deno.UnsafePointer.offset(allocation, Number(padding))!;
      const bytes = new Uint8Array(Deno.UnsafePointerView.getArrayBuffer(first, byteLength));
      return { allocation, address: Deno.UnsafePointer.value(first), bytes: bytes.fill(0) };
    },
    free: ({ allocation }) => free(allocator, allocation),
  };
}

/** Tensors in the memory of the host. */
export function makeTensors(api: FunctionTable): OrtTensors {
  const memoryInfo = created((out) =>
    api.sync(SLOT.createCpuMemoryInfo, ["i32", "i32", "buffer"])(
      ARENA_ALLOCATOR,
      DEFAULT_MEMORY,
      out,
    )
  );
  const create = api.sync(
    SLOT.createTensorWithData,
    ["pointer", "pointer", "usize", "buffer", "usize", "i32", "buffer"],
  );
  return {
    memoryInfo,
    create(address, byteLength, shape, onnxDtype) {
      const data = Deno.UnsafePointer.create(address);
      const dims = new Uint8Array(BigInt64Array.from(shape, BigInt).buffer);
      const size = BigInt(byteLength), rank = BigInt(shape.length);
      return created((out) => create(memoryInfo, data, size, dims, rank, onnxDtype, out));
    },
    release: api.release(SLOT.releaseValue),
    close: () => api.release(SLOT.releaseMemoryInfo)(memoryInfo),
  };
}
