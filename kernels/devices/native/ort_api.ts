/**
 * The part of ONNX Runtime's C API that the native device uses.
 *
 * @module
 */

import { ALIGNMENT, LOG_FATAL, OPTIMIZATION_LEVEL } from "../onnx_runtime/settings.ts";
import type { FunctionTable, Handle } from "../onnx_runtime/function_table.ts";
import { created, loadOrt, SLOT } from "../onnx_runtime/ort_library.ts";

/** The version of the API that is used. */
const API_VERSION = 20;

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

/** The arrays of pointers that a run passes, laid out once. */
export interface RunTables {
  readonly inputCount: bigint;
  readonly outputCount: bigint;
  readonly inputNames: Handle;
  readonly inputs: Handle;
  readonly outputNames: Handle;
  readonly outputs: Handle;
}

/** ONNX Runtime, opened. Every method throws an `Error` with the C API's own text. */
export interface Ort {
  /** Allocates zeroed memory that the garbage collector does not know of. */
  allocate(byteLength: number): NativeBytes;
  free(memory: NativeBytes): void;
  /** Compiles a model on the thread pool of blocking calls. */
  createSession(model: Uint8Array): Promise<Handle>;
  releaseSession(session: Handle): void;
  /** A tensor over memory of the caller. */
  createTensor(
    address: bigint,
    byteLength: number,
    shape: readonly number[],
    onnxDtype: number,
  ): Handle;
  releaseTensor(tensor: Handle): void;
  /** Runs a session, on this thread or on another: see {@linkcode OrtOptions.isBlocking}. */
  run(session: Handle, tables: RunTables): Promise<void>;
  /** Frees the environment. */
  close(): void;
}

/** How ONNX Runtime computes. */
export interface OrtOptions {
  /** Threads within one operation. */
  readonly threads: number;
  /** Whether runs take the calling thread; else they leave it free and take another. */
  readonly isBlocking: boolean;
}

/**
 * Opens the library and an environment in it.
 *
 * @throws {Error} when the library cannot be loaded or is too old.
 */
export function openOrt(path: string, options: OrtOptions): Ort {
  const { api, unload } = loadOrt(path, API_VERSION);
  try {
    return makeOrt(api, options, unload);
  } catch (error) {
    unload();
    throw error;
  }
}

function makeOrt(
  api: FunctionTable,
  { threads, isBlocking }: OrtOptions,
  unload: () => void,
): Ort {
  const env = created((out) => {
    const name = new TextEncoder().encode("troupe\0");
    api.sync(SLOT.createEnv, ["i32", "buffer", "buffer"])(LOG_FATAL, name, out);
  });
  const options = created((out) => api.sync(SLOT.createSessionOptions, ["buffer"])(out));
  const set = (slot: number, value: number) => api.sync(slot, ["pointer", "i32"])(options, value);
  set(SLOT.setIntraOpThreads, threads);
  set(SLOT.setInterOpThreads, 1);
  set(SLOT.setGraphOptimizationLevel, OPTIMIZATION_LEVEL);
  const memory = makeMemory(api);
  const tensors = makeTensors(api);
  return {
    ...memory,
    createSession: makeCreateSession(api, env, options, memory),
    releaseSession: api.release(SLOT.releaseSession),
    createTensor: tensors.create,
    releaseTensor: tensors.release,
    run: makeRun(api, isBlocking),
    close() {
      tensors.close();
      api.release(SLOT.releaseSessionOptions)(options);
      // The environment is one for all threads, and stays: a thread that opens it while another gives
      // back the last reference finds it half gone, and fails.
      unload();
    },
  };
}

function makeMemory(api: FunctionTable): Pick<Ort, "allocate" | "free"> {
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

function makeCreateSession(
  api: FunctionTable,
  env: Handle,
  options: Handle,
  memory: Pick<Ort, "allocate" | "free">,
): Ort["createSession"] {
  const create = api.async(
    SLOT.createSessionFromArray,
    ["pointer", "buffer", "usize", "pointer", "buffer"],
  );
  return async (model) => {
    const bytes = memory.allocate(model.byteLength);
    const out = memory.allocate(BigUint64Array.BYTES_PER_ELEMENT);
    try {
      bytes.bytes.set(model);
      await create(env, bytes.bytes, BigInt(model.byteLength), options, out.bytes);
      return Deno.UnsafePointer.create(new BigUint64Array(out.bytes.buffer)[0]!)!;
    } finally {
      memory.free(bytes);
      memory.free(out);
    }
  };
}

function makeTensors(api: FunctionTable) {
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
    create(
      address: bigint,
      byteLength: number,
      shape: readonly number[],
      onnxDtype: number,
    ): Handle {
      const data = Deno.UnsafePointer.create(address);
      const dims = new Uint8Array(BigInt64Array.from(shape, BigInt).buffer);
      const size = BigInt(byteLength), rank = BigInt(shape.length);
      return created((out) => create(memoryInfo, data, size, dims, rank, onnxDtype, out));
    },
    release: api.release(SLOT.releaseValue),
    close: () => api.release(SLOT.releaseMemoryInfo)(memoryInfo),
  };
}

function makeRun(api: FunctionTable, isBlocking: boolean): Ort["run"] {
  const run = api[isBlocking ? "sync" : "async"](
    SLOT.run,
    ["pointer", "pointer", "pointer", "pointer", "usize", "pointer", "usize", "pointer"],
  );
  return async (session, tables) =>
    await run(
      session,
      null,
      tables.inputNames,
      tables.inputs,
      tables.inputCount,
      tables.outputNames,
      tables.outputCount,
      tables.outputs,
    );
}
