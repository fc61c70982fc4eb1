/**
 * Tensors over blocks of memory: allocation, views, copies and ownership.
 *
 * @module
 */

import { elementCount } from "../graph/shapes.ts";
import { type DType, DTYPE_BYTES, type HostArray, type Tensor } from "./device.ts";

type HostArrayConstructor = new (
  buffer: ArrayBufferLike,
  byteOffset: number,
  length: number,
) => HostArray;

const ARRAYS: Readonly<Record<DType, HostArrayConstructor>> = {
  f32: Float32Array,
  f16: Float16Array,
  i32: Int32Array,
  i64: BigInt64Array,
  bool: Uint8Array,
};

/** The elements that `bytes` hold, as the typed array of `dtype`, without a copy. */
export function asHostArray(dtype: DType, bytes: Uint8Array): HostArray {
  const length = bytes.byteLength / DTYPE_BYTES[dtype];
  return new ARRAYS[dtype](bytes.buffer, bytes.byteOffset, length);
}

/** Whether `data` is the typed array in which hosts hold `dtype`. */
export function holds(dtype: DType, data: HostArray): boolean {
  return data instanceof ARRAYS[dtype];
}

/** Where a device's blocks of memory come from, and how bytes get in and out of them. */
export interface BlockStore<Block> {
  /** Allocates zeroed, 64-byte aligned memory. */
  allocate(byteLength: number): Block;
  /** Copies bytes to a place in a block. */
  write(block: Block, byteOffset: number, bytes: Uint8Array): void;
  /** Copies bytes from a place in a block, once the runs that were begun before are over. */
  read(block: Block, byteOffset: number, into: Uint8Array): Promise<void> | void;
  /** Sets a part of a block to zero. */
  zero(block: Block, byteOffset: number, byteLength: number): void;
  /** Frees a block. */
  release(block: Block): void;
}

/** A block that `alloc` took. */
export interface Allocation<Block> {
  readonly block: Block;
  readonly byteLength: number;
  /** Whether its tensor has not been freed. */
  live: boolean;
  /** Runs in flight that read or write it. It is released when it is freed and has none. */
  users: number;
}

/** The place of a tensor in an allocation. */
interface Region<Block> {
  readonly allocation: Allocation<Block>;
  readonly byteOffset: number;
  readonly byteLength: number;
}

/** Tensors over the blocks of one store. */
export class TensorMemory<Block> {
  #store: BlockStore<Block>;
  /** Live tensors that `alloc` returned. */
  #owners = new Map<Tensor, Allocation<Block>>();
  /** Every tensor of this memory, views included. */
  #regions = new WeakMap<Tensor, Region<Block>>();
  #allocatedBytes = 0;

  constructor(store: BlockStore<Block>) {
    this.#store = store;
  }

  /** Bytes of live tensors. */
  get allocatedBytes(): number {
    return this.#allocatedBytes;
  }

  /** See {@linkcode Device.alloc}. */
  alloc(dtype: DType, shape: readonly number[]): Tensor {
    if (!Object.hasOwn(DTYPE_BYTES, dtype)) {
      throw new TypeError(
        `Cannot make a tensor: its dtype must be one of ${
          Object.keys(DTYPE_BYTES).join(", ")
        }, received ${dtype}`,
      );
    }
    const byteLength = elementCount(checkShape(shape)) * DTYPE_BYTES[dtype];
    const block = this.#store.allocate(byteLength);
    const allocation = { block, byteLength, live: true, users: 0 };
    const tensor = { dtype, shape: [...shape] };
    this.#owners.set(tensor, allocation);
    this.#regions.set(tensor, { allocation, byteOffset: 0, byteLength });
    this.#allocatedBytes += byteLength;
    return tensor;
  }

  /** See {@linkcode Device.view}. */
  view(tensor: Tensor, offset: number, shape: readonly number[]): Tensor {
    const count = elementCount(checkShape(shape));
    const available = elementCount(tensor.shape);
    if (!Number.isInteger(offset) || offset < 0 || offset + count > available) {
      throw new RangeError(
        `Cannot view ${count} elements at ${offset}: they must lie within the tensor's ${available}`,
      );
    }
    const { allocation, byteOffset } = this.region(tensor);
    const bytes = DTYPE_BYTES[tensor.dtype];
    const view = { dtype: tensor.dtype, shape: [...shape] };
    this.#regions.set(view, {
      allocation,
      byteOffset: byteOffset + offset * bytes,
      byteLength: count * bytes,
    });
    return view;
  }

  /**
   * Where a tensor lies.
   *
   * @throws {TypeError} when the tensor was freed or belongs to another device.
   */
  region(tensor: Tensor): Region<Block> {
    const region = this.#regions.get(tensor);
    if (!region?.allocation.live) {
      throw new TypeError(
        `Cannot use the tensor ${tensor.dtype} [${tensor.shape}]: it must be a live tensor of this device, received one that was freed or is another device's`,
      );
    }
    return region;
  }

  /**
   * Keeps allocations from being released until {@linkcode TensorMemory.unpin}.
   *
   * @throws {TypeError} when one was freed.
   */
  pin(allocations: readonly Allocation<Block>[]): void {
    if (!allocations.every((allocation) => allocation.live)) {
      throw new TypeError("Cannot run the kernel: its tensors must live, received a freed one");
    }
    for (const allocation of allocations) allocation.users++;
  }

  /** Ends a {@linkcode TensorMemory.pin}. */
  unpin(allocations: readonly Allocation<Block>[]): void {
    for (const allocation of allocations) {
      allocation.users--;
      this.#releaseUnused(allocation);
    }
  }

  #releaseUnused({ live, users, block }: Allocation<Block>): void {
    if (!live && users === 0) this.#store.release(block);
  }

  /** See {@linkcode Device.write}. */
  write(tensor: Tensor, data: HostArray): void {
    const { allocation, byteOffset, byteLength } = this.region(tensor);
    checkHostArray("write", tensor, data);
    if (byteLength > 0) this.#store.write(allocation.block, byteOffset, bytesOf(data));
  }

  /** See {@linkcode Device.read}. */
  async read(tensor: Tensor, into?: HostArray): Promise<HostArray> {
    const { allocation, byteOffset, byteLength } = this.region(tensor);
    const target = into ?? asHostArray(tensor.dtype, new Uint8Array(byteLength));
    checkHostArray("read", tensor, target);
    if (byteLength > 0) await this.#store.read(allocation.block, byteOffset, bytesOf(target));
    return target;
  }

  /** See {@linkcode Device.zero}. */
  zero(tensor: Tensor): void {
    const { allocation, byteOffset, byteLength } = this.region(tensor);
    if (byteLength > 0) this.#store.zero(allocation.block, byteOffset, byteLength);
  }

  /** See {@linkcode Device.free}. */
  free(tensor: Tensor): void {
    const { allocation } = this.region(tensor);
    if (!this.#owners.delete(tensor)) {
      throw new TypeError("Cannot free the tensor: it must come from alloc, received a view");
    }
    this.#allocatedBytes -= allocation.byteLength;
    allocation.live = false;
    this.#releaseUnused(allocation);
  }

  /** Frees every tensor. */
  close(): void {
    for (const tensor of [...this.#owners.keys()]) this.free(tensor);
  }
}

const bytesOf = (data: HostArray) => new Uint8Array(data.buffer, data.byteOffset, data.byteLength);

function checkShape(shape: readonly number[]): readonly number[] {
  if (!shape.every((size) => Number.isInteger(size) && size >= 0)) {
    throw new RangeError(
      `Cannot make a tensor: its shape must be whole numbers from 0, received [${shape}]`,
    );
  }
  return shape;
}

function checkHostArray(verb: "read" | "write", tensor: Tensor, data: HostArray): void {
  const count = elementCount(tensor.shape);
  if (!holds(tensor.dtype, data)) {
    throw new TypeError(
      `Cannot ${verb} the tensor: the host array must be that of ${tensor.dtype}, received ${data.constructor.name}`,
    );
  }
  if (data.length !== count) {
    throw new RangeError(
      `Cannot ${verb} the tensor: the host array must have ${count} elements, received ${data.length}`,
    );
  }
}

/**
 * Bytes of memory of this machine, swap included; Infinity where Deno may not ask.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { machineMemory } from "@troupe/troupe/kernels";
 *
 * assert.ok(machineMemory() > 2 ** 28);
 * ```
 */
export function machineMemory(): number {
  try {
    const { total, swapTotal } = Deno.systemMemoryInfo();
    return total + swapTotal;
  } catch {
    return Infinity;
  }
}

/**
 * Refuses what is larger than all memory of this machine.
 *
 * @param what needs the bytes, for the message: "Cannot train".
 * @throws {RangeError} with both sizes.
 */
export function assertMachineHolds(what: string, bytes: number): void {
  const held = machineMemory();
  if (bytes <= held) return;
  throw new RangeError(
    `${what}: it must fit into the ${gibibytes(held)} of this machine, received ${
      gibibytes(bytes)
    }`,
  );
}

const gibibytes = (bytes: number) => `${(bytes / 2 ** 30).toPrecision(3)} GiB`;

/**
 * Bytes for a person.
 *
 * @param round of hundredths: downwards for a limit, as what does not fit should not look as if it did.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { mebibytes } from "@troupe/troupe/kernels";
 *
 * assert.equal(mebibytes(1.5 * 2 ** 20), "1.50 MiB");
 * assert.equal(mebibytes(2 ** 30 - 16, Math.floor), "1023.99 MiB");
 * ```
 */
export function mebibytes(bytes: number, round: (x: number) => number = Math.round): string {
  return `${(round(bytes / 2 ** 20 * 100) / 100).toFixed(2)} MiB`;
}
