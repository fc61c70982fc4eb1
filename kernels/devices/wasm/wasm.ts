/**
 * The device that runs anywhere: ONNX Runtime in WebAssembly.
 *
 * Tensors live in the module's own heap, where kernels read and write them in place. Runs block
 * the isolate, so a worker that wants to overlap computing with messages needs its own.
 *
 * @module
 */

import type { Device } from "../device.ts";
import { ONNX_DTYPE } from "../../graph/value.ts";
import { lowerModel } from "../../onnx/fused_ops.ts";
import type { Binding, BoundProgram } from "../engine/engine_device.ts";
import { hostDevice } from "../engine/host_device.ts";
import { ALIGNMENT, LOG_FATAL, OPTIMIZATION_LEVEL } from "../onnx_runtime/settings.ts";
import { loadOrtModule, type OrtModule, type Pointer } from "./wasm_module.ts";

const POINTER_BYTES = 4;
const HEAP_BYTES = 2 ** 32;
const CPU_LOCATION = 1;
const SEQUENTIAL = 0;

/** A block of the heap. */
interface Block {
  /** What `_malloc` returned. */
  readonly allocation: Pointer;
  /** The first aligned address in it. */
  readonly start: Pointer;
  readonly byteLength: number;
}

/**
 * Opens ONNX Runtime's WebAssembly build as a device, with a heap of its own of up to 4 GB and one
 * thread. The heap is the garbage collector's once the device is closed and no longer referenced.
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
  const ort = await loadOrtModule();
  check(ort, ort._OrtInit(1, LOG_FATAL) === 0);
  const runOptions = created(ort, ort._OrtCreateRunOptions(LOG_FATAL, 0, false, 0));
  return hostDevice<Block>({
    name: "wasm",
    allocate: (byteLength) => allocate(ort, byteLength),
    bytes: ({ start, byteLength }) => ort.HEAPU8.subarray(start, start + byteLength),
    release: ({ allocation }) => ort._free(allocation),
    async compile(model) {
      const session = await createSession(ort, lowerModel(model));
      return {
        bind: (inputs, outputs) => bind(ort, session, runOptions, inputs, outputs),
        release: () => void ort._OrtReleaseSession(session),
      };
    },
    close: () => void ort._OrtReleaseRunOptions(runOptions),
  });
}

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

/** The pointer, unless it is null. */
function created(ort: OrtModule, pointer: Pointer): Pointer {
  check(ort, pointer !== 0);
  return pointer;
}

function allocateBytes(ort: OrtModule, byteLength: number): Pointer {
  // Its argument is a 32-bit number, which a larger one would wrap around in silence.
  const pointer = byteLength < HEAP_BYTES ? ort._malloc(byteLength) : 0;
  if (pointer === 0) {
    throw new RangeError(
      `Cannot allocate on the wasm device: its heap must stay below 4 GB, received ${byteLength} bytes more; use more workers or the native device`,
    );
  }
  return pointer;
}

function allocate(ort: OrtModule, byteLength: number): Block {
  const allocation = allocateBytes(ort, byteLength + ALIGNMENT);
  // Not by bit masks, which are signed: the heap reaches beyond 2 GB.
  const start = Math.ceil(allocation / ALIGNMENT) * ALIGNMENT;
  ort.HEAPU8.fill(0, start, start + byteLength);
  return { allocation, start, byteLength };
}

async function createSession(ort: OrtModule, model: Uint8Array): Promise<Pointer> {
  const bytes = allocateBytes(ort, model.byteLength);
  const options = created(
    ort,
    ort._OrtCreateSessionOptions(
      OPTIMIZATION_LEVEL,
      true,
      true,
      SEQUENTIAL,
      false,
      0,
      0,
      LOG_FATAL,
      0,
      0,
    ),
  );
  try {
    ort.HEAPU8.set(model, bytes);
    return created(ort, await ort._OrtCreateSession(bytes, model.byteLength, options));
  } finally {
    ort._OrtReleaseSessionOptions(options);
    ort._free(bytes);
  }
}

function createTensor(ort: OrtModule, binding: Binding<Block>): Pointer {
  const { dtype, shape, block, byteOffset, byteLength } = binding;
  const stack = ort.stackSave();
  const dims = ort.stackAlloc(shape.length * POINTER_BYTES);
  shape.forEach((size, i) => ort.setValue(dims + i * POINTER_BYTES, size, "i32"));
  const data = block.start + byteOffset;
  const tensor = ort._OrtCreateTensor(
    ONNX_DTYPE[dtype],
    data,
    byteLength,
    dims,
    shape.length,
    CPU_LOCATION,
  );
  ort.stackRestore(stack);
  return created(ort, tensor);
}

function cString(ort: OrtModule, text: string): Pointer {
  const byteLength = ort.lengthBytesUTF8(text) + 1;
  const at = allocateBytes(ort, byteLength);
  ort.stringToUTF8(text, at, byteLength);
  return at;
}

function bind(
  ort: OrtModule,
  session: Pointer,
  runOptions: Pointer,
  inputs: readonly Binding<Block>[],
  outputs: readonly Binding<Block>[],
): BoundProgram {
  const all = [...inputs, ...outputs];
  const names = all.map(({ name }) => cString(ort, name));
  const tensors = all.map((binding) => createTensor(ort, binding));
  // One array of pointers: first every name, then every tensor, inputs before outputs in both.
  const table = allocateBytes(ort, 2 * all.length * POINTER_BYTES);
  const at = (index: number) => table + index * POINTER_BYTES;
  [...names, ...tensors].forEach((pointer, i) => ort.setValue(at(i), pointer, "*"));
  return {
    async run() {
      const status = await ort._OrtRun(
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
