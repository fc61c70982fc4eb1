/**
 * The webgpu device: the WebGPU provider of ONNX Runtime's C library, with tensors in GPU memory.
 *
 * All inputs and outputs of a kernel are bound there, so a run copies nothing between host and GPU;
 * `write` and `read` do. A run returns when its work is queued, in order; `read` waits for it.
 *
 * @module
 */

import { ONNX_DTYPE } from "../../graph/value.ts";
import type { NativeOptions } from "../cpu/native.ts";
import { type Handle, nativeLibraryPath } from "../cpu/ort_library.ts";
import { assertInput } from "../../errors.ts";
import type { Device } from "../device.ts";
import { type Binding, type BoundProgram, EngineDevice } from "../engine.ts";
import { checkHalf, chooseAdapters, webgpuAdapters } from "./adapters.ts";
import { assertFits, type GpuApi, namingMemory } from "./gpu_api.ts";
import { enterGpu, type GpuBlock, type GpuMemory, leaveGpu, openGpuMemory } from "./gpu_memory.ts";
import { prepareModel } from "./prepare.ts";
import type { Adapter } from "./vulkan.ts";

/** Options of {@linkcode openWebgpu}. */
export interface WebgpuOptions extends Pick<NativeOptions, "library" | "announce"> {
  /** The adapter, or its number. Default: the first GPU, or the first other one. */
  adapter?: Adapter | number;
  /**
   * Prefix of the names of files for a Chrome trace of the runs of each model, written when it is closed.
   * Each dispatch is an event of the category `Api`. Default: none.
   */
  profile?: string;
  /**
   * True captures the commands of each kernel's run, so that later runs replay them: the same bits at
   * about half of the CPU time a step. Each binding of a kernel then keeps its intermediate values in
   * separate memory, which no plan of memory counts. Ignored with `profile`. Default false.
   */
  capture?: boolean;
}

/**
 * Opens the GPU as a device. Only one isolate of a process can open it, with one adapter in the whole
 * life of the process; its memory is not garbage collected: close it.
 *
 * @throws {TypeError} when `adapter` is neither an adapter nor a number.
 * @throws {RangeError} when there is no adapter of this number.
 * @throws {Error} when the library cannot be found, fetched or loaded, there is no adapter, another
 * isolate of the process has the GPU open, or the process has used another adapter.
 */
export async function openWebgpu(options: WebgpuOptions = {}): Promise<Device> {
  const { announce, adapter: wanted, profile, capture = false } = options;
  const isAdapter = typeof wanted === "object" && wanted !== null && "environment" in wanted;
  const isChoice = wanted === undefined || Number.isInteger(wanted) || isAdapter;
  const must = "adapter must be a number or one of webgpuAdapters()";
  assertInput(isChoice, "open the webgpu device", must, wanted, TypeError);
  const library = options.library ?? await nativeLibraryPath(announce);
  const adapter = typeof wanted === "object"
    ? wanted
    : chooseAdapters(await webgpuAdapters({ library }), wanted === undefined ? [] : [wanted])[0];
  const gpu = await enterGpu(library, adapter);
  const memory = openGpuMemory(gpu, adapter, profile);
  return new EngineDevice<GpuBlock>({
    name: "webgpu",
    hasFreeViews: false,
    ...memory,
    // deno-lint-ignore require-await -- async, so that a refused model rejects instead of throwing
    async compile(bytes) {
      const model = prepareModel(bytes);
      if (model.usesHalf) checkHalf("compile the model for webgpu", [adapter]);
      const { largest } = model, what = largest && `its value ${largest.name} [${largest.shape}]`;
      assertFits("Cannot compile the model for webgpu", largest?.byteLength ?? 0, adapter, what);
      const isCaptured = capture && profile === undefined && model.isCapturable;
      const session = gpu.createSession(model.bytes, { profile, isCaptured });
      const compiled = { gpu, memory, adapter, session, model, isCaptured };
      return {
        bind: (inputs, outputs) => bind(compiled, inputs, outputs),
        release: () => gpu.releaseSession(session),
      };
    },
    close() {
      memory.close();
      leaveGpu();
    },
  });
}

/** A compiled model and the objects for its bindings. */
interface Compiled {
  readonly gpu: GpuApi;
  readonly memory: GpuMemory;
  readonly adapter: Adapter;
  readonly session: Handle;
  readonly model: ReturnType<typeof prepareModel>;
  readonly isCaptured: boolean;
}

const CANNOT_RUN = "Cannot run the model on webgpu";

type Bindings = readonly Binding<GpuBlock>[];

/** Memory of an input or output of a run, and a copy before or after it, if needed. */
interface Place {
  readonly block: GpuBlock;
  readonly copy?: () => void;
}

function bind(compiled: Compiled, inputs: Bindings, outputs: Bindings): BoundProgram {
  const { gpu, memory, adapter, session, isCaptured } = compiled, own: GpuBlock[] = [];
  const apart = (byteLength: number) => {
    const block = memory.allocate(byteLength);
    own.push(block);
    return block;
  };
  const sources = inputs.map((input) => sourceOf(compiled, input, apart));
  const targets = outputs.map((output) => targetOf(compiled, output, inputs, apart));
  const tensorsOf = (bindings: Bindings, places: readonly Place[]) =>
    bindings.map(({ name, byteLength, shape, dtype }, i) => ({
      name,
      tensor: gpu.deviceTensor(places[i]!.block.memory, byteLength, shape, ONNX_DTYPE[dtype]),
    }));
  const read = tensorsOf(inputs, sources), written = tensorsOf(outputs, targets);
  const bound = gpu.bind(session, read, written, isCaptured);
  const run = () => {
    try {
      bound.run();
    } catch (error) {
      throw namingMemory(error, CANNOT_RUN, "intermediate values", adapter);
    }
  };
  const inputBlocks = new Set(sources.map(({ block }) => block));
  const inPlace = targets.map(({ block }) => block).filter((block) => inputBlocks.has(block));
  let isFirst = isCaptured;
  return {
    ownBytes: own.reduce((sum, { byteLength }) => sum + byteLength, 0),
    run() {
      for (const { copy } of sources) copy?.();
      if (isFirst) keeping(memory, inPlace, run);
      isFirst = false;
      run();
      for (const { copy } of targets) copy?.();
    },
    release() {
      bound.release();
      for (const { tensor } of [...read, ...written]) gpu.releaseTensor(tensor);
      own.forEach(memory.release);
    },
  };
}

/**
 * Runs a function and restores the blocks that it overwrites.
 *
 * [Note: captured runs] With graph capture the first run of a binding computes more than once, and so
 * adds to a gradient twice. It is made to capture only: the inputs that it overwrites are restored, and
 * the next run replays it. Bindings share a session, so each has its own number: otherwise the buffers of
 * the first one are replayed for all. Copies of buffers are not captured, so a model that needs one, for
 * example to reshape a value into an output, is run as usual.
 */
function keeping(memory: GpuMemory, blocks: readonly GpuBlock[], run: () => void): void {
  const copies = blocks.map((block) => {
    const copy = memory.allocate(block.byteLength);
    memory.copy(block, copy, block.byteLength);
    return { block, copy };
  });
  try {
    run();
    for (const { block, copy } of copies) memory.copy(copy, block, block.byteLength);
  } finally {
    for (const { copy } of copies) memory.release(copy);
  }
}

type Apart = (byteLength: number) => GpuBlock;

/** A place in a block. */
type Position = readonly [block: GpuBlock, byteOffset: number];

/** Returns a copy through the host, which reaches any place of a block. */
function throughHost(memory: GpuMemory, from: Position, to: Position, byteLength: number) {
  const bytes = new Uint8Array(byteLength);
  return () => {
    memory.read(...from, bytes);
    memory.write(...to, bytes);
  };
}

function sourceOf({ memory }: Compiled, input: Binding<GpuBlock>, apart: Apart): Place {
  const { block, byteOffset, byteLength } = input;
  if (byteOffset === 0) return { block };
  const own = apart(byteLength);
  return { block: own, copy: throughHost(memory, [block, byteOffset], [own, 0], byteLength) };
}

/** Returns the place of an output: its memory, unless that is an input that must not be overwritten. */
function targetOf(
  { memory, model }: Compiled,
  { name, block, byteOffset, byteLength }: Binding<GpuBlock>,
  inputs: Bindings,
  apart: Apart,
): Place {
  const free = model.inPlace.get(name);
  const isFree = inputs.every((input) =>
    input.block !== block || input.byteOffset !== 0 || free?.has(input.name)
  );
  if (byteOffset === 0 && isFree) return { block };
  const own = apart(byteLength);
  if (byteOffset === 0) return { block: own, copy: () => memory.copy(own, block, byteLength) };
  return { block: own, copy: throughHost(memory, [own, 0], [block, byteOffset], byteLength) };
}
