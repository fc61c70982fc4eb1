/**
 * The part of ONNX Runtime's C API that reaches its WebGPU provider.
 *
 * [Note: one thread] The provider has one GPU device for a process and no lock around it: two threads
 * that call it at a time end the process, and so does whoever allocates or copies while another
 * thread runs. So every call is made on the isolate's own thread and returns before the next one.
 * That costs little: a run only hands its work to the GPU, and whoever reads waits for it.
 *
 * @module
 */

import { created, loadOrt, type OrtLibrary, SLOT } from "../onnx_runtime/ort_library.ts";
import {
  cString,
  type FunctionTable,
  type Handle,
  POINTER_BYTES,
  pointers,
} from "../onnx_runtime/function_table.ts";
import { isForNodes, RECORDS_NODES, unservedNodes } from "./unserved_nodes.ts";
import { LOG_FATAL, OPTIMIZATION_LEVEL } from "../onnx_runtime/settings.ts";

const ARENA_ALLOCATOR = 1;
const DEVICE_ALLOCATOR = 0;
const DEFAULT_MEMORY = 0;

/** The first version of the API that copies tensors between devices. */
const API_VERSION = 23;

/** Options of the provider; their keys are short here, the long form would be ignored. */
const PROVIDER_OPTIONS: Readonly<Record<string, string>> = {
  // Indices of a scatter are int64 in ONNX.
  enableInt64: "1",
};

/** Settings of every session. */
const SESSION_CONFIG: Readonly<Record<string, string>> = {
  // A node without a kernel on the GPU is an error, never a hidden copy to the host and back.
  "session.disable_cpu_ep_fallback": "1",
};

/** A tensor that a run reads or writes. */
export interface BoundTensor {
  readonly name: string;
  readonly tensor: Handle;
}

/** ONNX Runtime's WebGPU provider. Methods throw an `Error` with its own text. */
export interface GpuApi {
  /** Allocates memory on the GPU, of any contents. */
  allocate(byteLength: number): Handle;
  free(memory: Handle): void;
  /** A tensor at the beginning of memory on the GPU. */
  deviceTensor(
    memory: Handle,
    byteLength: number,
    shape: readonly number[],
    onnxDtype: number,
  ): Handle;
  /** A tensor over bytes of the host, which must stay where they are until it is released. */
  hostTensor(bytes: Uint8Array): Handle;
  releaseTensor(tensor: Handle): void;
  /** Copies one tensor to another of the same size, wherever they lie; up and down it is waited for. */
  copy(source: Handle, target: Handle): void;
  /**
   * Compiles a model.
   *
   * @throws {Error} that names the nodes for which there is no kernel on the GPU.
   */
  createSession(model: Uint8Array): Handle;
  releaseSession(session: Handle): void;
  /** Binds a session to tensors. */
  bind(
    session: Handle,
    inputs: readonly BoundTensor[],
    outputs: readonly BoundTensor[],
  ): { run(): void; release(): void };
  /** Frees what the API holds itself: everything made with it has been released. */
  close(): void;
}

/**
 * Opens the provider.
 *
 * @param firstModel any model: its session keeps the GPU's device open.
 * @throws {Error} when the library cannot be loaded or there is no adapter.
 */
export function openGpu(library: string, firstModel: Uint8Array): GpuApi {
  const ort = loadOrt(library, API_VERSION);
  try {
    return makeGpu(ort, firstModel);
  } catch (error) {
    ort.unload();
    throw error;
  }
}

/**
 * What a copy to the host says of a GPU whose driver was reset, or that was taken out.
 *
 * [Note: a lost GPU] All else goes on without an error and computes nothing, for as long as the process
 * lives. But whatever leaves a stage, losses and norms included, is copied to the host: no step ends
 * with what a lost GPU did not compute.
 */
const LOST = /\bis lost\b/;

const lost = (cause: unknown) =>
  new Error(
    "Cannot read from the webgpu device: the GPU must answer, received that it is lost, as when its driver is reset; another process can open it again",
    { cause },
  );

function makeGpu({ api, unload }: OrtLibrary, firstModel: Uint8Array): GpuApi {
  const env = created((out) =>
    api.sync(SLOT.createEnv, ["i32", "buffer", "buffer"])(LOG_FATAL, cString("troupe"), out)
  );
  const createSession = makeCreateSession(api, env);
  const keeper = createSession(firstModel);
  const releaseSession = api.release(SLOT.releaseSession);
  const memory = makeMemory(api, keeper);
  const copy = api.sync(SLOT.copyTensors, ["pointer", "buffer", "buffer", "pointer", "usize"]);
  const ends = new BigUint64Array(2), from = new Uint8Array(ends.buffer, 0, POINTER_BYTES);
  const to = new Uint8Array(ends.buffer, POINTER_BYTES);
  return {
    ...memory.api,
    copy(source, target) {
      ends[0] = Deno.UnsafePointer.value(source);
      ends[1] = Deno.UnsafePointer.value(target);
      try {
        copy(env, from, to, null, 1n);
      } catch (error) {
        throw LOST.test((error as Error).message) ? lost(error) : error;
      }
    },
    createSession,
    releaseSession,
    bind: makeBind(api),
    close() {
      memory.close();
      releaseSession(keeper);
      // The environment stays, as it is one for all threads of the process.
      unload();
    },
  };
}

function makeMemory(api: FunctionTable, session: Handle) {
  const onDevice = created((out) =>
    api.sync(SLOT.createMemoryInfo, ["buffer", "i32", "i32", "i32", "buffer"])(
      cString("WebGPU_Buffer"),
      DEVICE_ALLOCATOR,
      0,
      DEFAULT_MEMORY,
      out,
    )
  );
  const onHost = created((out) =>
    api.sync(SLOT.createCpuMemoryInfo, ["i32", "i32", "buffer"])(
      ARENA_ALLOCATOR,
      DEFAULT_MEMORY,
      out,
    )
  );
  const allocator = created((out) =>
    api.sync(SLOT.createAllocator, ["pointer", "pointer", "buffer"])(session, onDevice, out)
  );
  const alloc = api.sync(SLOT.allocatorAlloc, ["pointer", "usize", "buffer"]);
  const free = api.sync(SLOT.allocatorFree, ["pointer", "pointer"]);
  const tensor = api.sync(
    SLOT.createTensorWithData,
    ["pointer", "pointer", "usize", "buffer", "usize", "i32", "buffer"],
  );
  const create = (
    info: Handle,
    data: Handle,
    byteLength: number,
    shape: readonly number[],
    onnxDtype: number,
  ) => {
    const dims = new Uint8Array(BigInt64Array.from(shape, BigInt).buffer);
    const size = BigInt(byteLength), rank = BigInt(shape.length);
    return created((out) => tensor(info, data, size, dims, rank, onnxDtype, out));
  };
  return {
    api: {
      allocate: (byteLength: number) => created((out) => alloc(allocator, BigInt(byteLength), out)),
      free: (memory: Handle) => free(allocator, memory),
      deviceTensor: (memory, byteLength, shape, onnxDtype) =>
        create(onDevice, memory, byteLength, shape, onnxDtype),
      hostTensor: (bytes: Uint8Array) =>
        create(onHost, Deno.UnsafePointer.of(bytes as Uint8Array<ArrayBuffer>)!, bytes.byteLength, [
          bytes.byteLength,
        ], ONNX_UINT8),
      releaseTensor: api.release(SLOT.releaseValue),
    } satisfies Partial<GpuApi>,
    close() {
      api.release(SLOT.releaseAllocator)(allocator);
      for (const info of [onDevice, onHost]) api.release(SLOT.releaseMemoryInfo)(info);
    },
  };
}

/** ONNX's number of the dtype in which bytes are copied. */
export const ONNX_UINT8 = 2;

function makeCreateSession(api: FunctionTable, env: Handle): GpuApi["createSession"] {
  const create = api.sync(
    SLOT.createSessionFromArray,
    ["pointer", "buffer", "usize", "pointer", "buffer"],
  );
  const set = (options: Handle, slot: number, value: number) =>
    api.sync(slot, ["pointer", "i32"])(options, value);
  const configure = api.sync(SLOT.addSessionConfigEntry, ["pointer", "buffer", "buffer"]);
  const append = api.sync(
    SLOT.appendExecutionProvider,
    ["pointer", "buffer", "buffer", "buffer", "usize"],
  );
  const open = (model: Uint8Array, config: Readonly<Record<string, string>>) => {
    // Its own for each: sessions that share options share a context that ends with the first of them.
    const options = created((out) => api.sync(SLOT.createSessionOptions, ["buffer"])(out));
    try {
      set(options, SLOT.setIntraOpThreads, 1);
      set(options, SLOT.setInterOpThreads, 1);
      set(options, SLOT.setGraphOptimizationLevel, OPTIMIZATION_LEVEL);
      for (const [key, value] of Object.entries(config)) {
        configure(options, cString(key), cString(value));
      }
      const keys = Object.keys(PROVIDER_OPTIONS).map(cString);
      const values = Object.values(PROVIDER_OPTIONS).map(cString);
      append(options, cString("WebGPU"), pointers(keys), pointers(values), BigInt(keys.length));
      return created((out) =>
        create(env, model as Uint8Array<ArrayBuffer>, BigInt(model.byteLength), options, out)
      );
    } finally {
      api.release(SLOT.releaseSessionOptions)(options);
    }
  };
  return (model) => {
    try {
      return open(model, SESSION_CONFIG);
    } catch (error) {
      if (!isForNodes(error)) throw error;
      const lenient = open(model, RECORDS_NODES), nodes = unservedNodes(api, lenient);
      api.release(SLOT.releaseSession)(lenient);
      throw new Error(
        `Cannot compile the model for webgpu: every operation must have a kernel on the GPU, received ${
          nodes.join(", ")
        } without one; use other operations in the layer, or another device such as native`,
      );
    }
  };
}

function makeBind(api: FunctionTable): GpuApi["bind"] {
  const create = api.sync(SLOT.createIoBinding, ["pointer", "buffer"]);
  const bindInput = api.sync(SLOT.bindInput, ["pointer", "buffer", "pointer"]);
  const bindOutput = api.sync(SLOT.bindOutput, ["pointer", "buffer", "pointer"]);
  const run = api.sync(SLOT.runWithBinding, ["pointer", "pointer", "pointer"]);
  const release = api.release(SLOT.releaseIoBinding);
  return (session, inputs, outputs) => {
    const binding = created((out) => create(session, out));
    try {
      for (const { name, tensor } of inputs) bindInput(binding, cString(name), tensor);
      for (const { name, tensor } of outputs) bindOutput(binding, cString(name), tensor);
    } catch (error) {
      release(binding);
      throw error;
    }
    return { run: () => run(session, null, binding), release: () => release(binding) };
  };
}
