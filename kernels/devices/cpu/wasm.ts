/**
 * The wasm device, which runs on any system: ONNX Runtime in WebAssembly.
 *
 * Tensors are in the module's heap, where kernels read and write them in place. Runs block the
 * isolate, so a worker that should receive messages while it computes needs a separate one.
 *
 * @module
 */

import { elementCount } from "../../graph/shapes.ts";
import { ONNX_DTYPE } from "../../graph/value.ts";
import { lowerModel } from "../../onnx/lower.ts";
import { type Device, DTYPE_BYTES } from "../device.ts";
import { type BoundProgram, hostDevice, type Program } from "../engine.ts";
import { LOG_FATAL, OPTIMIZATION_LEVEL } from "./ort_library.ts";
import { compileParts, type PartEngine, type Placed, placed, SharedMemory } from "./parts.ts";
import { compileKernels, cutAtSimd, loadKernels, type SimdCall, type SimdKernels } from "./simd.ts";
import {
  allocateBlock,
  allocateBytes,
  type HeapBlock,
  loadOrtModule,
  type OrtModule,
  type Pointer,
} from "./wasm_module.ts";

const POINTER_BYTES = 4;
const CPU_LOCATION = 1;
/** Arguments of `_OrtCreateSessionOptions`: an arena, memory patterns, and sequential execution. */
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
function bindSession(
  ort: OrtModule,
  runOptions: Pointer,
  session: Pointer,
  inputs: readonly Placed[],
  outputs: readonly Placed[],
): BoundProgram {
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
}

type WasmParts = PartEngine<HeapBlock, Pointer, SimdCall>;

function partEngine(ort: OrtModule, runOptions: Pointer, kernels: SimdKernels): WasmParts {
  const addresses = (places: readonly Placed[]) => places.map(({ address }) => address);
  return {
    allocate: (byteLength) => allocateBlock(ort, byteLength),
    free: ({ allocation }) => ort._free(allocation),
    addressOf: ({ start }) => start,
    bytesAt: (address, byteLength) => ort.HEAPU8.subarray(address, address + byteLength),
    createSession: (model) => createSession(ort, model),
    releaseSession: (session) => void ort._OrtReleaseSession(session),
    bindSession: (...given) => bindSession(ort, runOptions, ...given),
    bindCall(call, inputs, outputs, work) {
      const from = addresses(inputs), to = addresses(outputs);
      return { run: () => call.run(kernels, from, to, work), release() {} };
    },
  };
}

/** Compiles a model. */
async function compileProgram(
  engine: WasmParts,
  shared: SharedMemory<HeapBlock>,
  model: Uint8Array,
): Promise<Program<HeapBlock>> {
  const cut = cutAtSimd(model);
  if (cut) return await compileParts(engine, shared, cut);
  const session = await engine.createSession(lowerModel(model)), place = placed(engine);
  return {
    bind: (inputs, outputs) => engine.bindSession(session, inputs.map(place), outputs.map(place)),
    release: () => engine.releaseSession(session),
  };
}

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
  const kernels = loadKernels(memory), engine = partEngine(ort, runOptions, kernels);
  const shared = new SharedMemory(engine);
  return hostDevice<HeapBlock>({
    name: "wasm",
    allocate: engine.allocate,
    bytes: ({ start, byteLength }) => engine.bytesAt(start, byteLength),
    zero: ({ start }, byteOffset, byteLength) => kernels.zero(start + byteOffset, byteLength),
    release: engine.free,
    compile: (model) => compileProgram(engine, shared, model),
    close() {
      shared.free();
      ort._OrtReleaseRunOptions(runOptions);
    },
  });
}
