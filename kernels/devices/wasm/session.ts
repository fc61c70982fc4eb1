/**
 * Sessions of ONNX Runtime's WebAssembly build.
 *
 * @module
 */

import { DTYPE_BYTES } from "../device.ts";
import type { BoundProgram } from "../engine/engine_device.ts";
import { elementCount } from "../../graph/shapes.ts";
import { ONNX_DTYPE } from "../../graph/value.ts";
import type { Border } from "../../onnx/signature.ts";
import { LOG_FATAL, OPTIMIZATION_LEVEL } from "../onnx_runtime/settings.ts";
import { allocateBytes } from "./heap.ts";
import type { OrtModule, Pointer } from "./wasm_module.ts";

const POINTER_BYTES = 4;
const CPU_LOCATION = 1;
const SEQUENTIAL = 0;

/** The module, and how its sessions run. */
export interface OrtRuntime {
  readonly ort: OrtModule;
  readonly runOptions: Pointer;
}

/** An input or output of a model, in the heap. */
export interface Placed extends Border {
  readonly address: Pointer;
}

/** Throws the module's last error unless `ok`. */
export function check(ort: OrtModule, ok: boolean): void {
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
export function created(ort: OrtModule, pointer: Pointer): Pointer {
  check(ort, pointer !== 0);
  return pointer;
}

/** Compiles a model. */
export async function createSession(ort: OrtModule, model: Uint8Array): Promise<Pointer> {
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

function createTensor(ort: OrtModule, { dtype, shape, address }: Placed): Pointer {
  const stack = ort.stackSave();
  const dims = ort.stackAlloc(shape.length * POINTER_BYTES);
  shape.forEach((size, i) => ort.setValue(dims + i * POINTER_BYTES, size, "i32"));
  const byteLength = elementCount(shape) * DTYPE_BYTES[dtype];
  const tensor = ort._OrtCreateTensor(
    ONNX_DTYPE[dtype],
    address,
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

/** Binds a session to the heap. Runs are over when they return. */
export function bindSession(
  { ort, runOptions }: OrtRuntime,
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
