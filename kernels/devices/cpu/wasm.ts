/**
 * The wasm device, which runs on any system: ONNX Runtime in WebAssembly, the emscripten module inside
 * npm's onnxruntime-web.
 *
 * Tensors are in the module's heap, where kernels read and write them in place. Runs block the
 * isolate, so a worker that should receive messages while it computes needs a separate one.
 *
 * The public API of the package copies every input and output. The underlying module does not, but its functions are
 * private to the package: the exact version is pinned in deno.json. After a change of the version,
 * review this file and update its hash.
 *
 * @module
 */

import { checkPackage } from "../../data/npm_packages.ts";
import { ALIGNMENT, LOG_FATAL, OPTIMIZATION_LEVEL, ORT_VERSION } from "./ort_library.ts";
import { refusal } from "../../errors.ts";
import { elementCount } from "../../graph/shapes.ts";
import { ONNX_DTYPE } from "../../graph/value.ts";
import { lowerModel } from "../../onnx/lower.ts";
import { type Device, DTYPE_BYTES } from "../device.ts";
import { hostDevice } from "../engine.ts";
import {
  type Bind,
  compileParts,
  compileWhole,
  openShared,
  type PartEngine,
  type Placed,
  type Places,
} from "./parts.ts";
import { compileKernels, cutAtSimd, loadKernels, type SimdCall } from "./simd.ts";

/** An address in the module's heap, or an object of ONNX Runtime there. */
type Pointer = number;

/** A function of ONNX Runtime. A status of 0 is success. */
type OrtFunction = (...given: readonly (Pointer | boolean)[]) => Pointer;

/** The functions of the module in use. */
interface OrtModule {
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
  readonly _OrtInit: OrtFunction;
  /** Stores a code and the address of a text. */
  readonly _OrtGetLastError: OrtFunction;
  readonly _OrtCreateSessionOptions: OrtFunction;
  readonly _OrtReleaseSessionOptions: OrtFunction;
  _OrtCreateSession(model: Pointer, byteLength: number, options: Pointer): Promise<Pointer>;
  readonly _OrtReleaseSession: OrtFunction;
  readonly _OrtCreateTensor: OrtFunction;
  readonly _OrtReleaseTensor: OrtFunction;
  /** Takes levels of the log and its details, a flag that ends runs immediately, and their tag. */
  readonly _OrtCreateRunOptions: OrtFunction;
  readonly _OrtReleaseRunOptions: OrtFunction;
  readonly _OrtRun: OrtFunction;
}

let loaded: Promise<unknown> = Promise.resolve();

/**
 * Starts a module with a separate heap, and returns the memory of that, too.
 *
 * @throws {Error} when the package cannot be loaded or differs from its pinned hash.
 */
function loadOrtModule() {
  // One after the other, because each replaces a global while it loads.
  const loading = loaded.then(() => keepingGlobalWorker(instantiate));
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

let compiled: ReturnType<typeof compile> | undefined;

/** Compiles the module once per isolate; each device has an instance, and so a heap. */
async function compile() {
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

/** Fetches the module from the folder of the page's script. */
async function fetchModule(): Promise<BufferSource> {
  const url = new URL(FILE, import.meta.url), response = await fetch(url);
  if (response.ok) return await response.arrayBuffer();
  const must = `${url} must be the file of onnxruntime-web ${ORT_VERSION}`;
  throw refusal("open the wasm device", must, `status ${response.status}`, Error);
}

async function instantiate() {
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
async function keepingGlobalWorker<T>(load: () => Promise<T>): Promise<T> {
  const original = Object.getOwnPropertyDescriptor(globalThis, "Worker")!, { Worker } = globalThis;
  const kept = { get: () => Worker, set() {}, configurable: true };
  Object.defineProperty(globalThis, "Worker", kept);
  try {
    return await load();
  } finally {
    Object.defineProperty(globalThis, "Worker", original);
  }
}

const HEAP_BYTES = 2 ** 32;

/** A block of the heap. */
interface HeapBlock {
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
function allocateBytes(ort: OrtModule, byteLength: number): Pointer {
  // The argument is a 32-bit number: a larger one would wrap around silently.
  const pointer = byteLength < HEAP_BYTES ? ort._malloc(byteLength) : 0;
  if (pointer !== 0) return pointer;
  const received = `${byteLength} bytes more; use more workers or the native device`;
  throw refusal("allocate on the wasm device", "its heap must stay below 4 GB", received);
}

/** Allocates a zeroed block. */
function allocateBlock(ort: OrtModule, byteLength: number): HeapBlock {
  const allocation = allocateBytes(ort, byteLength + ALIGNMENT);
  // Not by bit masks, which are signed: the heap exceeds 2 GB.
  const start = Math.ceil(allocation / ALIGNMENT) * ALIGNMENT;
  ort.HEAPU8.fill(0, start, start + byteLength);
  return { allocation, start, byteLength };
}

const POINTER_BYTES = 4;
const CPU_LOCATION = 1;
/**
 * Arguments of `_OrtCreateSessionOptions`: an arena, memory patterns, sequential execution, no profile and
 * its prefix, no name, levels of the log, and no path of an optimized model.
 */
const SETTINGS = [OPTIMIZATION_LEVEL, true, true, 0, false, 0, 0, LOG_FATAL, 0, 0] as const;

/** Throws the module's last error unless `ok`. */
function check(ort: OrtModule, ok: boolean): void {
  if (ok) return;
  const stack = ort.stackSave();
  const at = ort.stackAlloc(2 * POINTER_BYTES);
  ort._OrtGetLastError(at, at + POINTER_BYTES);
  const text = ort.getValue(at + POINTER_BYTES, "*");
  const message = text === 0 ? "ONNX Runtime gave no reason" : ort.UTF8ToString(text);
  ort.stackRestore(stack);
  throw new Error(message);
}

/** Returns the pointer; throws if it is null. */
function created(ort: OrtModule, pointer: Pointer): Pointer {
  check(ort, pointer !== 0);
  return pointer;
}

/** Compiles a model. */
async function createSession(ort: OrtModule, model: Uint8Array): Promise<Pointer> {
  const bytes = allocateBytes(ort, model.byteLength);
  const options = created(ort, ort._OrtCreateSessionOptions(...SETTINGS));
  try {
    ort.HEAPU8.set(model, bytes);
    return created(ort, await ort._OrtCreateSession(bytes, model.byteLength, options));
  } finally {
    ort._OrtReleaseSessionOptions(options);
    ort._free(bytes);
  }
}

function createTensor(ort: OrtModule, { dtype, shape, address }: Placed): Pointer {
  const stack = ort.stackSave();
  const dims = ort.stackAlloc(shape.length * POINTER_BYTES);
  shape.forEach((size, i) => ort.setValue(dims + i * POINTER_BYTES, size, "i32"));
  const byteLength = elementCount(shape) * DTYPE_BYTES[dtype], type = ONNX_DTYPE[dtype];
  const tensor = ort._OrtCreateTensor(type, address, byteLength, dims, shape.length, CPU_LOCATION);
  ort.stackRestore(stack);
  return created(ort, tensor);
}

function cString(ort: OrtModule, text: string): Pointer {
  const byteLength = ort.lengthBytesUTF8(text) + 1;
  const at = allocateBytes(ort, byteLength);
  ort.stringToUTF8(text, at, byteLength);
  return at;
}

/** Binds a session to the heap. Runs are synchronous. */
const bindSession =
  (ort: OrtModule, runOptions: Pointer): Bind<Pointer> => (session, inputs, outputs) => {
    const all = [...inputs, ...outputs];
    const names = all.map(({ name }) => cString(ort, name));
    const tensors = all.map((binding) => createTensor(ort, binding));
    // One array of pointers: first every name, then every tensor, inputs before outputs in both.
    const table = allocateBytes(ort, 2 * all.length * POINTER_BYTES);
    const at = (index: number) => table + index * POINTER_BYTES;
    [...names, ...tensors].forEach((pointer, i) => ort.setValue(at(i), pointer, "*"));
    return {
      run() {
        const status = ort._OrtRun(
          session,
          at(0),
          at(all.length),
          inputs.length,
          at(inputs.length),
          outputs.length,
          at(all.length + inputs.length),
          runOptions,
        );
        check(ort, status === 0);
      },
      release() {
        for (const tensor of tensors) ort._OrtReleaseTensor(tensor);
        for (const pointer of [...names, table]) ort._free(pointer);
      },
    };
  };

/**
 * Opens ONNX Runtime's WebAssembly build as a device, with a separate heap of up to 4 GB and one
 * thread. The heap is garbage collected once the device is closed and no longer referenced. In a page,
 * `ort-wasm-simd-threaded.wasm` of onnxruntime-web must be beside the script.
 *
 * @throws {Error} when the module cannot be loaded.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { openWasm } from "@troupe/troupe/kernels";
 *
 * const device = await openWasm();
 * const tensor = device.alloc("i32", [3]);
 * device.write(tensor, Int32Array.of(1, 2, 3));
 * assert.deepEqual(await device.read(tensor), Int32Array.of(1, 2, 3));
 * device.close();
 * assert.throws(() => device.zero(tensor), /closed/);
 * ```
 */
export async function openWasm(): Promise<Device> {
  await compileKernels();
  const { ort, memory } = await loadOrtModule();
  check(ort, ort._OrtInit(1, LOG_FATAL) === 0);
  const runOptions = created(ort, ort._OrtCreateRunOptions(LOG_FATAL, 0, false, 0));
  const kernels = loadKernels(memory);
  const addresses = (places: Places) => places.map(({ address }) => address);
  const engine: PartEngine<HeapBlock, Pointer, SimdCall> = {
    allocate: (byteLength) => allocateBlock(ort, byteLength),
    free: ({ allocation }) => ort._free(allocation),
    addressOf: ({ start }) => start,
    bytesAt: (address, byteLength) => ort.HEAPU8.subarray(address, address + byteLength),
    createSession: (model) => createSession(ort, model),
    releaseSession: (session) => void ort._OrtReleaseSession(session),
    bindSession: bindSession(ort, runOptions),
    bindCall(call, inputs, outputs, work) {
      const from = addresses(inputs), to = addresses(outputs);
      return { run: () => call.run(kernels, from, to, work), release() {} };
    },
  };
  const shared = openShared(engine);
  return hostDevice<HeapBlock>({
    name: "wasm",
    allocate: engine.allocate,
    bytes: ({ start, byteLength }) => engine.bytesAt(start, byteLength),
    zero: ({ start }, byteOffset, byteLength) => kernels.zero(start + byteOffset, byteLength),
    release: engine.free,
    async compile(model) {
      const cut = cutAtSimd(model);
      if (cut) return await compileParts(engine, shared, cut);
      return await compileWhole(engine, lowerModel(model));
    },
    close() {
      shared.free();
      ort._OrtReleaseRunOptions(runOptions);
    },
  });
}
