/**
 * Loads ONNX Runtime's C library over `Deno.dlopen`.
 *
 * Its API is a table of functions to which releases only ever append, so a function's slot in
 * `onnxruntime_c_api.h` is its stable address.
 *
 * [Note: What outlives an isolate] A worker that is terminated loses its ArrayBuffers and its
 * libraries at once, while a run of its own may still be computing on another thread. So all that
 * a run touches is memory of the library's allocator, and the library stays loaded: what such a
 * worker held is lost to the process, but the process lives.
 *
 * @module
 */

import { type FunctionTable, functionTable, type Handle } from "./function_table.ts";
import { keepLoaded } from "./keep_loaded.ts";
import { switchOffTelemetry } from "./telemetry.ts";

/** Places of functions in the table. */
export const SLOT = {
  getErrorMessage: 2,
  createEnv: 3,
  createSessionFromArray: 8,
  run: 9,
  createSessionOptions: 10,
  disableMemPattern: 17,
  setGraphOptimizationLevel: 23,
  setIntraOpThreads: 24,
  setInterOpThreads: 25,
  createRunOptions: 39,
  createTensorWithData: 49,
  createMemoryInfo: 68,
  createCpuMemoryInfo: 69,
  allocatorAlloc: 75,
  allocatorFree: 76,
  getDefaultAllocator: 78,
  releaseStatus: 93,
  releaseMemoryInfo: 94,
  releaseSession: 95,
  releaseValue: 96,
  releaseRunOptions: 97,
  releaseSessionOptions: 100,
  addSessionConfigEntry: 130,
  createAllocator: 131,
  releaseAllocator: 132,
  runWithBinding: 133,
  createIoBinding: 134,
  releaseIoBinding: 135,
  bindInput: 136,
  bindOutput: 137,
  createAndRegisterAllocator: 144,
  releaseArenaCfg: 157,
  createArenaCfg: 164,
  addRunConfigEntry: 165,
  appendExecutionProvider: 216,
  getKeyValue: 297,
  releaseKeyValuePairs: 300,
  allocatorGetStats: 319,
  copyTensors: 386,
} as const;

/** The library, loaded. */
export interface OrtLibrary {
  /** Its functions. */
  readonly api: FunctionTable;
  /** Gives the library back; all objects of it are released. */
  readonly unload: () => void;
}

/**
 * Loads the library at a path.
 *
 * @param version of the API that must be there.
 * @throws {Error} when it cannot be loaded or is too old.
 */
export function loadOrt(path: string, version: number): OrtLibrary {
  switchOffTelemetry();
  const library = Deno.dlopen(path, { OrtGetApiBase: { parameters: [], result: "pointer" } });
  try {
    keepLoaded(path);
    return {
      api: getApi(library.symbols.OrtGetApiBase()!, version),
      unload: () => library.close(),
    };
  } catch (error) {
    library.close();
    throw error;
  }
}

function getApi(base: Handle, version: number): FunctionTable {
  type GetApi = { readonly parameters: readonly ["u32"]; readonly result: "pointer" };
  const get = new Deno.UnsafeFnPointer(
    new Deno.UnsafePointerView(base).getPointer(0) as Deno.PointerObject<GetApi>,
    { parameters: ["u32"], result: "pointer" },
  );
  const table = get.call(version);
  if (!table) throw new Error(`Cannot use this ONNX Runtime: it must have C API ${version}`);
  return functionTable(table, SLOT.getErrorMessage, SLOT.releaseStatus);
}

/** Calls a function that stores a pointer to a new object in `out`, and returns the pointer. */
export function created(call: (out: Uint8Array<ArrayBuffer>) => void): Handle {
  const out = new BigUint64Array(1);
  call(new Uint8Array(out.buffer));
  return Deno.UnsafePointer.create(out[0]!)!;
}
