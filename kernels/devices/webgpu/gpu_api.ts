/**
 * The part of ONNX Runtime's C API for its WebGPU provider, and the claim of the GPU by one isolate.
 *
 * [Note: one thread] The provider has one GPU device for a process and no lock: the process crashes if
 * two threads call it at the same time, or if one allocates or copies while another one runs. So every
 * call is made on the isolate's thread and returns before the next one. This costs little: a run only
 * queues its work on the GPU, and a read waits for it.
 *
 * [Note: refused buffers] The library returns a buffer of any size. If the GPU has refused it, writes are
 * lost and reads return zero, without an error; only a kernel that is bound to it fails. So a kernel
 * fills each new buffer with zeros before it is returned, and a size above the known limit is refused
 * before the allocation.
 *
 * [Note: no destructors] When a process exits, the C library calls the destructors of all libraries. The
 * destructors of the GPU's driver free objects that its threads still use: a process with pending GPU
 * work crashes at exit, with a signal instead of its exit code. Waiting for the work is not always
 * possible, for example after an uncaught error or in a terminated isolate. The system frees all GPU
 * objects of a process anyway. So once the GPU is open, the destructors of loaded libraries are skipped:
 * they only flush and free.
 *
 * [Note: one isolate] ONNX Runtime's provider has one GPU device for all isolates of a process and
 * crashes when two of them call it. So the first isolate to open it owns it until it closes it, and
 * others get an error before anything is touched. A Web Lock is shared by all isolates of a process but
 * not by its children, and a terminated worker releases it when its last call returns. But an isolate
 * that holds a lock does not end while it holds it. So only workers, which are always terminated, hold
 * it; the main isolate, which lives as long as the process, sets an environment variable instead.
 *
 * @module
 */

import {
  createEnv,
  createSessionOptions,
  cString,
  type FunctionTable,
  type Handle,
  hostMemoryInfo,
  loadOrt,
  POINTER_BYTES,
  pointers,
  SYSTEMS,
  tensorCreator,
} from "../cpu/ort_library.ts";
import { locks } from "../../builtin.ts";
import { resultOr } from "../../errors.ts";
import { mebibytes } from "../tensor_memory.ts";
import type { Adapter } from "./vulkan.ts";

/** Adapter properties that limit the size of buffers. */
export type BufferLimit = Pick<Adapter, "name" | "maxBufferBytes">;

/**
 * Throws if a tensor is larger than the largest buffer.
 *
 * @param cannot start of the message: "Cannot allocate on the webgpu device".
 * @param what the tensor, if there are several.
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

/** The library's error for a kernel that is bound to a buffer refused by the GPU. */
const REFUSED = /Invalid Buffer|max buffer size limit/;

/**
 * Returns the error to throw for an error of a kernel: a clear one if the GPU is out of memory.
 *
 * @param needed size for the message: "900.00 MiB".
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

/** Makes the process exit without destructors, with its exit code, if the system supports it. */
export function endAtOnce(): void {
  if (Deno.build.os !== "linux") return;
  // Without this permission a program only has to close its devices before it ends.
  resultOr(() => {
    const system = Deno.dlopen("libc.so.6", SYMBOLS);
    system.symbols.on_exit(system.symbols._exit, null);
    system.close();
  }, undefined);
}

/** Configuration of a session that records the provider of its nodes, for error messages. */
const RECORDS_NODES = { "session.record_ep_graph_assignment_info": "1" };

const CPU = "CPUExecutionProvider";

/** The library's error for a session with a node that has no kernel. */
const UNSERVED = /fallback to CPU EP has been explicitly disabled/;

/** Returns the nodes of a session on the host, each as `operation (node "name")`. */
function unservedNodes(api: FunctionTable, session: Handle): string[] {
  const text = (name: "providerOfSubgraph" | "nameOfNode" | "operationOfNode") => {
    const get = api.maker(name);
    return (of: Handle) => Deno.UnsafePointerView.getCString(get(of));
  };
  const list = (name: "subgraphsOfSession" | "nodesOfSubgraph") => {
    const get = api.sync(name);
    return (of: Handle) => {
      const place = new BigUint64Array(1), count = new BigUint64Array(1);
      get(of, new Uint8Array(place.buffer), new Uint8Array(count.buffer));
      if (count[0] === 0n) return [];
      const view = new Deno.UnsafePointerView(Deno.UnsafePointer.create(place[0]!)!);
      const length = Number(count[0]);
      return Array.from({ length }, (_, i) => view.getPointer(i * POINTER_BYTES)!);
    };
  };
  const providerOf = text("providerOfSubgraph"), nodesOf = list("nodesOfSubgraph");
  const operationOf = text("operationOfNode"), nameOf = text("nameOfNode");
  return list("subgraphsOfSession")(session)
    .filter((subgraph) => providerOf(subgraph) === CPU)
    .flatMap(nodesOf)
    .map((node) => `${operationOf(node)} (node "${nameOf(node)}")`);
}

const DEVICE_ALLOCATOR = 0;
const DEFAULT_MEMORY = 0;

/** Options of the provider, with short keys: it ignores the long form. */
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
export type GpuApi = ReturnType<typeof makeGpu>;

/**
 * Opens the provider.
 *
 * @param firstModel any model; its session keeps the GPU's device open.
 * @throws {Error} when the library cannot be loaded or there is no adapter.
 */
export const openGpu = (library: string, firstModel: Uint8Array): GpuApi =>
  loadOrt(library, (api, unload) => makeGpu(api, firstModel, unload));

/**
 * The error of a copy to the host from a GPU whose driver was reset, or that was removed.
 *
 * [Note: a lost GPU] All other calls continue without an error and compute nothing until the process
 * ends. But all outputs of a stage, including losses and norms, are copied to the host: no step can
 * end with results that a lost GPU did not compute.
 */
const LOST = /\bis lost\b/;

const lost = (cause: unknown) =>
  new Error(
    "Cannot read from the webgpu device: the GPU must answer, received that it is lost, as when its driver is reset; another process can open it again",
    { cause },
  );

function makeGpu(api: FunctionTable, firstModel: Uint8Array, unload: () => void) {
  const env = createEnv(api), createSession = makeCreateSession(api, env);
  const keeper = createSession(firstModel);
  const releaseSession = api.release("releaseSession");
  const memory = makeMemory(api, keeper);
  const copy = api.sync("copyTensors");
  const ends = new BigUint64Array(2), from = new Uint8Array(ends.buffer, 0, POINTER_BYTES);
  const to = new Uint8Array(ends.buffer, POINTER_BYTES);
  return {
    ...memory.api,
    /** Copies a tensor to another of the same size; copies from and to the host are synchronous. */
    copy(source: Handle, target: Handle) {
      ends[0] = Deno.UnsafePointer.value(source);
      ends[1] = Deno.UnsafePointer.value(target);
      try {
        copy(env, from, to, null, 1n);
      } catch (error) {
        throw LOST.test((error as Error).message) ? lost(error) : error;
      }
    },
    /**
     * Compiles a model, and writes a profile of its runs if a prefix of the file's name is given; throws
     * with the nodes that have no kernel on the GPU.
     */
    createSession,
    releaseSession,
    /** Binds a session to tensors. */
    bind: makeBind(api),
    /** Frees the API, after all of its objects were released. */
    close() {
      memory.close();
      releaseSession(keeper);
      // The environment is not released, because all threads of the process share it.
      unload();
    },
  };
}

function makeMemory(api: FunctionTable, session: Handle) {
  const info = api.maker("createMemoryInfo");
  const onDevice = info(cString("WebGPU_Buffer"), DEVICE_ALLOCATOR, 0, DEFAULT_MEMORY);
  const onHost = hostMemoryInfo(api);
  const allocator = api.maker("createAllocator")(session, onDevice);
  const alloc = api.maker("allocatorAlloc");
  const free = api.sync("allocatorFree");
  const create = tensorCreator(api);
  return {
    api: {
      /** Allocates memory on the GPU, of any contents. */
      allocate: (byteLength: number) => alloc(allocator, BigInt(byteLength)),
      free: (memory: Handle) => free(allocator, memory),
      /** Creates a tensor at the start of memory on the GPU. Default: of bytes. */
      deviceTensor: (
        memory: Handle,
        byteLength: number,
        shape: readonly number[] = [byteLength],
        onnxDtype = ONNX_UINT8,
      ) => create(onDevice, memory, byteLength, shape, onnxDtype),
      /** Creates a tensor over bytes of the host, which must not move until it is released. */
      hostTensor(bytes: Uint8Array) {
        const data = Deno.UnsafePointer.of(bytes as Uint8Array<ArrayBuffer>), { length } = bytes;
        return create(onHost, data, length, [length], ONNX_UINT8);
      },
      releaseTensor: api.release("releaseValue"),
    },
    close() {
      api.release("releaseAllocator")(allocator);
      for (const info of [onDevice, onHost]) api.release("releaseMemoryInfo")(info);
    },
  };
}

/** ONNX's number of the dtype for copies of bytes. */
const ONNX_UINT8 = 2;

/** Encodes a path as the library reads it: in UTF-16 on Windows. */
const pathString = (path: string): Uint8Array<ArrayBuffer> =>
  Deno.build.os === "windows"
    ? new Uint8Array(Uint16Array.from(`${path}\0`, (unit) => unit.charCodeAt(0)).buffer)
    : cString(path);

/** Options of a session. */
interface SessionOptions {
  /** Prefix of the name of a file for the profile of its runs. */
  readonly profile?: string | undefined;
  /** True if the commands of its bindings are captured. */
  readonly isCaptured?: boolean;
}

function makeCreateSession(api: FunctionTable, env: Handle) {
  const create = api.maker("createSessionFromArray");
  const append = api.sync("appendExecutionProvider");
  let profiles = 0;
  const enableProfiling = api.sync("enableProfiling");
  const open = (
    model: Uint8Array,
    config: Readonly<Record<string, string>>,
    { profile, isCaptured = false }: SessionOptions = {},
  ) => {
    // Not shared: sessions that share options share a context that ends with the first of them.
    const options = createSessionOptions(api, 1, config);
    try {
      // The library adds the time, which two models may have in common.
      if (profile !== undefined) enableProfiling(options, pathString(`${profile}${profiles++}`));
      const provider = { ...PROVIDER_OPTIONS, ...isCaptured && { enableGraphCapture: "1" } };
      const keys = Object.keys(provider).map(cString);
      const values = Object.values(provider).map(cString);
      append(options, cString("WebGPU"), pointers(keys), pointers(values), BigInt(keys.length));
      return create(env, model as Uint8Array<ArrayBuffer>, BigInt(model.byteLength), options);
    } finally {
      api.release("releaseSessionOptions")(options);
    }
  };
  return (model: Uint8Array, options?: SessionOptions): Handle => {
    try {
      return open(model, SESSION_CONFIG, options);
    } catch (error) {
      if (!UNSERVED.test((error as Error).message)) throw error;
      const lenient = open(model, RECORDS_NODES), nodes = unservedNodes(api, lenient);
      api.release("releaseSession")(lenient);
      throw new Error(
        `Cannot compile the model for webgpu: every operation must have a kernel on the GPU, received ${
          nodes.join(", ")
        } without one; use other operations in the layer, or another device such as native`,
      );
    }
  };
}

function makeBind(api: FunctionTable) {
  const bindInput = api.sync("bindInput"), bindOutput = api.sync("bindOutput");
  const run = api.sync("runWithBinding"), release = api.release("releaseIoBinding");
  const create = api.maker("createIoBinding");
  let graphs = 0;
  return (
    session: Handle,
    inputs: readonly BoundTensor[],
    outputs: readonly BoundTensor[],
    isCaptured = false,
  ) => {
    const binding = create(session);
    const options = isCaptured ? api.maker("createRunOptions")() : null;
    if (options) {
      api.sync("addRunConfigEntry")(options, cString("gpu_graph_id"), cString(`${++graphs}`));
    }
    try {
      for (const { name, tensor } of inputs) bindInput(binding, cString(name), tensor);
      for (const { name, tensor } of outputs) bindOutput(binding, cString(name), tensor);
    } catch (error) {
      release(binding);
      throw error;
    }
    return {
      run: () => run(session, options, binding),
      release() {
        release(binding);
        if (options) api.release("releaseRunOptions")(options);
      },
    };
  };
}

const LOCK = "troupe: the webgpu device";

/** Tries and pause for a taken lock: a worker that ends releases it in this time. */
const MAX_TRIES = 50, PAUSE_MS = 10;

/** Process number of the main isolate with the GPU. Children inherit it, with other numbers. */
const VARIABLE = "TROUPE_WEBGPU_OWNER";

const isWorker = "DedicatedWorkerGlobalScope" in globalThis;

/**
 * Claims the GPU for this isolate, which must not have it.
 *
 * @returns a function that releases it.
 * @throws {Error} when another isolate of the process has it.
 */
export async function claimGpu(): Promise<() => void> {
  for (let tries = 0; tries < MAX_TRIES; tries++) {
    const release = await tryToClaim();
    if (release) return release;
    // Counted, not timed: this isolate may be busy between tries.
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
  throw new Error(
    "Cannot open the webgpu device: one isolate of a process can use the GPU, received another that has it open; use isolation process",
  );
}

function tryToClaim(): Promise<(() => void) | undefined> {
  return new Promise((resolve, reject) => {
    locks.request(LOCK, { ifAvailable: true }, (lock) => {
      if (!lock || Deno.env.get(VARIABLE) === `${Deno.pid}`) return resolve(undefined);
      if (isWorker) return new Promise<void>(resolve);
      Deno.env.set(VARIABLE, `${Deno.pid}`);
      resolve(() => Deno.env.delete(VARIABLE));
    }).catch(reject);
  });
}

/** Functions of POSIX, which the library of another system lacks. */
const QUIET_SYMBOLS = {
  open: { parameters: ["buffer", "i32"], result: "i32" },
  close: { parameters: ["i32"], result: "i32" },
  dup: { parameters: ["i32"], result: "i32" },
  dup2: { parameters: ["i32", "i32"], result: "i32" },
} as const;

const STDERR = 2, WRITE_ONLY = 1;

/**
 * Runs a function without output on standard error, of the whole process. On unsupported systems, or
 * without permission, the output is not suppressed.
 */
export function quietly<T>(run: () => T): T {
  const library = SYSTEMS[Deno.build.os];
  const system = library && resultOr(() => Deno.dlopen(library, QUIET_SYMBOLS), undefined);
  if (!system) return run();
  const { open, close, dup, dup2 } = system.symbols;
  const kept = dup(STDERR), nowhere = open(new TextEncoder().encode("/dev/null\0"), WRITE_ONLY);
  if (kept >= 0 && nowhere >= 0) dup2(nowhere, STDERR);
  if (nowhere >= 0) close(nowhere);
  try {
    return run();
  } finally {
    if (kept >= 0) {
      dup2(kept, STDERR);
      close(kept);
    }
    system.close();
  }
}
