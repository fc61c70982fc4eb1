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
import type { ModelPort } from "../../onnx/signature.ts";
import { type Device, DTYPE_BYTES } from "../device.ts";
import { type Binding, type BoundProgram, hostDevice, type Program } from "../engine.ts";
import { LOG_FATAL, OPTIMIZATION_LEVEL } from "./ort_library.ts";
import { loadKernels, type SimdKernels } from "./simd.ts";
import { type CutModel, cutModel, type Part, workOf } from "./simd_cut.ts";
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

/** An input or output of a model, in the heap. */
interface Placed extends ModelPort {
  readonly address: Pointer;
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
  { ort, runOptions }: WasmRuntime,
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

/** Opens memory that all programs share, as large as the largest needs. */
function openShared(ort: OrtModule) {
  let block: HeapBlock | undefined;
  const free = () => {
    if (block) ort._free(block.allocation);
    block = undefined;
  };
  return {
    /** Address; it changes when the memory grows. */
    get start(): Pointer {
      return block?.start ?? 0;
    },
    /** Makes it at least this long. */
    reserve(byteLength: number): void {
      if (byteLength <= (block?.byteLength ?? 0)) return;
      free();
      block = allocateBlock(ort, byteLength);
    },
    free,
  };
}

/** The parts of a device that its programs use. */
interface WasmRuntime {
  readonly ort: OrtModule;
  readonly runOptions: Pointer;
  readonly kernels: SimdKernels;
  /** Memory for values between parts. */
  readonly shared: ReturnType<typeof openShared>;
}

type Bindings = readonly Binding<HeapBlock>[];

const placed = (binding: Binding<HeapBlock>): Placed => ({
  ...binding,
  address: binding.block.start + binding.byteOffset,
});

/** Compiles a model. */
async function compileProgram(
  runtime: WasmRuntime,
  model: Uint8Array,
): Promise<Program<HeapBlock>> {
  const { ort } = runtime, cut = cutModel(model);
  if (cut) return await compileParts(runtime, cut);
  const session = await createSession(ort, lowerModel(model));
  return {
    bind: (inputs, outputs) =>
      bindSession(runtime, session, inputs.map(placed), outputs.map(placed)),
    release: () => void ort._OrtReleaseSession(session),
  };
}

async function compileParts(runtime: WasmRuntime, cut: CutModel): Promise<Program<HeapBlock>> {
  const { ort, shared } = runtime, sessions = new Map<Part, Pointer>();
  const constants = new Map<string, HeapBlock>();
  const release = () => {
    for (const session of sessions.values()) ort._OrtReleaseSession(session);
    for (const { allocation } of constants.values()) ort._free(allocation);
  };
  try {
    for (const part of cut.parts) {
      if ("model" in part) sessions.set(part, await createSession(ort, part.model));
    }
    for (const [name, bytes] of cut.constants) {
      const block = allocateBlock(ort, bytes.byteLength);
      constants.set(name, block);
      ort.HEAPU8.set(bytes, block.start);
    }
    shared.reserve(cut.sharedBytes);
  } catch (error) {
    release();
    throw error;
  }
  return {
    bind: (inputs, outputs) => bindParts(runtime, { cut, sessions, constants }, inputs, outputs),
    release,
  };
}

function bindParts(
  runtime: WasmRuntime,
  { cut, sessions, constants }: {
    readonly cut: CutModel;
    readonly sessions: ReadonlyMap<Part, Pointer>;
    readonly constants: ReadonlyMap<string, HeapBlock>;
  },
  inputs: Bindings,
  outputs: Bindings,
): BoundProgram {
  const { ort, kernels, shared } = runtime;
  const apart = new Map(
    outputs.filter((output) => inputs.some((input) => isReadAfter(cut, input, output)))
      .map((output) => [output, allocateBlock(ort, output.byteLength)] as const),
  );
  const addresses = new Map<string, Pointer>([
    ["", 0],
    ...inputs.map((one) => [one.name, placed(one).address] as const),
    ...outputs.map((one) => [one.name, apart.get(one)?.start ?? placed(one).address] as const),
    ...[...constants].map(([name, { start }]) => [name, start] as const),
  ]);
  const addressOf = (name: string) => addresses.get(name) ?? shared.start + cut.offsets.get(name)!;
  const place = (borders: readonly ModelPort[]) =>
    borders.map((border): Placed => ({ ...border, address: addressOf(border.name) }));
  const bindPart = (part: Part): BoundProgram => {
    const read = place(part.inputs), written = place(part.outputs);
    if (!("call" in part)) return bindSession(runtime, sessions.get(part)!, read, written);
    const from = read.map(({ address }) => address), to = written.map(({ address }) => address);
    const work = shared.start + (cut.offsets.get(workOf(part)) ?? 0);
    return { run: () => part.call.run(kernels, from, to, work), release() {} };
  };
  let bound: readonly BoundProgram[] = [], start: Pointer | undefined;
  const release = () => {
    for (const part of bound) part.release();
  };
  return {
    ownBytes: [...apart.keys()].reduce((sum, { byteLength }) => sum + byteLength, 0),
    // Synchronous: the shared memory belongs to one run at a time.
    run() {
      if (start !== shared.start) {
        release();
        start = shared.start;
        bound = cut.parts.map(bindPart);
      }
      for (const part of bound) part.run();
      for (const [output, { start, byteLength }] of apart) {
        ort.HEAPU8.copyWithin(placed(output).address, start, start + byteLength);
      }
    },
    release() {
      release();
      for (const { allocation } of apart.values()) ort._free(allocation);
    },
  };
}

/** Returns whether an output overlaps an input that a part after the output's maker reads. */
function isReadAfter(
  { parts }: CutModel,
  input: Binding<HeapBlock>,
  output: Binding<HeapBlock>,
): boolean {
  const distance = placed(output).address - placed(input).address;
  if (distance >= input.byteLength || -distance >= output.byteLength) return false;
  const has = (borders: readonly ModelPort[], { name }: ModelPort) =>
    borders.some((border) => border.name === name);
  return parts.findLastIndex((part) => has(part.inputs, input)) >
    parts.findIndex((part) => has(part.outputs, output));
}

/**
 * Opens ONNX Runtime's WebAssembly build as a device, with a separate heap of up to 4 GB and one
 * thread. The heap is garbage collected once the device is closed and no longer referenced.
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
  const { ort, memory } = await loadOrtModule();
  check(ort, ort._OrtInit(1, LOG_FATAL) === 0);
  const runOptions = created(ort, ort._OrtCreateRunOptions(LOG_FATAL, 0, false, 0));
  const shared = openShared(ort), kernels = loadKernels(memory);
  return hostDevice<HeapBlock>({
    name: "wasm",
    allocate: (byteLength) => allocateBlock(ort, byteLength),
    bytes: ({ start, byteLength }) => ort.HEAPU8.subarray(start, start + byteLength),
    zero: ({ start }, byteOffset, byteLength) => kernels.zero(start + byteOffset, byteLength),
    release: ({ allocation }) => ort._free(allocation),
    compile: (model) => compileProgram({ ort, runOptions, kernels, shared }, model),
    close() {
      shared.free();
      ort._OrtReleaseRunOptions(runOptions);
    },
  });
}
