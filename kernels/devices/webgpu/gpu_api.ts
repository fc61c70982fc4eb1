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

import {
  created,
  cString,
  type FunctionTable,
  type Handle,
  loadOrt,
  LOG_FATAL,
  OPTIMIZATION_LEVEL,
  type OrtLibrary,
  POINTER_BYTES,
  pointers,
  SLOT as ORT_LIBRARY_SLOT,
} from "../cpu/ort_library.ts";
import { mebibytes } from "../tensor_memory.ts";
import type { Adapter } from "./vulkan.ts";

/** How large buffers can be, and where. */
export type BufferLimit = Pick<Adapter, "name" | "maxBufferBytes">;

/**
 * Refuses a tensor that is larger than the largest buffer.
 *
 * @param cannot begins the message: "Cannot allocate on the webgpu device".
 * @param what the tensor is, where there are several.
 * @throws {RangeError} with both sizes.
 */
export function assertFits(
  cannot: string,
  byteLength: number,
  { name, maxBufferBytes }: BufferLimit,
  what?: string,
): void {
  if (byteLength <= maxBufferBytes) return;
  const received = mebibytes(byteLength) + (what === undefined ? "" : ` for ${what}`);
  throw new RangeError(
    `${cannot}: a tensor must fit into the largest buffer of ${name}, ${
      mebibytes(maxBufferBytes, Math.floor)
    }, received ${received}; take a smaller micro-batch or a smaller model`,
  );
}

/** How the library says that a kernel was bound to a buffer which the GPU has refused. */
const REFUSED = /Invalid Buffer|max buffer size limit/;

/**
 * What to throw in place of an error of a kernel: where the GPU had no memory, that.
 *
 * @param needed what there is no memory for: "900.00 MiB".
 */
export function namingMemory(
  error: unknown,
  cannot: string,
  needed: string,
  { name }: BufferLimit,
): unknown {
  if (!REFUSED.test((error as Error).message)) return error;
  return new RangeError(
    `${cannot}: ${name} must have memory for ${needed}, received too little; take --recompute cheap, --offload, a smaller micro-batch, or more adapters`,
    { cause: error },
  );
}

/** glibc calls `on_exit` handlers with the exit code, the last one first; `_exit` ends there. */
const SYMBOLS = {
  on_exit: { parameters: ["pointer", "pointer"], result: "i32" },
  _exit: { type: "pointer" },
} as const;

/** From here on the process ends without destructors, with its exit code, where the system can. */
export function endAtOnce(): void {
  if (Deno.build.os !== "linux") return;
  try {
    const system = Deno.dlopen("libc.so.6", SYMBOLS);
    system.symbols.on_exit(system.symbols._exit, null);
    system.close();
  } catch {
    // A program that may load one library only has to close its devices before it ends.
  }
}

/** Places in the table of functions that tell which provider each node of a session was given to. */
const SLOT = {
  subgraphsOfSession: 407,
  providerOfSubgraph: 408,
  nodesOfSubgraph: 409,
  nameOfNode: 410,
  operationOfNode: 412,
} as const;

/** Configuration of a session that remembers where its nodes are: lenient, to be asked and released. */
const RECORDS_NODES: Readonly<Record<string, string>> = {
  "session.record_ep_graph_assignment_info": "1",
};

const CPU = "CPUExecutionProvider";

/** Whether a session was refused for the sake of a node without a kernel. */
const isForNodes = (error: unknown): boolean =>
  /fallback to CPU EP has been explicitly disabled/.test((error as Error).message);

/** The nodes of a session that compute on the host, each as `operation (node "name")`. */
function unservedNodes(api: FunctionTable, session: Handle): string[] {
  const text = (slot: number) => {
    const get = api.sync(slot, ["pointer", "buffer"]);
    return (of: Handle) => Deno.UnsafePointerView.getCString(created((out) => get(of, out)));
  };
  const list = (slot: number) => {
    const get = api.sync(slot, ["pointer", "buffer", "buffer"]);
    return (of: Handle) => {
      const place = new BigUint64Array(1), count = new BigUint64Array(1);
      get(of, new Uint8Array(place.buffer), new Uint8Array(count.buffer));
      if (count[0] === 0n) return [];
      const view = new Deno.UnsafePointerView(Deno.UnsafePointer.create(place[0]!)!);
      return Array.from(
        { length: Number(count[0]) },
        (_, i) => view.getPointer(i * POINTER_BYTES)!,
      );
    };
  };
  const providerOf = text(SLOT.providerOfSubgraph), nodesOf = list(SLOT.nodesOfSubgraph);
  const operationOf = text(SLOT.operationOfNode), nameOf = text(SLOT.nameOfNode);
  return list(SLOT.subgraphsOfSession)(session)
    .filter((subgraph) => providerOf(subgraph) === CPU)
    .flatMap(nodesOf)
    .map((node) => `${operationOf(node)} (node "${nameOf(node)}")`);
}

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
interface BoundTensor {
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
    api.sync(ORT_LIBRARY_SLOT.createEnv, ["i32", "buffer", "buffer"])(
      LOG_FATAL,
      cString("troupe"),
      out,
    )
  );
  const createSession = makeCreateSession(api, env);
  const keeper = createSession(firstModel);
  const releaseSession = api.release(ORT_LIBRARY_SLOT.releaseSession);
  const memory = makeMemory(api, keeper);
  const copy = api.sync(ORT_LIBRARY_SLOT.copyTensors, [
    "pointer",
    "buffer",
    "buffer",
    "pointer",
    "usize",
  ]);
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
    api.sync(ORT_LIBRARY_SLOT.createMemoryInfo, ["buffer", "i32", "i32", "i32", "buffer"])(
      cString("WebGPU_Buffer"),
      DEVICE_ALLOCATOR,
      0,
      DEFAULT_MEMORY,
      out,
    )
  );
  const onHost = created((out) =>
    api.sync(ORT_LIBRARY_SLOT.createCpuMemoryInfo, ["i32", "i32", "buffer"])(
      ARENA_ALLOCATOR,
      DEFAULT_MEMORY,
      out,
    )
  );
  const allocator = created((out) =>
    api.sync(ORT_LIBRARY_SLOT.createAllocator, ["pointer", "pointer", "buffer"])(
      session,
      onDevice,
      out,
    )
  );
  const alloc = api.sync(ORT_LIBRARY_SLOT.allocatorAlloc, ["pointer", "usize", "buffer"]);
  const free = api.sync(ORT_LIBRARY_SLOT.allocatorFree, ["pointer", "pointer"]);
  const tensor = api.sync(
    ORT_LIBRARY_SLOT.createTensorWithData,
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
      releaseTensor: api.release(ORT_LIBRARY_SLOT.releaseValue),
    } satisfies Partial<GpuApi>,
    close() {
      api.release(ORT_LIBRARY_SLOT.releaseAllocator)(allocator);
      for (const info of [onDevice, onHost]) api.release(ORT_LIBRARY_SLOT.releaseMemoryInfo)(info);
    },
  };
}

/** ONNX's number of the dtype in which bytes are copied. */
export const ONNX_UINT8 = 2;

function makeCreateSession(api: FunctionTable, env: Handle): GpuApi["createSession"] {
  const create = api.sync(
    ORT_LIBRARY_SLOT.createSessionFromArray,
    ["pointer", "buffer", "usize", "pointer", "buffer"],
  );
  const set = (options: Handle, slot: number, value: number) =>
    api.sync(slot, ["pointer", "i32"])(options, value);
  const configure = api.sync(ORT_LIBRARY_SLOT.addSessionConfigEntry, [
    "pointer",
    "buffer",
    "buffer",
  ]);
  const append = api.sync(
    ORT_LIBRARY_SLOT.appendExecutionProvider,
    ["pointer", "buffer", "buffer", "buffer", "usize"],
  );
  const open = (model: Uint8Array, config: Readonly<Record<string, string>>) => {
    // Its own for each: sessions that share options share a context that ends with the first of them.
    const options = created((out) =>
      api.sync(ORT_LIBRARY_SLOT.createSessionOptions, ["buffer"])(out)
    );
    try {
      set(options, ORT_LIBRARY_SLOT.setIntraOpThreads, 1);
      set(options, ORT_LIBRARY_SLOT.setInterOpThreads, 1);
      set(options, ORT_LIBRARY_SLOT.setGraphOptimizationLevel, OPTIMIZATION_LEVEL);
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
      api.release(ORT_LIBRARY_SLOT.releaseSessionOptions)(options);
    }
  };
  return (model) => {
    try {
      return open(model, SESSION_CONFIG);
    } catch (error) {
      if (!isForNodes(error)) throw error;
      const lenient = open(model, RECORDS_NODES), nodes = unservedNodes(api, lenient);
      api.release(ORT_LIBRARY_SLOT.releaseSession)(lenient);
      throw new Error(
        `Cannot compile the model for webgpu: every operation must have a kernel on the GPU, received ${
          nodes.join(", ")
        } without one; use other operations in the layer, or another device such as native`,
      );
    }
  };
}

function makeBind(api: FunctionTable): GpuApi["bind"] {
  const create = api.sync(ORT_LIBRARY_SLOT.createIoBinding, ["pointer", "buffer"]);
  const bindInput = api.sync(ORT_LIBRARY_SLOT.bindInput, ["pointer", "buffer", "pointer"]);
  const bindOutput = api.sync(ORT_LIBRARY_SLOT.bindOutput, ["pointer", "buffer", "pointer"]);
  const run = api.sync(ORT_LIBRARY_SLOT.runWithBinding, ["pointer", "pointer", "pointer"]);
  const release = api.release(ORT_LIBRARY_SLOT.releaseIoBinding);
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

/** Web Locks, as far as they are used here; the types that come with Deno lack them. */
interface LockManager {
  /** Calls `hold`, without a lock where it is taken, and keeps the lock until the promise settles. */
  request(
    name: string,
    options: { readonly ifAvailable: true },
    hold: (lock: object | null) => Promise<void> | void,
  ): Promise<void>;
}

const LOCK = "troupe: the webgpu device";

/** How often a taken lock is tried again, and after how long: a worker that lets go soon has done so. */
const MAX_TRIES = 50, PAUSE_MS = 10;

/** The main isolate's word: the number of its process. Children inherit it, and have other numbers. */
const VARIABLE = "TROUPE_WEBGPU_OWNER";

const isWorker = "DedicatedWorkerGlobalScope" in globalThis;

/**
 * Makes this isolate the owner, which it must not be yet.
 *
 * @returns what gives the GPU to whoever comes next.
 * @throws {Error} when another isolate of the process is.
 */
export async function claimGpu(): Promise<() => void> {
  for (let tries = 0; tries < MAX_TRIES; tries++) {
    const release = await tryToClaim();
    if (release) return release;
    // Counted, not timed: this isolate may itself be at work meanwhile.
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
  throw new Error(
    "Cannot open the webgpu device: one isolate of a process can use the GPU, received another that has it open; use isolation process",
  );
}

function tryToClaim(): Promise<(() => void) | undefined> {
  const { locks } = navigator as unknown as { readonly locks: LockManager };
  return new Promise((resolve, reject) => {
    locks.request(LOCK, { ifAvailable: true }, (lock) => {
      if (!lock || Deno.env.get(VARIABLE) === `${Deno.pid}`) return resolve(undefined);
      if (isWorker) return new Promise<void>(resolve);
      Deno.env.set(VARIABLE, `${Deno.pid}`);
      resolve(() => Deno.env.delete(VARIABLE));
    }).catch(reject);
  });
}

/** Of POSIX, by `Deno.build.os`. */
const SYSTEMS: Readonly<Record<string, string>> = {
  linux: "libc.so.6",
  darwin: "/usr/lib/libSystem.B.dylib",
};

const QUIET_SYMBOLS = {
  open: { parameters: ["buffer", "i32"], result: "i32" },
  close: { parameters: ["i32"], result: "i32" },
  dup: { parameters: ["i32"], result: "i32" },
  dup2: { parameters: ["i32", "i32"], result: "i32" },
} as const;

const STDERR = 2, WRITE_ONLY = 1;

/**
 * Runs what must not write to standard error; nothing else of this process can meanwhile. Where the
 * system is another, or this program may not call it, it may write.
 */
export function quietly<T>(run: () => T): T {
  const loud = silence();
  try {
    return run();
  } finally {
    loud();
  }
}

/** Returns what lets the process write to standard error again. */
function silence(): () => void {
  const library = SYSTEMS[Deno.build.os];
  if (library === undefined) return () => {};
  let system: Deno.DynamicLibrary<typeof QUIET_SYMBOLS>;
  try {
    system = Deno.dlopen(library, QUIET_SYMBOLS);
  } catch {
    return () => {};
  }
  const { open, close, dup, dup2 } = system.symbols;
  const kept = dup(STDERR), nowhere = open(new TextEncoder().encode("/dev/null\0"), WRITE_ONLY);
  if (kept >= 0 && nowhere >= 0) dup2(nowhere, STDERR);
  if (nowhere >= 0) close(nowhere);
  return () => {
    if (kept >= 0) {
      dup2(kept, STDERR);
      close(kept);
    }
    system.close();
  };
}
