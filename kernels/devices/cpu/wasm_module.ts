/**
 * Loads the emscripten module inside npm's onnxruntime-web.
 *
 * Its public API copies every input and output. The underlying module does not, but its functions are
 * private to the package: the exact version is pinned in deno.json. After a change of the version,
 * review this file and update its hash.
 *
 * @module
 */

import { checkPackage } from "../../data/npm_packages.ts";
import { ALIGNMENT, ORT_VERSION } from "./ort_library.ts";

/** An address in the module's heap, or an object of ONNX Runtime there. */
export type Pointer = number;

/** The functions of the module in use. Functions that return a status return 0 for success. */
export interface OrtModule {
  /** The heap. The view is replaced when it grows: read it for each use. */
  readonly HEAPU8: Uint8Array;
  stackSave(): Pointer;
  stackRestore(stack: Pointer): void;
  stackAlloc(byteLength: number): Pointer;
  setValue(at: Pointer, value: number, type: "i32" | "*"): void;
  getValue(at: Pointer, type: "i32" | "*"): number;
  UTF8ToString(at: Pointer): string;
  stringToUTF8(text: string, at: Pointer, byteLength: number): void;
  lengthBytesUTF8(text: string): number;
  _malloc(byteLength: number): Pointer;
  _free(at: Pointer): void;
  _OrtInit(threads: number, logLevel: number): number;
  /** Stores a code and the address of a text. */
  _OrtGetLastError(code: Pointer, text: Pointer): number;
  _OrtCreateSessionOptions(
    optimizationLevel: number,
    arena: boolean,
    memoryPattern: boolean,
    executionMode: number,
    profiling: boolean,
    profilePrefix: Pointer,
    logId: Pointer,
    logLevel: number,
    logVerbosity: number,
    optimizedModelPath: Pointer,
  ): Pointer;
  _OrtReleaseSessionOptions(options: Pointer): number;
  _OrtCreateSession(model: Pointer, byteLength: number, options: Pointer): Promise<Pointer>;
  _OrtReleaseSession(session: Pointer): number;
  _OrtCreateTensor(
    onnxDtype: number,
    data: Pointer,
    byteLength: number,
    dims: Pointer,
    rank: number,
    location: number,
  ): Pointer;
  _OrtReleaseTensor(tensor: Pointer): number;
  _OrtCreateRunOptions(
    logLevel: number,
    logVerbosity: number,
    terminate: boolean,
    tag: Pointer,
  ): Pointer;
  _OrtReleaseRunOptions(options: Pointer): number;
  _OrtRun(
    session: Pointer,
    inputNames: Pointer,
    inputs: Pointer,
    inputCount: number,
    outputNames: Pointer,
    outputCount: number,
    outputs: Pointer,
    options: Pointer,
  ): number;
}

/** A module, and the memory of its heap. */
interface OrtInstance {
  readonly ort: OrtModule;
  readonly memory: WebAssembly.Memory;
}

let loaded: Promise<unknown> = Promise.resolve();

/**
 * Starts a module with a separate heap.
 *
 * @throws {Error} when the package cannot be loaded or differs from its pinned hash.
 */
export function loadOrtModule(): Promise<OrtInstance> {
  // One after the other, because each replaces a global while it loads.
  const loading = loaded.then(withGlobalWorkerKept(instantiate));
  loaded = loading.catch(() => {});
  return loading;
}

/** The module and the files that it loads from its folder. */
const PACKAGE = {
  name: "onnxruntime-web",
  version: ORT_VERSION,
  folder: "dist/",
  files: /^ort-wasm-simd-threaded\.(mjs|wasm)$/,
  sha256: "3f8d468ffef4a28af6de81837d3816df4d7dcb15afa844b41fd18e59f6a47938",
};

/** Options of emscripten's factory that are in use. */
interface FactoryOptions {
  readonly numThreads: number;
  /** Creates the instance instead of the factory, which would compile the module again. */
  instantiateWasm(
    imports: WebAssembly.Imports,
    receive: (instance: WebAssembly.Instance, module: WebAssembly.Module) => void,
  ): object;
}

type Factory = (options: FactoryOptions) => Promise<OrtModule>;

let compiled: Promise<{ factory: Factory; module: WebAssembly.Module }> | undefined;

/** Compiles the module once per isolate; each device has an instance, and so a heap. */
async function compile(): Promise<{ factory: Factory; module: WebAssembly.Module }> {
  const source = "Deno" in globalThis ? await readModule() : await fetchModule();
  const { default: factory } = await import("onnxruntime-web/ort-wasm-simd-threaded.mjs");
  return { factory: factory as Factory, module: await WebAssembly.compile(source) };
}

const FILE = "ort-wasm-simd-threaded.wasm";

async function readModule(): Promise<BufferSource> {
  const script = import.meta.resolve("onnxruntime-web/ort-wasm-simd-threaded.mjs");
  checkPackage(PACKAGE, new URL("../", script));
  return await Deno.readFile(new URL(FILE, script));
}

/** Fetches the module from beside the script of a page. */
async function fetchModule(): Promise<BufferSource> {
  const url = new URL(FILE, import.meta.url), response = await fetch(url);
  if (response.ok) return await response.arrayBuffer();
  throw new Error(
    `Cannot open the wasm device: ${url} must be the file of onnxruntime-web ${ORT_VERSION}, received status ${response.status}`,
  );
}

async function instantiate(): Promise<OrtInstance> {
  const { factory, module } = await (compiled ??= compile().catch((error) => {
    compiled = undefined;
    throw error;
  }));
  let memory: WebAssembly.Memory | undefined;
  const { promise: failed, reject } = Promise.withResolvers<never>();
  const made = factory({
    numThreads: 1,
    instantiateWasm(imports, receive) {
      memory = Object.values(imports).flatMap((one) => Object.values(one)).find((one) =>
        one instanceof WebAssembly.Memory
      );
      // Asynchronously, as pages must.
      WebAssembly.instantiate(module, imports)
        .then((instance) => receive(instance, module)).catch(reject);
      return {};
    },
  });
  return { ort: await Promise.race([made, failed]), memory: memory! };
}

/**
 * Keeps the global Worker: the module takes Deno for Node and replaces it by that of
 * node:worker_threads, for threads that a device with a single thread never starts.
 */
function withGlobalWorkerKept<T>(load: () => Promise<T>): () => Promise<T> {
  return async () => {
    const original = Object.getOwnPropertyDescriptor(globalThis, "Worker")!;
    const { Worker } = globalThis;
    Object.defineProperty(globalThis, "Worker", {
      get: () => Worker,
      set() {},
      configurable: true,
    });
    try {
      return await load();
    } finally {
      Object.defineProperty(globalThis, "Worker", original);
    }
  };
}

const HEAP_BYTES = 2 ** 32;

/** A block of the heap. */
export interface HeapBlock {
  /** The result of `_malloc`. */
  readonly allocation: Pointer;
  /** The first aligned address in it. */
  readonly start: Pointer;
  readonly byteLength: number;
}

/**
 * Allocates uninitialized bytes.
 *
 * @throws {RangeError} when the heap is full.
 */
export function allocateBytes(ort: OrtModule, byteLength: number): Pointer {
  // The argument is a 32-bit number: a larger one would wrap around silently.
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
  // Not by bit masks, which are signed: the heap exceeds 2 GB.
  const start = Math.ceil(allocation / ALIGNMENT) * ALIGNMENT;
  ort.HEAPU8.fill(0, start, start + byteLength);
  return { allocation, start, byteLength };
}
