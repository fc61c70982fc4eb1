/**
 * Loads ONNX Runtime's C library over `Deno.dlopen`.
 *
 * Its API is a table of functions to which releases only append, so a function's slot in
 * `onnxruntime_c_api.h` is stable.
 *
 * [Note: What outlives an isolate] A worker that is terminated loses its ArrayBuffers and its
 * libraries immediately, while one of its runs may still compute on another thread. So all memory of a
 * run comes from the library's allocator, and the library stays loaded: the memory of such a worker
 * leaks, but the process does not crash.
 *
 * @module
 */

import { type PinnedFiles, pinnedPackage } from "../../data/npm_packages.ts";
import { builtin } from "../../builtin.ts";
import { refusal, resultOr } from "../../errors.ts";

const { fileURLToPath } = builtin("node:url");

/** A pointer to an object of the C API. */
export type Handle = Deno.PointerObject;

/** Bytes of a pointer. */
export const POINTER_BYTES = 8;

type Types = readonly Deno.NativeType[];

/** Functions of the table: their slot, and their parameters. */
const FUNCTIONS = {
  getErrorMessage: [2, "pointer"],
  createEnv: [3, "i32", "buffer", "buffer"],
  createSessionFromArray: [8, "pointer", "buffer", "usize", "pointer", "buffer"],
  run: [9, "pointer", "pointer", "buffer", "buffer", "usize", "buffer", "usize", "buffer"],
  /** The same by the addresses of its tables, which a call from another thread needs. */
  runAt: [9, "pointer", "pointer", "pointer", "pointer", "usize", "pointer", "usize", "pointer"],
  createSessionOptions: [10, "buffer"],
  enableProfiling: [14, "pointer", "buffer"],
  disableMemPattern: [17, "pointer"],
  setGraphOptimizationLevel: [23, "pointer", "i32"],
  setIntraOpThreads: [24, "pointer", "i32"],
  setInterOpThreads: [25, "pointer", "i32"],
  createRunOptions: [39, "buffer"],
  createTensorWithData: [49, "pointer", "pointer", "usize", "buffer", "usize", "i32", "buffer"],
  createMemoryInfo: [68, "buffer", "i32", "i32", "i32", "buffer"],
  createCpuMemoryInfo: [69, "i32", "i32", "buffer"],
  allocatorAlloc: [75, "pointer", "usize", "buffer"],
  allocatorFree: [76, "pointer", "pointer"],
  getDefaultAllocator: [78, "buffer"],
  releaseStatus: [93, "pointer"],
  releaseMemoryInfo: [94, "pointer"],
  releaseSession: [95, "pointer"],
  releaseValue: [96, "pointer"],
  releaseRunOptions: [97, "pointer"],
  releaseSessionOptions: [100, "pointer"],
  addSessionConfigEntry: [130, "pointer", "buffer", "buffer"],
  createAllocator: [131, "pointer", "pointer", "buffer"],
  releaseAllocator: [132, "pointer"],
  runWithBinding: [133, "pointer", "pointer", "pointer"],
  createIoBinding: [134, "pointer", "buffer"],
  releaseIoBinding: [135, "pointer"],
  bindInput: [136, "pointer", "buffer", "pointer"],
  bindOutput: [137, "pointer", "buffer", "pointer"],
  createAndRegisterAllocator: [144, "pointer", "pointer", "pointer"],
  releaseArenaCfg: [157, "pointer"],
  createArenaCfg: [164, "buffer", "buffer", "usize", "buffer"],
  addRunConfigEntry: [165, "pointer", "buffer", "buffer"],
  appendExecutionProvider: [216, "pointer", "buffer", "buffer", "buffer", "usize"],
  getKeyValue: [297, "pointer", "buffer"],
  releaseKeyValuePairs: [300, "pointer"],
  allocatorGetStats: [319, "pointer", "buffer"],
  copyTensors: [386, "pointer", "buffer", "buffer", "pointer", "usize"],
  subgraphsOfSession: [407, "pointer", "buffer", "buffer"],
  providerOfSubgraph: [408, "pointer", "buffer"],
  nodesOfSubgraph: [409, "pointer", "buffer", "buffer"],
  nameOfNode: [410, "pointer", "buffer"],
  operationOfNode: [412, "pointer", "buffer"],
} as const satisfies Readonly<Record<string, readonly [number, ...Deno.NativeType[]]>>;

type FunctionName = keyof typeof FUNCTIONS;

type ParametersOf<N extends FunctionName> = (typeof FUNCTIONS)[N] extends
  readonly [number, ...infer P extends Types] ? P : never;

/** The arguments of a function. */
type Arguments<N extends FunctionName> = Deno.ToNativeParameterTypes<ParametersOf<N>>;

/** The arguments of a function that stores a new object in its last one, without that one. */
type MakerArguments<N extends FunctionName> = ParametersOf<N> extends
  readonly [...infer P extends Types, "buffer"] ? Deno.ToNativeParameterTypes<P> : never;

/** Returns the bytes at an address. */
export const bytesAt = (address: number | bigint, length: number): Uint8Array<ArrayBuffer> =>
  new Uint8Array(
    Deno.UnsafePointerView.getArrayBuffer(Deno.UnsafePointer.create(BigInt(address))!, length),
  );

/** A zero-terminated string. */
export const cString = (text: string): Uint8Array<ArrayBuffer> =>
  new TextEncoder().encode(`${text}\0`);

/** Returns an array of pointers as bytes. The targets must be kept while it is read. */
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

/** Functions of the C API by name. Functions with a status throw its text as an `Error`. */
export class FunctionTable {
  readonly #view: Deno.UnsafePointerView;
  readonly #check: (status: Deno.PointerValue) => void;

  /** @param table the address of the table. */
  constructor(table: Handle) {
    this.#view = new Deno.UnsafePointerView(table);
    const textOf = this.text("getErrorMessage");
    const free = this.release("releaseStatus");
    this.#check = (status) => {
      if (!status) return;
      const text = textOf(status);
      free(status);
      throw new Error(text);
    };
  }

  /** Returns a function that frees an object. */
  release(name: FunctionName): (handle: Handle) => void {
    const definition = { parameters: ["pointer"], result: "void" } as const;
    const fn = new Deno.UnsafeFnPointer(this.#pointer(name), definition);
    return (handle) => fn.call(handle);
  }

  /** Returns a function that returns a pointer to a string, and no status. */
  text<N extends FunctionName>(name: N): (...args: Arguments<N>) => string {
    const fn = this.#function(name);
    return (...args) => Deno.UnsafePointerView.getCString(fn.call(...args as never)!);
  }

  /** Returns a function that returns a status. */
  sync<N extends FunctionName>(name: N): (...args: Arguments<N>) => void {
    const fn = this.#function(name);
    return (...args) => this.#check(fn.call(...args as never));
  }

  /** Returns a function that returns the new object that the C function stores in its last argument. */
  maker<N extends FunctionName>(name: N): (...args: MakerArguments<N>) => Handle {
    const fn = this.#function(name);
    return (...args) => created((out) => this.#check(fn.call(...[...args, out] as never)));
  }

  /** Returns a function that returns a status, called on the thread pool of blocking calls. */
  async<N extends FunctionName>(name: N): (...args: Arguments<N>) => Promise<void> {
    const [, ...parameters] = FUNCTIONS[name];
    const definition = { parameters, result: "pointer", nonblocking: true } as const;
    const fn = new Deno.UnsafeFnPointer(this.#pointer(name), definition);
    return async (...args) =>
      this.#check(await (fn.call(...args as never) as Promise<Deno.PointerValue>));
  }

  #function(name: FunctionName) {
    const [, ...parameters] = FUNCTIONS[name];
    return new Deno.UnsafeFnPointer(this.#pointer(name), { parameters, result: "pointer" });
  }

  #pointer(name: FunctionName): never {
    return this.#view.getPointer(FUNCTIONS[name][0] * POINTER_BYTES)! as never;
  }
}

/** The system's library by `Deno.build.os`. */
export const SYSTEMS: Readonly<Record<string, string>> = {
  linux: "libc.so.6",
  darwin: "/usr/lib/libSystem.B.dylib",
  windows: "kernel32.dll",
};

/** Libraries that this isolate has kept loaded. */
const kept = new Set<string>();

/**
 * Adds a reference to the library at `path` that is never released.
 *
 * Deno unloads the libraries of an isolate that ends. If another thread still runs their code, because
 * a worker was terminated during a call, the process would crash.
 */
export function keepLoaded(path: string): void {
  const library = SYSTEMS[Deno.build.os];
  if (kept.has(path) || library === undefined) return;
  const name = Deno.build.os === "windows" ? "LoadLibraryA" : "dlopen";
  const lazily = 1; // RTLD_LAZY; LoadLibraryA takes the path alone and ignores it.
  // An older system has another loader. Only terminated workers need this.
  resultOr(() => {
    const system = Deno.dlopen(library, {
      load: { name, parameters: ["buffer", "i32"], result: "pointer" },
    });
    system.symbols.load(cString(path), lazily);
    system.close();
  }, undefined);
  kept.add(path);
}

/** Version of ONNX Runtime on all devices that use it. */
export const ORT_VERSION = "1.30.0";

const PACKAGE = { name: "onnxruntime-node", version: ORT_VERSION, megabytes: 290 };

/** Libraries in this folder take precedence over those of the system, so none may be added. */
const LINUX = { file: "libonnxruntime.so.1", files: /\.so(\.\d+)*$/ };
const WINDOWS = { file: "onnxruntime.dll", files: /\.dll$/i };

/**
 * By `Deno.build.os` and `Deno.build.arch`, a library within the package, and all files that the
 * system may load with it.
 */
const LIBRARIES: Readonly<Record<string, PinnedFiles & { readonly file: string }>> = {
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
 * Returns the path of the native ONNX Runtime library on this machine. The first call in an isolate
 * starts a child process and reads the whole library; pass its result to workers as the `library`
 * option.
 *
 * @param announce receives one line before a download starts.
 * @throws {Error} when the package has no library for this platform, cannot be fetched, or differs from
 * its pinned hash.
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
    const must = `the platform must be one of ${Object.keys(LIBRARIES).join(", ")}`;
    throw refusal("load ONNX Runtime", must, platform, Error);
  }
  const { file, ...pinned } = library; // `file` of a package is one to import
  const { folder } = await pinnedPackage({ ...PACKAGE, ...pinned }, announce);
  return fileURLToPath(new URL(file, folder));
}

/** Environment variable that the library reads with `getenv` when it creates its environment. */
export const TELEMETRY_SWITCH = "ORT_DISABLE_TELEMETRY";

/**
 * Switches telemetry off, for all isolates of the process and its children. Call it before the library
 * is loaded.
 *
 * @throws {Error} when the variable cannot be set; then the library must not be loaded.
 */
function switchOffTelemetry(): void {
  try {
    // Setting a variable while other threads read the environment is unsafe, so it is set only once.
    if (Deno.env.get(TELEMETRY_SWITCH) !== "1") Deno.env.set(TELEMETRY_SWITCH, "1");
  } catch (cause) {
    const must = `${TELEMETRY_SWITCH} must be set, or it sends telemetry`;
    throw refusal("load ONNX Runtime", must, cause, Error);
  }
}

/** The first version of the API with statistics of an allocator, and with copies between devices. */
const API_VERSION = 23;

/**
 * Loads the library at a path.
 *
 * @param use opens it, given its functions and the function that unloads it, which must be called after
 * all of its objects were released.
 * @throws {Error} when it cannot be loaded or opened, or is too old; it is then unloaded.
 */
export function loadOrt<T>(path: string, use: (api: FunctionTable, unload: () => void) => T): T {
  switchOffTelemetry();
  const library = Deno.dlopen(path, { OrtGetApiBase: { parameters: [], result: "pointer" } });
  try {
    keepLoaded(path);
    return use(getApi(library.symbols.OrtGetApiBase()!), () => library.close());
  } catch (error) {
    library.close();
    throw error;
  }
}

function getApi(base: Handle): FunctionTable {
  type GetApi = { readonly parameters: readonly ["u32"]; readonly result: "pointer" };
  const get = new Deno.UnsafeFnPointer(
    new Deno.UnsafePointerView(base).getPointer(0) as Deno.PointerObject<GetApi>,
    { parameters: ["u32"], result: "pointer" },
  );
  const table = get.call(API_VERSION);
  if (!table) throw new Error(`Cannot use this ONNX Runtime: it must have C API ${API_VERSION}`);
  return new FunctionTable(table);
}

/** Calls a function that stores a pointer to a new object in `out`, and returns the pointer. */
export function created(call: (out: Uint8Array<ArrayBuffer>) => void): Handle {
  const out = new BigUint64Array(1);
  call(new Uint8Array(out.buffer));
  return Deno.UnsafePointer.create(out[0]!)!;
}

/** Cache lines, and the widest vector registers, are 64 bytes. */
export const ALIGNMENT = 64;

/** Log level: only fatal errors, since other errors are thrown with their text. */
export const LOG_FATAL = 4;

/**
 * Graph optimization level of sessions, from 0 (none) to 99 (all).
 *
 * None, so that the bits of an operation do not depend on its model: a forward pass, its recomputation
 * within a backward pass, and a backward pass in halves must agree. Optimization has no benefit here:
 * forward and backward of GPT-2 blocks take the same time either way (native and wasm, within 1 %),
 * AdamW takes 2 ms more of a step of 145 ms.
 */
export const OPTIMIZATION_LEVEL = 0;

/** Creates the environment, one for all threads of the process. */
export const createEnv = (api: FunctionTable): Handle =>
  api.maker("createEnv")(LOG_FATAL, cString("troupe"));

/** Creates options of sessions, with a configuration. */
export function createSessionOptions(
  api: FunctionTable,
  threads: number,
  config: Readonly<Record<string, string>>,
): Handle {
  const options = api.maker("createSessionOptions")();
  api.sync("setIntraOpThreads")(options, threads);
  api.sync("setInterOpThreads")(options, 1);
  api.sync("setGraphOptimizationLevel")(options, OPTIMIZATION_LEVEL);
  const configure = api.sync("addSessionConfigEntry");
  for (const [key, value] of Object.entries(config)) {
    configure(options, cString(key), cString(value));
  }
  return options;
}

/** Returns the memory info of the host. */
export function hostMemoryInfo(api: FunctionTable): Handle {
  const arenaAllocator = 1, defaultMemory = 0;
  return api.maker("createCpuMemoryInfo")(arenaAllocator, defaultMemory);
}

/** Returns a function that creates tensors over memory. */
export function tensorCreator(api: FunctionTable) {
  const create = api.maker("createTensorWithData");
  return (
    memoryInfo: Handle,
    data: Deno.PointerValue,
    byteLength: number,
    shape: readonly number[],
    onnxDtype: number,
  ): Handle => {
    const dims = new Uint8Array(BigInt64Array.from(shape, BigInt).buffer);
    return create(memoryInfo, data, BigInt(byteLength), dims, BigInt(shape.length), onnxDtype);
  };
}
