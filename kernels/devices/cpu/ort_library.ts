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

import { fileURLToPath } from "node:url";
import { type PinnedFiles, pinnedPackage } from "../../data/npm_packages.ts";

/** A pointer to an object of the C API. */
export type Handle = Deno.PointerObject;

/** Bytes of a pointer. */
export const POINTER_BYTES = 8;

type Types = readonly Deno.NativeType[];
type Arguments<P extends Types> = Deno.ToNativeParameterTypes<P>;

/** A zero-terminated string. */
export const cString = (text: string): Uint8Array<ArrayBuffer> =>
  new TextEncoder().encode(`${text}\0`);

/** An array of pointers, as bytes. What they point to must be kept as long as it is read. */
export const pointers = (
  handles: readonly (Handle | Uint8Array<ArrayBuffer>)[],
): Uint8Array<ArrayBuffer> =>
  new Uint8Array(
    BigUint64Array.from(
      handles,
      (one) =>
        Deno.UnsafePointer.value(one instanceof Uint8Array ? Deno.UnsafePointer.of(one) : one),
    ).buffer,
  );

/** The functions of a table by slot. Those that return a status throw its text as an `Error`. */
export interface FunctionTable {
  /** A function that frees an object. */
  release(slot: number): (handle: Handle) => void;
  /** A function that returns a pointer to a string, and no status. */
  text<const P extends Types>(slot: number, parameters: P): (...args: Arguments<P>) => string;
  /** A function that returns a status. */
  sync<const P extends Types>(slot: number, parameters: P): (...args: Arguments<P>) => void;
  /** A function that returns a status, called on the thread pool of blocking calls. */
  async<const P extends Types>(
    slot: number,
    parameters: P,
  ): (...args: Arguments<P>) => Promise<void>;
}

/**
 * Wraps the table at `table`.
 *
 * @param getMessage slot of the function that gives the text of a status.
 * @param releaseStatus slot of the function that frees a status.
 */
function functionTable(
  table: Handle,
  getMessage: number,
  releaseStatus: number,
): FunctionTable {
  const view = new Deno.UnsafePointerView(table);
  const pointer = (slot: number) => view.getPointer(slot * POINTER_BYTES)! as never;
  const release = (slot: number): (handle: Handle) => void => {
    const fn = new Deno.UnsafeFnPointer(pointer(slot), { parameters: ["pointer"], result: "void" });
    return (handle) => fn.call(handle);
  };
  const messageOf = new Deno.UnsafeFnPointer(pointer(getMessage), {
    parameters: ["pointer"],
    result: "pointer",
  });
  const free = release(releaseStatus);
  const check = (status: Deno.PointerValue): void => {
    if (!status) return;
    const text = Deno.UnsafePointerView.getCString(messageOf.call(status)!);
    free(status);
    throw new Error(text);
  };
  return {
    release,
    text(slot, parameters) {
      const fn = new Deno.UnsafeFnPointer(pointer(slot), { parameters, result: "pointer" });
      return (...args) => Deno.UnsafePointerView.getCString(fn.call(...args as never)!);
    },
    sync(slot, parameters) {
      const fn = new Deno.UnsafeFnPointer(pointer(slot), { parameters, result: "pointer" });
      return (...args) => check(fn.call(...args as never));
    },
    async(slot, parameters) {
      const definition = { parameters, result: "pointer", nonblocking: true } as const;
      const fn = new Deno.UnsafeFnPointer(pointer(slot), definition);
      return async (...args) =>
        check(await (fn.call(...args as never) as Promise<Deno.PointerValue>));
    },
  };
}

/** The system's own loader, by `Deno.build.os`: the library that has it, and its function. */
const LOADERS: Readonly<Record<string, readonly [library: string, symbol: string]>> = {
  linux: ["libc.so.6", "dlopen"],
  darwin: ["/usr/lib/libSystem.B.dylib", "dlopen"],
  windows: ["kernel32.dll", "LoadLibraryA"],
};

/** Libraries that this isolate asked for. */
const kept = new Set<string>();

/**
 * Adds a reference to the library at `path` that nothing ever gives back.
 *
 * Deno unloads the libraries of an isolate that ends. Where another thread still runs their code,
 * because a worker was terminated in the middle of a call, that would end the process.
 */
function keepLoaded(path: string): void {
  const loader = LOADERS[Deno.build.os];
  if (kept.has(path) || loader === undefined) return;
  const [library, symbol] = loader;
  const lazily = 1; // RTLD_LAZY; LoadLibraryA takes the path alone and ignores it.
  try {
    const system = Deno.dlopen(library, {
      load: { name: symbol, parameters: ["buffer", "i32"], result: "pointer" },
    });
    system.symbols.load(new TextEncoder().encode(`${path}\0`), lazily);
    system.close();
  } catch {
    // An older system keeps its loader elsewhere. All but a terminated worker works without.
  }
  kept.add(path);
}

/** Version of ONNX Runtime, on every device that is made from it. */
export const ORT_VERSION = "1.30.0";

const PACKAGE = { name: "onnxruntime-node", version: ORT_VERSION, megabytes: 290 };

/** A library within the package, and all that the system may load because of it. */
interface Library extends PinnedFiles {
  readonly file: string;
}

/** Libraries beside this one go before those of the system, so none may be added. */
const LINUX = { file: "libonnxruntime.so.1", files: /\.so(\.\d+)*$/ };
const WINDOWS = { file: "onnxruntime.dll", files: /\.dll$/i };

/** By `Deno.build.os` and `Deno.build.arch`. */
const LIBRARIES: Readonly<Record<string, Library>> = {
  "linux-x86_64": {
    ...LINUX,
    folder: "bin/napi-v6/linux/x64/",
    sha256: "a4f7066866ff247ce32869f488ecc6e383452adf872f39170c7944c70dd98bfc",
  },
  "linux-aarch64": {
    ...LINUX,
    folder: "bin/napi-v6/linux/arm64/",
    sha256: "ca4788448e45705971e29f4076ec0ff820a115ca6b95b675a5a2d0766a3e884d",
  },
  "darwin-aarch64": {
    file: "libonnxruntime.1.30.0.dylib",
    files: /^libonnxruntime\.1\.30\.0\.dylib$/,
    folder: "bin/napi-v6/darwin/arm64/",
    sha256: "b6143db40887b281f5dbd8431c490775abcdc93f42fe5fb59d601954dde5f54a",
  },
  "windows-x86_64": {
    ...WINDOWS,
    folder: "bin/napi-v6/win32/x64/",
    sha256: "ddf7e2bbcf4aef7e53fd9562926238dd335a555af6f0af13ffcbd09b981ef022",
  },
  "windows-aarch64": {
    ...WINDOWS,
    folder: "bin/napi-v6/win32/arm64/",
    sha256: "37c9e40c21d6e560bda19c52dd1a0f9e9fa69b4a1ce24d7673a0dda0b889221b",
  },
};

let found: Promise<string> | undefined;

/**
 * The path of the native ONNX Runtime library on this machine. The first call in an isolate starts
 * a child process and reads the whole library; pass its result to workers as the `library` option instead of asking again.
 *
 * @param announce receives one line before a download starts.
 * @throws {Error} when the package carries no library for this platform, cannot be fetched, or is
 * not what it was when it was pinned.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { nativeLibraryPath } from "@troupe/troupe/kernels";
 *
 * const library = await nativeLibraryPath();
 * assert.ok((await Deno.stat(library)).isFile);
 * assert.equal(await nativeLibraryPath(), library);
 * ```
 */
export function nativeLibraryPath(announce: (line: string) => void = () => {}): Promise<string> {
  found ??= findLibrary(announce).catch((error) => {
    found = undefined;
    throw error;
  });
  return found;
}

async function findLibrary(announce: (line: string) => void): Promise<string> {
  const platform = `${Deno.build.os}-${Deno.build.arch}`;
  const library = LIBRARIES[platform];
  if (library === undefined) {
    throw new Error(
      `Cannot load ONNX Runtime: the platform must be one of ${
        Object.keys(LIBRARIES).join(", ")
      }, received ${platform}`,
    );
  }
  const { folder } = await pinnedPackage({ ...PACKAGE, ...library }, announce);
  return fileURLToPath(new URL(library.file, folder));
}

/** Read by the library, with the C function `getenv`, when its first environment is made. */
export const TELEMETRY_SWITCH = "ORT_DISABLE_TELEMETRY";

/**
 * Call before the library is loaded. It holds for all isolates of the process and for its children.
 *
 * @throws {Error} when this program may not set the variable: the library must not be loaded then.
 */
function switchOffTelemetry(): void {
  try {
    // Changing the environment while other threads read it is not safe, so only once.
    if (Deno.env.get(TELEMETRY_SWITCH) !== "1") Deno.env.set(TELEMETRY_SWITCH, "1");
  } catch (cause) {
    throw new Error(
      `Cannot load ONNX Runtime: ${TELEMETRY_SWITCH} must be set, or it sends telemetry, received ${
        (cause as Error).message
      }`,
      { cause },
    );
  }
}

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

/** Cache lines, and the widest vector registers, are 64 bytes. */
export const ALIGNMENT = 64;

/** Log nothing short of a crash: errors are thrown with their text, once. */
export const LOG_FATAL = 4;

/**
 * How far a session rewrites its graph: 0 is not at all, 99 all the way.
 *
 * Not at all, so that the bits of an operation do not depend on the model it stands in: a forward
 * pass, its recomputation inside a backward pass, and a backward pass in halves must agree. The
 * rewrites bring nothing here: forward and backward of GPT-2 blocks take the same time either way
 * (native and wasm, within 1 %), AdamW takes 2 ms more of a step of 145 ms.
 */
export const OPTIMIZATION_LEVEL = 0;
