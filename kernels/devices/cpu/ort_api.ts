/**
 * The part of ONNX Runtime's C API that the native device uses.
 *
 * @module
 */

import {
  created,
  cString,
  type FunctionTable,
  type Handle,
  loadOrt,
  LOG_FATAL,
  OPTIMIZATION_LEVEL,
  SLOT,
} from "./ort_library.ts";
import {
  joinArena,
  makeMemory,
  makeTensors,
  type OrtMemory,
  type OrtTensors,
  SHARES_ARENA,
} from "./ort_memory.ts";

/** The first version of the API that tells of an allocator. */
const API_VERSION = 23;

/**
 * How the threads of a session wait.
 *
 * [Note: threads of a session] Each session has the threads within an operation for itself. One pool
 * for all sessions of a process would be as fast; but how an operation is divided, and with it some
 * bits, follows from the number of threads in the pool, and the pool of the process is made once. So a
 * worker would compute other bits beside a second one in its process than alone, and who opens a
 * device first would decide for all. Between two operations of a run they look for the next one for
 * some microseconds, as waking up takes as long as many an operation: that made forward and backward
 * 1.3 times as fast on four cores. When the run ends they sleep: threads that went on, as is ONNX
 * Runtime's way, would take the cores from the session that runs next.
 */
const WAITING: Readonly<Record<string, string>> = {
  "session.intra_op.spin_duration_us": "200",
  "session.force_spinning_stop": "1",
};

/** The arrays of pointers that a run passes, laid out once. */
interface RunTables {
  readonly inputCount: bigint;
  readonly outputCount: bigint;
  readonly inputNames: Handle;
  readonly inputs: Handle;
  readonly outputNames: Handle;
  readonly outputs: Handle;
}

/** ONNX Runtime, opened. Every method throws an `Error` with the C API's own text. */
export interface Ort extends OrtMemory {
  /** Compiles a model on the thread pool of blocking calls. */
  createSession(model: Uint8Array): Promise<Handle>;
  releaseSession(session: Handle): void;
  /** See {@linkcode OrtTensors.create}. */
  readonly createTensor: OrtTensors["create"];
  readonly releaseTensor: OrtTensors["release"];
  /** Runs a session, on this thread or on another: see {@linkcode OrtOptions.isBlocking}. */
  run(session: Handle, tables: RunTables): Promise<void>;
  /** Bytes that the arena of this process holds. */
  readonly arenaBytes: () => number;
  /** Gives back what is not in use any more. */
  close(): void;
}

/** How ONNX Runtime computes. */
interface OrtOptions {
  /** Threads within one operation. */
  readonly threads: number;
  /** Whether runs take the calling thread; else they leave it free and take another. */
  readonly isBlocking: boolean;
}

/**
 * Opens the library, the environment in it, and the arena of the process; no other isolate may do so
 * meanwhile.
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
  const env = created((out) =>
    api.sync(SLOT.createEnv, ["i32", "buffer", "buffer"])(LOG_FATAL, cString("troupe"), out)
  );
  const memory = makeMemory(api), tensors = makeTensors(api);
  const options = makeSessionOptions(api, threads);
  const sessions = makeSessions(api, env, options, memory);
  const arena = joinArena({ api, env, memory, tensors, createSession: sessions.createNow });
  return {
    ...memory,
    createSession: sessions.create,
    releaseSession: sessions.release,
    createTensor: tensors.create,
    releaseTensor: tensors.release,
    run: makeRun(api, isBlocking),
    arenaBytes: arena.heldBytes,
    close() {
      arena.leave();
      tensors.close();
      api.release(SLOT.releaseSessionOptions)(options);
      // The environment is one for all threads, and stays: a thread that opens it while another gives
      // back the last reference finds it half gone, and fails.
      unload();
    },
  };
}

/** The options of all sessions of a device. */
function makeSessionOptions(api: FunctionTable, threads: number): Handle {
  const options = created((out) => api.sync(SLOT.createSessionOptions, ["buffer"])(out));
  const set = (slot: number, value: number) => api.sync(slot, ["pointer", "i32"])(options, value);
  set(SLOT.setIntraOpThreads, threads);
  set(SLOT.setInterOpThreads, 1);
  set(SLOT.setGraphOptimizationLevel, OPTIMIZATION_LEVEL);
  api.sync(SLOT.disableMemPattern, ["pointer"])(options);
  const configure = api.sync(SLOT.addSessionConfigEntry, ["pointer", "buffer", "buffer"]);
  for (const [key, value] of Object.entries({ ...SHARES_ARENA, ...WAITING })) {
    configure(options, cString(key), cString(value));
  }
  return options;
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
