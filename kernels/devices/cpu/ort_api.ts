/**
 * The part of ONNX Runtime's C API that the native device uses, and its memory: ONNX Runtime's
 * allocator, its arena, and pages for our kernels.
 *
 * [Note: one arena] By default, every session has a separate arena that keeps the maximum memory that
 * the session ever used: a stage of a dozen models holds a dozen times the memory in use. So all
 * sessions of a process, in all isolates, share one arena that is registered with the environment. It
 * grows only by the requested size. Values are allocated separately, not as one block for a whole model
 * (a "memory pattern"), which would not fit into the gaps of other models: at GPT-2's vocabulary this
 * takes 217 MiB instead of 625, of which 196 are in use at a time, without a measurable cost in time.
 *
 * Registering a second arena would replace the first, in a list that other threads read without a lock
 * while they compile. So every isolate checks first, which requires a session; the limit distinguishes
 * this arena from that of a session.
 *
 * [Note: kernel memory] An isolate that is terminated loses the memory of our kernels immediately. So a
 * device uses it only if its runs block the isolate's thread, so that no other thread computes on its
 * tensors. See [Note: What outlives an isolate].
 *
 * @module
 */

import { resultOr } from "../../errors.ts";
import { ONNX_DTYPE } from "../../graph/value.ts";
import { Graph } from "../../ops/graph.ts";
import { encodeGraph } from "../../onnx/encode.ts";
import {
  ALIGNMENT,
  bytesAt,
  createEnv,
  createSessionOptions,
  cString,
  type FunctionTable,
  type Handle,
  hostMemoryInfo,
  loadOrt,
  POINTER_BYTES,
  pointers,
  tensorCreator,
} from "./ort_library.ts";
import { loadKernels, type SimdKernels } from "./simd.ts";
import type { MatrixLibrary } from "./onednn.ts";

/** Memory of the library. */
export interface NativeBytes {
  /** The pointer to free. */
  readonly allocation: Handle;
  /** The address of the first byte, a multiple of 64. */
  readonly address: bigint;
  /** The bytes, until they are freed. */
  readonly bytes: Uint8Array<ArrayBuffer>;
}

/** Functions for tensors. */
type OrtTensors = ReturnType<typeof makeTensors>;

/** Returns functions that allocate and free memory by the default allocator. */
export function makeMemory(api: FunctionTable) {
  const allocator = api.maker("getDefaultAllocator")();
  const alloc = api.maker("allocatorAlloc");
  const free = api.sync("allocatorFree");
  return {
    /** Allocates zeroed memory outside the garbage collector. */
    allocate(byteLength: number): NativeBytes {
      const allocation = alloc(allocator, BigInt(byteLength + ALIGNMENT));
      const start = Deno.UnsafePointer.value(allocation);
      const address = start + (-start & BigInt(ALIGNMENT - 1));
      return { allocation, address, bytes: bytesAt(address, byteLength).fill(0) };
    },
    free: ({ allocation }: NativeBytes) => free(allocator, allocation),
  };
}

type OrtMemory = ReturnType<typeof makeMemory>;

/** Returns the functions for tensors in host memory. */
function makeTensors(api: FunctionTable) {
  const memoryInfo = hostMemoryInfo(api), create = tensorCreator(api);
  return {
    memoryInfo,
    /** Creates a tensor over memory of the caller. */
    create: (address: bigint, byteLength: number, shape: readonly number[], onnxDtype: number) =>
      create(memoryInfo, Deno.UnsafePointer.create(address), byteLength, shape, onnxDtype),
    release: api.release("releaseValue"),
    close: () => api.release("releaseMemoryInfo")(memoryInfo),
  };
}

/** A limit above any machine's memory, which identifies our arena. */
const LIMIT_BYTES = 2n ** 62n;

/** Settings of the arena, by ONNX Runtime's names. */
const SETTINGS: Readonly<Record<string, bigint>> = {
  max_mem: LIMIT_BYTES,
  arena_extend_strategy: 1n, // by the requested size
};

/** Settings of sessions that use the arena. */
const SHARES_ARENA = { "session.use_env_allocators": "1" };

/** Parts of the API that the arena uses. */
interface ArenaOptions {
  readonly api: FunctionTable;
  readonly env: Handle;
  readonly memory: OrtMemory;
  readonly tensors: OrtTensors;
  /** Compiles a model, on this thread. */
  readonly createSession: (model: Uint8Array<ArrayBuffer>) => Handle;
}

/** Joins the arena of this process, or creates it. No other isolate may do so at the same time. */
function joinArena(options: ArenaOptions) {
  const arena = openMember(options);
  if (arena.limit === `${LIMIT_BYTES}`) return arena;
  arena.leave();
  register(options);
  return openMember(options);
}

function register({ api, env, tensors }: ArenaOptions): void {
  const names = Object.keys(SETTINGS).map(cString);
  const values = new Uint8Array(BigUint64Array.from(Object.values(SETTINGS)).buffer);
  const settings = api.maker("createArenaCfg")(pointers(names), values, BigInt(names.length));
  try {
    api.sync("createAndRegisterAllocator")(env, tensors.memoryInfo, settings);
  } finally {
    api.release("releaseArenaCfg")(settings);
  }
}

/** Opens a session on the arena of sessions, to read its statistics and shrink it. */
function openMember(options: ArenaOptions) {
  const { api, createSession, tensors, memory } = options;
  const session = createSession(smallestModel());
  const allocator = api.maker("createAllocator")(session, tensors.memoryInfo);
  const stat = (name: string) => {
    const stats = api.maker("allocatorGetStats")(allocator);
    try {
      return api.text("getKeyValue")(stats, cString(name));
    } finally {
      api.release("releaseKeyValuePairs")(stats);
    }
  };
  return {
    /** The most bytes that it may hold. */
    limit: stat("Limit"),
    /** Bytes that the arena holds, used or not, in all isolates of the process. */
    heldBytes: () => Number(stat("TotalAllocated")),
    /** Returns unused memory to the system, and leaves the arena to other devices. */
    leave() {
      shrink(api, session, memory, tensors);
      api.release("releaseAllocator")(allocator);
      api.release("releaseSession")(session);
    },
  };
}

/** A model that negates one number. */
function smallestModel(): Uint8Array<ArrayBuffer> {
  const g = new Graph();
  return new Uint8Array(encodeGraph(g, { y: g.neg(g.input("x", [1])) }));
}

/** Runs the smallest model, in place, and shrinks the arena at the end of the run. */
function shrink(api: FunctionTable, session: Handle, memory: OrtMemory, tensors: OrtTensors): void {
  const run = api.sync("run");
  const options = api.maker("createRunOptions")();
  const key = cString("memory.enable_memory_arena_shrinkage");
  api.sync("addRunConfigEntry")(options, key, cString("cpu:0"));
  const number = memory.allocate(Float32Array.BYTES_PER_ELEMENT);
  const tensor = tensors.create(number.address, number.bytes.byteLength, [1], ONNX_DTYPE.f32);
  const x = cString("x"), y = cString("y"), tensorTable = pointers([tensor]);
  try {
    run(session, options, pointers([x]), tensorTable, 1n, pointers([y]), 1n, tensorTable);
  } finally {
    tensors.release(tensor);
    memory.free(number);
    api.release("releaseRunOptions")(options);
  }
}

/** Smaller blocks have no whole huge page. */
const HUGE_BYTES = 2 ** 21, MADV_HUGEPAGE = 14, SYSTEM_PAGE = 4096n;

/**
 * Asks Linux for huge pages, which a pass over a block translates with fewer misses: AdamW takes 0.9 of
 * the time, norms 0.75. It has no effect on other systems.
 */
function adviseHugePages(address: bigint, byteLength: number): void {
  if (Deno.build.os !== "linux" || byteLength < HUGE_BYTES) return;
  const from = address + -address % SYSTEM_PAGE + SYSTEM_PAGE;
  // There may be another C library.
  resultOr(() => {
    const system = Deno.dlopen("libc.so.6", {
      madvise: { parameters: ["pointer", "usize", "i32"], result: "i32" },
    });
    const length = address + BigInt(byteLength) - from;
    system.symbols.madvise(Deno.UnsafePointer.create(from), length, MADV_HUGEPAGE);
    system.close();
  }, undefined);
}

const PAGE_BYTES = 65_536;
/** Pages of 4 GiB, the address space of the kernels. */
const PAGES_MAX = 65_536;
/** Smaller blocks use the library's allocator. */
const BLOCK_BYTES_MIN = 65_536;

/** A range of pages. */
interface Pages {
  readonly from: number;
  readonly to: number;
}

/** Memory that our kernels can address, and the kernels over it. */
export class KernelMemory {
  readonly #memory = new WebAssembly.Memory({ initial: 1, maximum: PAGES_MAX, shared: true });
  readonly kernels: SimdKernels = loadKernels(this.#memory);
  /** The first page, for scalars that a kernel reads from memory. */
  readonly scratch = new Float32Array(this.#memory.buffer);
  readonly #start = Deno.UnsafePointer.value(Deno.UnsafePointer.of(this.scratch));
  readonly #used = new Map<NativeBytes, Pages>();

  /** Allocates a zeroed block; undefined if it is small or there is no space. */
  allocate(byteLength: number): NativeBytes | undefined {
    if (byteLength < BLOCK_BYTES_MIN) return undefined;
    const pages = this.#take(Math.ceil(byteLength / PAGE_BYTES));
    if (!pages) return undefined;
    const address = this.#start + BigInt(pages.from * PAGE_BYTES);
    adviseHugePages(address, byteLength);
    const allocation = Deno.UnsafePointer.create(address)!;
    const block = { allocation, address, bytes: bytesAt(address, byteLength) };
    this.#used.set(block, pages);
    return block;
  }

  /** Frees a block; false if it is not of this memory. */
  free(block: NativeBytes): boolean {
    return this.#used.delete(block);
  }

  /** Returns the kernels' address of a block; undefined if it is not of this memory. */
  offsetOf(block: NativeBytes): number | undefined {
    const pages = this.#used.get(block);
    return pages && pages.from * PAGE_BYTES;
  }

  /** Takes the first gap between blocks that is large enough, or the end, which grows. */
  #take(count: number): Pages | undefined {
    let from = 1; // after the page of scalars
    for (const next of [...this.#used.values()].sort((a, b) => a.from - b.from)) {
      if (next.from - from >= count) break;
      from = next.to;
    }
    const to = from + count, there = this.#memory.buffer.byteLength / PAGE_BYTES;
    const isThere = to <= there ||
      resultOr(() => this.#memory.grow(to - there), undefined) !== undefined;
    if (!isThere) return undefined;
    const freed = Math.max(0, Math.min(to, there) - from);
    new Uint8Array(this.#memory.buffer, from * PAGE_BYTES, freed * PAGE_BYTES).fill(0);
    return { from, to };
  }
}

/**
 * Configuration of waiting threads.
 *
 * [Note: threads of a session] Each session has separate threads for its operations. One pool for all
 * sessions of a process would be as fast, but the number of threads in a pool determines how an
 * operation is divided, and with it some bits, and the pool of the process is created once. A worker
 * would then compute other bits next to a second one in its process than alone, and the first device
 * that opens would decide for all. Between two operations of a run the threads spin for some
 * microseconds, because waking up takes the time of many operations: this made forward and backward
 * 1.3 times as fast on four cores. At the end of a run they sleep: threads that keep spinning, ONNX
 * Runtime's default, would take cores from the session that runs next.
 */
const WAITING: Readonly<Record<string, string>> = {
  "session.intra_op.spin_duration_us": "200",
  "session.force_spinning_stop": "1",
};

/** An open ONNX Runtime. Every method throws an `Error` with the text of the C API. */
export type Ort = ReturnType<typeof makeOrt>;

/** Options of ONNX Runtime. */
interface OrtOptions {
  /** Threads within one operation. */
  readonly threads: number;
  /** True if runs block the calling thread; otherwise they use another one. */
  readonly isBlocking: boolean;
  /** The library for products with factors in BF16. Default: none. */
  readonly matrix?: MatrixLibrary | undefined;
}

/**
 * Opens the library, its environment, and the arena of the process. No other isolate may do so at the
 * same time.
 *
 * @throws {Error} when the library cannot be loaded or is too old.
 */
export const openOrt = (path: string, options: OrtOptions): Ort =>
  loadOrt(path, (api, unload) => makeOrt(api, options, unload));

/** Configuration of products in BF16 on CPUs of ARM, where MLAS rounds the factors. */
const ROUNDING = { "mlas.enable_gemm_fastmath_arm64_bfloat16": "1" };

function makeOrt(
  api: FunctionTable,
  { threads, isBlocking, matrix }: OrtOptions,
  unload: () => void,
) {
  const env = createEnv(api), memory = makeMemory(api), tensors = makeTensors(api);
  const options = createSessionOptions(api, threads, {
    ...SHARES_ARENA,
    ...WAITING,
    ...matrix?.name === "MLAS" && ROUNDING,
  });
  api.sync("disableMemPattern")(options);
  const sessions = makeSessions(api, env, options, memory);
  const arena = joinArena({ api, env, memory, tensors, createSession: sessions.createNow });
  return {
    ...memory,
    /** Compiles a model on the thread pool of blocking calls. */
    createSession: sessions.create,
    releaseSession: sessions.release,
    createTensor: tensors.create,
    releaseTensor: tensors.release,
    /** Returns the run of a session, on this thread or another: see {@linkcode OrtOptions.isBlocking}. */
    bindRun: makeBindRun(api, isBlocking),
    /** Returns the bytes that the arena of this process holds. */
    arenaBytes: arena.heldBytes,
    /** Frees unused memory. */
    close() {
      arena.leave();
      tensors.close();
      api.release("releaseSessionOptions")(options);
      // The environment is shared by all threads and is not released: a thread that opens it while
      // another one releases the last reference would fail.
      unload();
    },
  };
}

function makeSessions(api: FunctionTable, env: Handle, options: Handle, memory: OrtMemory) {
  const createNow = api.maker("createSessionFromArray");
  const create = api.async("createSessionFromArray");
  return {
    release: api.release("releaseSession"),
    createNow: (model: Uint8Array<ArrayBuffer>) =>
      createNow(env, model, BigInt(model.byteLength), options),
    async create(model: Uint8Array): Promise<Handle> {
      const bytes = memory.allocate(model.byteLength);
      const out = memory.allocate(BigUint64Array.BYTES_PER_ELEMENT);
      try {
        bytes.bytes.set(model);
        await create(env, bytes.bytes, BigInt(model.byteLength), options, out.bytes);
        return Deno.UnsafePointer.create(new BigUint64Array(out.bytes.buffer)[0]!)!;
      } finally {
        memory.free(bytes);
        memory.free(out);
      }
    },
  };
}

function makeBindRun(api: FunctionTable, isBlocking: boolean) {
  const run = api[isBlocking ? "sync" : "async"]("runAt");
  /** @param table the address of a table of pointers: names, then tensors, inputs first in both. */
  return (session: Handle, table: bigint, inputs: number, outputs: number) => {
    const at = (index: number) => Deno.UnsafePointer.create(table + BigInt(index * POINTER_BYTES));
    const all = inputs + outputs, names = [at(0), at(inputs)] as const;
    const tensors = [at(all), at(all + inputs)] as const;
    const counts = [BigInt(inputs), BigInt(outputs)] as const;
    return async () =>
      await run(session, null, names[0], tensors[0], counts[0], names[1], counts[1], tensors[1]);
  };
}
