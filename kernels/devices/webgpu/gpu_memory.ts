/**
 * Blocks of memory on the GPU, and the bytes that go in and out of them.
 *
 * [Note: no offsets] A tensor on the GPU begins where its buffer begins: there are no tensors at an
 * offset. What lies elsewhere in a block is reached by way of the host, all of the block at a time;
 * stages lay out their memory so that this never happens to them.
 *
 * @module
 */

import { Graph } from "../../graph/graph.ts";
import { encodeModel } from "../../onnx/encode.ts";
import type { Handle } from "../cpu/ort_library.ts";
import type { CopiedBytes } from "../device.ts";
import { type BlockStore, mebibytes } from "../tensor_memory.ts";
import { assertOnlyAdapter, seeingAdapter } from "./adapters.ts";
import {
  assertFits,
  type BufferLimit,
  claimGpu,
  endAtOnce,
  type GpuApi,
  namingMemory,
  ONNX_UINT8,
  openGpu,
  quietly,
} from "./gpu_api.ts";
import type { Adapter } from "./vulkan.ts";

interface Context {
  readonly gpu: GpuApi;
  /** Gives the GPU to whoever comes next. */
  readonly release: () => void;
}

/** Those who have entered, or are about to. */
let users = 0;

let opening: Promise<Context> | undefined, context: Context | undefined;

/** A model of one node, whose session keeps the GPU's device open. */
function smallestModel(): Uint8Array {
  const g = new Graph(), x = g.input("x", [4]);
  return encodeModel(g, [{ name: "x", value: x }], [{ name: "y", value: g.neg(x) }]);
}

/**
 * Waits until the GPU has done all that it was given: what is copied to the host was computed after
 * all that was queued before. Its objects must not be released earlier.
 */
function drain(gpu: GpuApi): void {
  const memory = gpu.allocate(16), source = gpu.deviceTensor(memory, 4, [4], 2);
  const target = gpu.hostTensor(new Uint8Array(4));
  gpu.copy(source, target);
  for (const tensor of [source, target]) gpu.releaseTensor(tensor);
  gpu.free(memory);
}

async function open(library: string, adapter: Adapter): Promise<Context> {
  const release = await claimGpu();
  try {
    assertOnlyAdapter(adapter);
    const gpu = seeingAdapter(adapter, () => quietly(() => openGpu(library, smallestModel())));
    endAtOnce();
    return context = { gpu, release };
  } catch (error) {
    release();
    throw error;
  }
}

/**
 * Opens the GPU, or shares it where this isolate has it open.
 *
 * @throws {Error} when another isolate has it, the process has used another adapter, or the library cannot
 * be loaded.
 */
export async function enterGpu(library: string, adapter: Adapter): Promise<GpuApi> {
  users++;
  try {
    const { gpu } = await (opening ??= open(library, adapter));
    assertOnlyAdapter(adapter);
    return gpu;
  } catch (error) {
    if (context) leaveGpu();
    else if (--users === 0) opening = undefined;
    throw error;
  }
}

/** Ends one {@linkcode enterGpu}. */
export function leaveGpu(): void {
  if (!context || --users > 0) return;
  const { gpu, release } = context;
  opening = context = undefined;
  try {
    drain(gpu);
  } catch {
    // A GPU that was lost has nothing to do any more.
  }
  gpu.close();
  release();
}

/** Memory on the GPU. */
export interface GpuBlock {
  readonly memory: Handle;
  readonly byteLength: number;
}

/** The memory of one device. */
export interface GpuMemory extends BlockStore<GpuBlock> {
  readonly copied: CopiedBytes;
  /** Copies the beginning of one block to that of another. */
  copy(source: GpuBlock, target: GpuBlock, byteLength: number): void;
  /** Frees what zeroing took. */
  close(): void;
}

/** Buffers are multiples of this many bytes, and so may be copied and zeroed whole. */
const UNIT_BYTES = 16;

const CANNOT = "Cannot allocate on the webgpu device";

const F32_BYTES = 4;
const ONNX_F32 = 1;

/** Opens the memory of one device. */
export function openGpuMemory(gpu: GpuApi, limit: BufferLimit): GpuMemory {
  const { copied, transfer, copy, drop } = openTransfers(gpu), zeros = openZeros(gpu);
  /** Changes a block by way of the host. */
  const change = (block: GpuBlock, edit: (bytes: Uint8Array) => void) => {
    const bytes = new Uint8Array(block.byteLength);
    transfer(block, bytes, "toHost");
    edit(bytes);
    transfer(block, bytes, "toDevice");
  };
  const memory: GpuMemory = {
    copied,
    allocate(byteLength) {
      const size = Math.max(Math.ceil(byteLength / UNIT_BYTES), 1) * UNIT_BYTES;
      assertFits(CANNOT, size, limit);
      const block = { memory: gpu.allocate(size), byteLength: size };
      try {
        zeros.fill(block);
      } catch (error) {
        memory.release(block);
        throw namingMemory(error, CANNOT, mebibytes(size), limit);
      }
      return block;
    },
    write(block, byteOffset, bytes) {
      if (byteOffset === 0) transfer(block, bytes, "toDevice");
      else change(block, (all) => all.set(bytes, byteOffset));
    },
    read(block, byteOffset, into) {
      if (byteOffset === 0) return transfer(block, into, "toHost");
      const all = new Uint8Array(byteOffset + into.byteLength);
      transfer(block, all, "toHost");
      into.set(all.subarray(byteOffset));
    },
    zero(block, byteOffset, byteLength) {
      if (byteOffset === 0 && byteLength > block.byteLength - UNIT_BYTES) zeros.fillAgain(block);
      else memory.write(block, byteOffset, new Uint8Array(byteLength));
    },
    copy,
    release(block) {
      drop(block);
      zeros.drop(block);
      gpu.free(block.memory);
    },
    close: zeros.close,
  };
  return memory;
}

/** What copies between the host and the beginnings of blocks, and counts. */
function openTransfers(gpu: GpuApi) {
  const copied = { toDevice: 0, toHost: 0 };
  /** The bytes of a block as a tensor: most blocks are always copied in one length. */
  const kept = new Map<GpuBlock, { readonly byteLength: number; readonly tensor: Handle }>();
  const drop = (block: GpuBlock) => {
    const { tensor } = kept.get(block) ?? {};
    if (tensor) gpu.releaseTensor(tensor);
    kept.delete(block);
  };
  const bytesOf = (block: GpuBlock, byteLength: number) => {
    const known = kept.get(block);
    if (known?.byteLength === byteLength) return known.tensor;
    drop(block);
    const tensor = gpu.deviceTensor(block.memory, byteLength, [byteLength], ONNX_UINT8);
    kept.set(block, { byteLength, tensor });
    return tensor;
  };
  return {
    copied,
    transfer(block: GpuBlock, bytes: Uint8Array, direction: keyof CopiedBytes) {
      const { byteLength } = bytes;
      const onHost = gpu.hostTensor(bytes), onDevice = bytesOf(block, byteLength);
      if (direction === "toDevice") gpu.copy(onHost, onDevice);
      else gpu.copy(onDevice, onHost);
      gpu.releaseTensor(onHost);
      copied[direction] += byteLength;
    },
    copy(source: GpuBlock, target: GpuBlock, byteLength: number) {
      gpu.copy(bytesOf(source, byteLength), bytesOf(target, byteLength));
    },
    drop,
  };
}

/** What sets whole blocks to zero, a kernel for each size. */
function openZeros(gpu: GpuApi) {
  const sessions = new Map<number, Handle>();
  const sessionFor = (length: number) => {
    const g = new Graph(), zeros = g.expand(g.scalar(0), [length]);
    return gpu.createSession(encodeModel(g, [], [{ name: "y", value: zeros }]));
  };
  const bind = ({ memory, byteLength }: GpuBlock) => {
    const length = byteLength / F32_BYTES;
    const session = sessions.get(length) ?? sessionFor(length);
    sessions.set(length, session);
    const tensor = gpu.deviceTensor(memory, byteLength, [length], ONNX_F32);
    const bound = gpu.bind(session, [], [{ name: "y", tensor }]);
    const release = () => {
      bound.release();
      gpu.releaseTensor(tensor);
    };
    return { run: bound.run, release };
  };
  /** Of blocks that are zeroed again and again. */
  const kept = new Map<GpuBlock, ReturnType<typeof bind>>();
  return {
    fill(block: GpuBlock) {
      const bound = bind(block);
      bound.run();
      bound.release();
    },
    fillAgain(block: GpuBlock) {
      const bound = kept.get(block) ?? bind(block);
      kept.set(block, bound);
      bound.run();
    },
    drop(block: GpuBlock) {
      kept.get(block)?.release();
      kept.delete(block);
    },
    close() {
      for (const session of sessions.values()) gpu.releaseSession(session);
    },
  };
}
