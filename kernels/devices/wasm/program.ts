/**
 * Models as the wasm device computes them: sessions of ONNX Runtime, and kernels of our own between.
 *
 * @module
 */

import type { Binding, BoundProgram, Program } from "../engine/engine_device.ts";
import type { Border } from "../../onnx/signature.ts";
import { lowerModel } from "../../onnx/fused_ops.ts";
import { type CutModel, cutModel, type Part, workOf } from "../simd/cut_model.ts";
import type { SimdKernels } from "../simd/load_kernels.ts";
import { allocateBlock, type HeapBlock } from "./heap.ts";
import { bindSession, createSession, type OrtRuntime, type Placed } from "./session.ts";
import type { SharedBytes } from "./shared_bytes.ts";
import type { Pointer } from "./wasm_module.ts";

/** What programs of a device compute with. */
export interface WasmRuntime extends OrtRuntime {
  readonly kernels: SimdKernels;
  /** Where the values lie that one part makes and another reads. */
  readonly shared: SharedBytes;
}

type Bindings = readonly Binding<HeapBlock>[];

const placed = (binding: Binding<HeapBlock>): Placed => ({
  ...binding,
  address: binding.block.start + binding.byteOffset,
});

/** Compiles a model. */
export async function compileProgram(
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

/** A model in parts, compiled. */
interface CompiledParts {
  readonly cut: CutModel;
  readonly sessions: ReadonlyMap<Part, Pointer>;
  readonly constants: ReadonlyMap<string, HeapBlock>;
}

function bindParts(
  runtime: WasmRuntime,
  { cut, sessions, constants }: CompiledParts,
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
  const place = (borders: readonly Border[]) =>
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
    // Nothing is waited for in between: the shared memory is that of one run at a time.
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

/** Whether an input over which an output lies is read by a part after the one that makes the output. */
function isReadAfter(
  { parts }: CutModel,
  input: Binding<HeapBlock>,
  output: Binding<HeapBlock>,
): boolean {
  const distance = placed(output).address - placed(input).address;
  if (distance >= input.byteLength || -distance >= output.byteLength) return false;
  const has = (borders: readonly Border[], { name }: Border) =>
    borders.some((border) => border.name === name);
  return parts.findLastIndex((part) => has(part.inputs, input)) >
    parts.findIndex((part) => has(part.outputs, output));
}
