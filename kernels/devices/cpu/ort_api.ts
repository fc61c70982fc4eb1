/**
 * The part of ONNX Runtime's C API that the native device uses.
 *
 * @module
 */

import {
  created,
  createEnv,
  createSessionOptions,
  type FunctionTable,
  type Handle,
  loadOrt,
  SLOT,
} from "./ort_library.ts";
import type { MatrixLibrary } from "./onednn.ts";
import { joinArena, makeMemory, makeTensors, type OrtMemory, SHARES_ARENA } from "./ort_memory.ts";

/** The first version of the API with statistics of an allocator. */
const API_VERSION = 23;

/**
 * Configuration of waiting threads.
 *
 * [Note: threads of a session] Each session has separate threads for its operations. One pool for all
 * sessions of a process would be as fast, but the number of threads in a pool determines how an
 * operation is divided, and with it some bits, and the pool of the process is created once. A worker
 * would then compute other bits next to a second one in its process than alone, and the first device
 * that opens would decide for all. Between two operations of a run the threads spin for some
 * microseconds, because waking up takes the time of many operations: this made forward and backward
 * 1.3 times as fast on four cores. At the end of a run they sleep: threads that keep spinning, ONNX
 * Runtime's default, would take cores from the session that runs next.
 */
const WAITING: Readonly<Record<string, string>> = {
  "session.intra_op.spin_duration_us": "200",
  "session.force_spinning_stop": "1",
};

/** An open ONNX Runtime. Every method throws an `Error` with the text of the C API. */
export type Ort = ReturnType<typeof makeOrt>;

/** Options of ONNX Runtime. */
interface OrtOptions {
  /** Threads within one operation. */
  readonly threads: number;
  /** True if runs block the calling thread; otherwise they use another one. */
  readonly isBlocking: boolean;
  /** The library for products with factors in BF16. Default: none. */
  readonly matrix?: MatrixLibrary | undefined;
}

/**
 * Opens the library, its environment, and the arena of the process. No other isolate may do so at the
 * same time.
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

/** Configuration of products in BF16 on CPUs of ARM, where MLAS rounds the factors. */
const ROUNDING: Readonly<Record<string, string>> = {
  "mlas.enable_gemm_fastmath_arm64_bfloat16": "1",
};

function makeOrt(
  api: FunctionTable,
  { threads, isBlocking, matrix }: OrtOptions,
  unload: () => void,
) {
  const env = createEnv(api), memory = makeMemory(api), tensors = makeTensors(api);
  const options = createSessionOptions(api, threads, {
    ...SHARES_ARENA,
    ...WAITING,
    ...matrix?.name === "MLAS" && ROUNDING,
  });
  api.sync(SLOT.disableMemPattern, ["pointer"])(options);
  const sessions = makeSessions(api, env, options, memory);
  const arena = joinArena({ api, env, memory, tensors, createSession: sessions.createNow });
  return {
    ...memory,
    /** Compiles a model on the thread pool of blocking calls. */
    createSession: sessions.create,
    releaseSession: sessions.release,
    createTensor: tensors.create,
    releaseTensor: tensors.release,
    /** Returns the run of a session, on this thread or another: see {@linkcode OrtOptions.isBlocking}. */
    bindRun: makeBindRun(api, isBlocking),
    /** Returns the bytes that the arena of this process holds. */
    arenaBytes: arena.heldBytes,
    /** Frees unused memory. */
    close() {
      arena.leave();
      tensors.close();
      api.release(SLOT.releaseSessionOptions)(options);
      // The environment is shared by all threads and is not released: a thread that opens it while
      // another one releases the last reference would fail.
      unload();
    },
  };
}

function makeSessions(api: FunctionTable, env: Handle, options: Handle, memory: OrtMemory) {
  const types = ["pointer", "buffer", "usize", "pointer", "buffer"] as const;
  const createNow = api.sync(SLOT.createSessionFromArray, types);
  const create = api.async(SLOT.createSessionFromArray, types);
  return {
    release: api.release(SLOT.releaseSession),
    createNow: (model: Uint8Array<ArrayBuffer>) =>
      created((out) => createNow(env, model, BigInt(model.byteLength), options, out)),
    async create(model: Uint8Array): Promise<Handle> {
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
    },
  };
}

function makeBindRun(api: FunctionTable, isBlocking: boolean) {
  const run = api[isBlocking ? "sync" : "async"](
    SLOT.run,
    ["pointer", "pointer", "pointer", "pointer", "usize", "pointer", "usize", "pointer"],
  );
  /** @param at returns the address of an entry of one table: names, then tensors, inputs first in both. */
  return (session: Handle, at: (index: number) => Handle, inputs: number, outputs: number) => {
    const all = inputs + outputs, names = [at(0), at(inputs)] as const;
    const tensors = [at(all), at(all + inputs)] as const;
    const counts = [BigInt(inputs), BigInt(outputs)] as const;
    return async () =>
      await run(session, null, names[0], tensors[0], counts[0], names[1], counts[1], tensors[1]);
  };
}
