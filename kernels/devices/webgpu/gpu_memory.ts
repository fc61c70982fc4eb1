/**
 * Blocks of memory on the GPU, with copies from and to the host.
 *
 * [Note: no offsets] A tensor on the GPU starts at the start of its buffer: tensors cannot have an
 * offset. Other parts of a block are accessed through the host, always with the whole block; stages
 * arrange their memory to avoid this.
 *
 * @module
 */

import { Graph } from "../../ops/graph.ts";
import { encodeGraph } from "../../onnx/encode.ts";
import type { Handle } from "../cpu/ort_library.ts";
import { type CopiedBytes, DTYPE_BYTES } from "../device.ts";
import { resultOr } from "../../errors.ts";
import { ONNX_DTYPE } from "../../graph/value.ts";
import type { BlockStore } from "../engine.ts";
import { mebibytes } from "../tensor_memory.ts";
import { assertOnlyAdapter, negation, seeingAdapter } from "./adapters.ts";
import {
  assertFits,
  type BufferLimit,
  claimGpu,
  endAtOnce,
  type GpuApi,
  namingMemory,
  openGpu,
  quietly,
} from "./gpu_api.ts";
import type { Adapter } from "./vulkan.ts";

/** The open GPU, and a function that releases it. */
type Context = { readonly gpu: GpuApi; readonly release: () => void };

/** Devices that use the GPU, or are about to. */
let users = 0;

let opening: Promise<Context> | undefined, context: Context | undefined;

/**
 * Waits until the GPU has finished all queued work: a copy to the host waits for all work before it.
 * Objects of the GPU must not be released earlier.
 */
function drain(gpu: GpuApi): void {
  const memory = gpu.allocate(UNIT_BYTES), source = gpu.deviceTensor(memory, 4);
  const target = gpu.hostTensor(new Uint8Array(4));
  gpu.copy(source, target);
  for (const tensor of [source, target]) gpu.releaseTensor(tensor);
  gpu.free(memory);
}

async function open(library: string, adapter: Adapter): Promise<Context> {
  const release = await claimGpu();
  try {
    assertOnlyAdapter(adapter);
    const gpu = seeingAdapter(adapter, () => quietly(() => openGpu(library, negation("f32"))));
    endAtOnce();
    return context = { gpu, release };
  } catch (error) {
    release();
    throw error;
  }
}

/**
 * Opens the GPU, or shares it if this isolate has it open.
 *
 * @throws {Error} when another isolate has it, the process has used another adapter, or the library
 * cannot be loaded.
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
  resultOr(() => drain(gpu), undefined); // A lost GPU has no work left.
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
  /** Copies the start of one block to that of another. */
  copy(source: GpuBlock, target: GpuBlock, byteLength: number): void;
  /** Frees the sessions that zero blocks. */
  close(): void;
}

/** Buffers are multiples of this many bytes, so that they can be copied and zeroed as a whole. */
const UNIT_BYTES = 16;

const CANNOT = "Cannot allocate on the webgpu device";

/** Maximum bytes that a copy zeroes, which costs a GPU less than a kernel. */
const COPIED_ZEROS_BYTES = 2 ** 20;

/** Opens the memory of one device. */
export function openGpuMemory(gpu: GpuApi, limit: BufferLimit, profile?: string): GpuMemory {
  const { copied, transfer, copy, drop } = openTransfers(gpu), zeros = openZeros(gpu, profile);
  /** Changes a block through the host. */
  const change = (block: GpuBlock, edit: (bytes: Uint8Array) => void) => {
    const bytes = new Uint8Array(block.byteLength);
    transfer(block, bytes, "toHost");
    edit(bytes);
    transfer(block, bytes, "toDevice");
  };
  let source: GpuBlock | undefined;
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
      const isWhole = byteOffset === 0 && byteLength > block.byteLength - UNIT_BYTES;
      if (!isWhole) memory.write(block, byteOffset, new Uint8Array(byteLength));
      else if (block.byteLength > COPIED_ZEROS_BYTES) zeros.fillAgain(block);
      else copy(source ??= memory.allocate(COPIED_ZEROS_BYTES), block, block.byteLength);
    },
    copy,
    release(block) {
      drop(block);
      zeros.drop(block);
      gpu.free(block.memory);
    },
    close() {
      if (source) memory.release(source);
      zeros.close();
    },
  };
  return memory;
}

/** Copies between the host and the start of blocks, and counts the bytes. */
function openTransfers(gpu: GpuApi) {
  const copied = { toDevice: 0, toHost: 0 };
  /** Blocks as tensors of bytes: most blocks are always copied with the same length. */
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
    const tensor = gpu.deviceTensor(block.memory, byteLength);
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

/** Sets whole blocks to zero, with a kernel for each size. */
function openZeros(gpu: GpuApi, profile: string | undefined) {
  const sessions = new Map<number, Handle>();
  const sessionFor = (length: number) => {
    const g = new Graph(), zeros = g.expand(g.scalar(0), [length]);
    return gpu.createSession(encodeGraph(g, { y: zeros }), { profile });
  };
  const bind = ({ memory, byteLength }: GpuBlock) => {
    const length = byteLength / DTYPE_BYTES.f32;
    const session = sessions.getOrInsertComputed(length, sessionFor);
    const tensor = gpu.deviceTensor(memory, byteLength, [length], ONNX_DTYPE.f32);
    const bound = gpu.bind(session, [], [{ name: "y", tensor }]);
    return {
      run: bound.run,
      release() {
        bound.release();
        gpu.releaseTensor(tensor);
      },
    };
  };
  /** Bindings of blocks that are zeroed repeatedly. */
  const kept = new Map<GpuBlock, ReturnType<typeof bind>>();
  return {
    fill(block: GpuBlock) {
      const bound = bind(block);
      bound.run();
      bound.release();
    },
    fillAgain: (block: GpuBlock) => kept.getOrInsertComputed(block, bind).run(),
    drop(block: GpuBlock) {
      kept.get(block)?.release();
      kept.delete(block);
    },
    close() {
      for (const session of sessions.values()) gpu.releaseSession(session);
    },
  };
}
