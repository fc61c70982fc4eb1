/**
 * Memory of ONNX Runtime's allocator, and tensors over it.
 *
 * @module
 */

import { Graph } from "../../graph/graph.ts";
import { encodeModel } from "../../onnx/encode.ts";
import {
  ALIGNMENT,
  created,
  cString,
  type FunctionTable,
  type Handle,
  pointers,
  SLOT,
} from "./ort_library.ts";
import { loadKernels, type SimdKernels } from "./simd.ts";

const ARENA_ALLOCATOR = 1;
const DEFAULT_MEMORY = 0;

/** Memory of the library. */
export interface NativeBytes {
  /** What to free. */
  readonly allocation: Handle;
  /** The address of the first byte, a multiple of 64. */
  readonly address: bigint;
  /** The bytes, until they are freed. */
  readonly bytes: Uint8Array<ArrayBuffer>;
}

/** Where memory comes from. */
export interface OrtMemory {
  /** Allocates zeroed memory that the garbage collector does not know of. */
  allocate(byteLength: number): NativeBytes;
  free(memory: NativeBytes): void;
}

/** How tensors are made. */
export interface OrtTensors {
  /** The kind of memory that they lie in. */
  readonly memoryInfo: Handle;
  /** A tensor over memory of the caller. */
  create(
    address: bigint,
    byteLength: number,
    shape: readonly number[],
    onnxDtype: number,
  ): Handle;
  release(tensor: Handle): void;
  /** Frees what makes them. */
  close(): void;
}

/** The default allocator. */
export function makeMemory(api: FunctionTable): OrtMemory {
  const allocator = created((out) => api.sync(SLOT.getDefaultAllocator, ["buffer"])(out));
  const alloc = api.sync(SLOT.allocatorAlloc, ["pointer", "usize", "buffer"]);
  const free = api.sync(SLOT.allocatorFree, ["pointer", "pointer"]);
  return {
    allocate(byteLength) {
      const size = BigInt(byteLength + ALIGNMENT);
      const allocation = created((out) => alloc(allocator, size, out));
      const padding = -Deno.UnsafePointer.value(allocation) & BigInt(ALIGNMENT - 1);
      const first = Deno.UnsafePointer.offset(allocation, Number(padding))!;
      const bytes = new Uint8Array(Deno.UnsafePointerView.getArrayBuffer(first, byteLength));
      return { allocation, address: Deno.UnsafePointer.value(first), bytes: bytes.fill(0) };
    },
    free: ({ allocation }) => free(allocator, allocation),
  };
}

/** Tensors in the memory of the host. */
export function makeTensors(api: FunctionTable): OrtTensors {
  const memoryInfo = created((out) =>
    api.sync(SLOT.createCpuMemoryInfo, ["i32", "i32", "buffer"])(
      ARENA_ALLOCATOR,
      DEFAULT_MEMORY,
      out,
    )
  );
  const create = api.sync(
    SLOT.createTensorWithData,
    ["pointer", "pointer", "usize", "buffer", "usize", "i32", "buffer"],
  );
  return {
    memoryInfo,
    create(address, byteLength, shape, onnxDtype) {
      const data = Deno.UnsafePointer.create(address);
      const dims = new Uint8Array(BigInt64Array.from(shape, BigInt).buffer);
      const size = BigInt(byteLength), rank = BigInt(shape.length);
      return created((out) => create(memoryInfo, data, size, dims, rank, onnxDtype, out));
    },
    release: api.release(SLOT.releaseValue),
    close: () => api.release(SLOT.releaseMemoryInfo)(memoryInfo),
  };
}

/** More bytes than any machine has: it limits nothing and is a mark. */
const LIMIT_BYTES = 2n ** 62n;

/** Its settings, as ONNX Runtime names them. */
const SETTINGS: Readonly<Record<string, bigint>> = {
  max_mem: LIMIT_BYTES,
  arena_extend_strategy: 1n, // by as much as is asked for
};

/** The settings of sessions that take from it. */
export const SHARES_ARENA: Readonly<Record<string, string>> = { "session.use_env_allocators": "1" };

/** What a run is told so that the arena gives back to the system what is not in use. */
const SHRINKS: readonly [key: string, value: string] = [
  "memory.enable_memory_arena_shrinkage",
  "cpu:0",
];

const ONNX_FLOAT = 1;

/** The arena of this process, as one device sees it. */
interface Arena {
  /** Bytes that it holds now, in use or not, for all isolates of the process. */
  heldBytes(): number;
  /** Gives back to the system what is not in use, and leaves the arena to the others. */
  leave(): void;
}

/** What the arena is reached with. */
interface ArenaOptions {
  readonly api: FunctionTable;
  readonly env: Handle;
  readonly memory: OrtMemory;
  readonly tensors: OrtTensors;
  /** Compiles a model, on this thread. */
  readonly createSession: (model: Uint8Array<ArrayBuffer>) => Handle;
}

/** Joins the arena of this process; makes it where there is none. No other isolate may do so meanwhile. */
export function joinArena(options: ArenaOptions): Arena {
  const member = openMember(options);
  if (member.stat("Limit") === `${LIMIT_BYTES}`) return member.arena;
  member.arena.leave();
  register(options);
  return openMember(options).arena;
}

function register({ api, env, tensors }: ArenaOptions): void {
  const names = Object.keys(SETTINGS).map(cString);
  const values = new Uint8Array(BigUint64Array.from(Object.values(SETTINGS)).buffer);
  const settings = created((out) =>
    api.sync(SLOT.createArenaCfg, ["buffer", "buffer", "usize", "buffer"])(
      pointers(names),
      values,
      BigInt(names.length),
      out,
    )
  );
  try {
    api.sync(SLOT.createAndRegisterAllocator, ["pointer", "pointer", "pointer"])(
      env,
      tensors.memoryInfo,
      settings,
    );
  } finally {
    api.release(SLOT.releaseArenaCfg)(settings);
  }
}

/** A session of its own, which sees the arena that sessions take from, and can have it shrink. */
function openMember(options: ArenaOptions) {
  const { api, createSession, tensors, memory } = options;
  const session = createSession(smallestModel());
  const allocator = created((out) =>
    api.sync(SLOT.createAllocator, ["pointer", "pointer", "buffer"])(
      session,
      tensors.memoryInfo,
      out,
    )
  );
  const stat = (name: string) => {
    const stats = created((out) =>
      api.sync(SLOT.allocatorGetStats, ["pointer", "buffer"])(allocator, out)
    );
    try {
      return api.text(SLOT.getKeyValue, ["pointer", "buffer"])(stats, cString(name));
    } finally {
      api.release(SLOT.releaseKeyValuePairs)(stats);
    }
  };
  const arena: Arena = {
    heldBytes: () => Number(stat("TotalAllocated")),
    leave() {
      shrink(api, session, memory, tensors);
      api.release(SLOT.releaseAllocator)(allocator);
      api.release(SLOT.releaseSession)(session);
    },
  };
  return { arena, stat };
}

/** The sign of one number. */
function smallestModel(): Uint8Array<ArrayBuffer> {
  const g = new Graph(), x = g.input("x", [1]);
  const model = encodeModel(g, [{ name: "x", value: x }], [{ name: "y", value: g.neg(x) }]);
  return new Uint8Array(model);
}

/** Runs the smallest model, in place, and shrinks the arena at the end of the run. */
function shrink(api: FunctionTable, session: Handle, memory: OrtMemory, tensors: OrtTensors): void {
  const run = api.sync(
    SLOT.run,
    ["pointer", "pointer", "buffer", "buffer", "usize", "buffer", "usize", "buffer"],
  );
  const options = created((out) => api.sync(SLOT.createRunOptions, ["buffer"])(out));
  const [key, value] = SHRINKS.map(cString) as [Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>];
  api.sync(SLOT.addRunConfigEntry, ["pointer", "buffer", "buffer"])(options, key, value);
  const number = memory.allocate(Float32Array.BYTES_PER_ELEMENT);
  const tensor = tensors.create(number.address, number.bytes.byteLength, [1], ONNX_FLOAT);
  const x = cString("x"), y = cString("y"), tensorTable = pointers([tensor]);
  try {
    run(session, options, pointers([x]), tensorTable, 1n, pointers([y]), 1n, tensorTable);
  } finally {
    tensors.release(tensor);
    memory.free(number);
    api.release(SLOT.releaseRunOptions)(options);
  }
}

const PAGE_BYTES = 65_536;
/** Of 4 GiB, which is as far as kernels see. */
const PAGES_MAX = 65_536;
/** Smaller blocks are not worth a place. */
const BLOCK_BYTES_MIN = 65_536;

/** A part of the memory, in whole pages. */
interface Pages {
  readonly from: number;
  readonly to: number;
}

/** The memory, and the kernels over it. */
export interface KernelMemory {
  readonly kernels: SimdKernels;
  /** The first bytes, for numbers that a kernel reads from memory. */
  readonly scratch: Float32Array;
  /** A zeroed block; undefined where it is small, or there is no place for it. */
  allocate(byteLength: number): NativeBytes | undefined;
  /** Frees a block; false where it is none of this memory. */
  free(block: NativeBytes): boolean;
  /** Where kernels find a block; undefined where it is none of this memory. */
  offsetOf(block: NativeBytes): number | undefined;
}

/** Opens a memory that holds nothing as yet. */
export function openKernelMemory(): KernelMemory {
  const memory = new WebAssembly.Memory({ initial: 1, maximum: PAGES_MAX, shared: true });
  const scratch = new Float32Array(memory.buffer);
  const start = Deno.UnsafePointer.value(Deno.UnsafePointer.of(scratch));
  const used = new Map<NativeBytes, Pages>();
  /** What was freed, in order, no two beside each other. */
  let spare: Pages[] = [];
  const take = (count: number): Pages | undefined => {
    const found = spare.find(({ from, to }) => to - from >= count);
    if (!found) return grow(memory, count);
    const taken = { from: found.from, to: found.from + count };
    spare = spare.flatMap((one) => one !== found ? [one] : cut(one, taken.to));
    new Uint8Array(memory.buffer, taken.from * PAGE_BYTES, count * PAGE_BYTES).fill(0);
    return taken;
  };
  return {
    kernels: loadKernels(memory),
    scratch,
    allocate(byteLength) {
      if (byteLength < BLOCK_BYTES_MIN) return undefined;
      const pages = take(Math.ceil(byteLength / PAGE_BYTES));
      if (!pages) return undefined;
      const address = start + BigInt(pages.from * PAGE_BYTES);
      const allocation = Deno.UnsafePointer.create(address)!;
      const bytes = new Uint8Array(Deno.UnsafePointerView.getArrayBuffer(allocation, byteLength));
      const block = { allocation, address, bytes };
      used.set(block, pages);
      return block;
    },
    free(block) {
      const pages = used.get(block);
      if (pages) spare = joined([...spare, pages]);
      return used.delete(block);
    },
    offsetOf: (block) => used.has(block) ? used.get(block)!.from * PAGE_BYTES : undefined,
  };
}

/** New pages at the end; undefined where there are no more. */
function grow(memory: WebAssembly.Memory, count: number): Pages | undefined {
  try {
    const from = memory.grow(count);
    return { from, to: from + count };
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}

/** What is left of pages from one on. */
const cut = ({ to }: Pages, from: number): Pages[] => from < to ? [{ from, to }] : [];

/** Pages in order, neighbours as one. */
function joined(all: readonly Pages[]): Pages[] {
  const result: Pages[] = [];
  for (const { from, to } of all.toSorted((a, b) => a.from - b.from)) {
    const last = result.at(-1);
    if (last?.to === from) result[result.length - 1] = { from: last.from, to };
    else result.push({ from, to });
  }
  return result;
}
