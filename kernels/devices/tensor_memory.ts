/**
 * Tensors over blocks of memory: allocation, views, copies and ownership.
 *
 * @module
 */

import { assertInput, refusal, resultOr } from "../errors.ts";
import { elementCount } from "../graph/shapes.ts";
import { type DType, DTYPE_BYTES, HOST_ARRAYS, type HostArray, type Tensor } from "./device.ts";

type HostArrayConstructor = new (
  buffer: ArrayBufferLike,
  byteOffset: number,
  length: number,
) => HostArray;

/** Returns `bytes` as the typed array of `dtype`, without a copy. */
export function asHostArray(dtype: DType, bytes: Uint8Array): HostArray {
  const length = bytes.byteLength / DTYPE_BYTES[dtype];
  const Kind: HostArrayConstructor = HOST_ARRAYS[dtype];
  return new Kind(bytes.buffer, bytes.byteOffset, length);
}

/** Joins numbers in an array of a kind. */
export function joinArrays<A extends Float32Array | Uint8Array>(
  Kind: new (length: number) => A,
  parts: readonly ArrayLike<number>[],
): A {
  const all = new Kind(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/** Returns whether `data` is the host array type of `dtype`. */
export function holds(dtype: DType, data: HostArray): boolean {
  return data instanceof HOST_ARRAYS[dtype];
}

/** A store of memory blocks, with access to their bytes. */
export interface BlockStore<Block> {
  /** Allocates zeroed, 64-byte aligned memory. */
  allocate(byteLength: number): Block;
  /** Copies bytes to a place in a block. */
  write(block: Block, byteOffset: number, bytes: Uint8Array): void;
  /** Copies bytes from a place in a block, after the runs that were started before. */
  read(block: Block, byteOffset: number, into: Uint8Array): Promise<void> | void;
  /** Sets a part of a block to zero. */
  zero(block: Block, byteOffset: number, byteLength: number): void;
  /** Frees a block. */
  release(block: Block): void;
}

/** A block of an `alloc`. */
export interface Allocation<Block> {
  readonly block: Block;
  readonly byteLength: number;
  /** True until its tensor is freed. */
  live: boolean;
  /** Runs in flight that use it. It is released when it is freed and unused. */
  users: number;
  /** Free the programs that are bound to it, when it is released. */
  readonly unbind: Set<() => void>;
}

/** The place of a tensor in an allocation. */
interface Region<Block> {
  readonly allocation: Allocation<Block>;
  readonly byteOffset: number;
  readonly byteLength: number;
}

/** Tensors over the blocks of one store: the memory of a {@linkcode Device}. */
export abstract class TensorMemory<Block> {
  /** Live tensors that `alloc` returned. */
  #owners = new Map<Tensor, Allocation<Block>>();
  /** Every tensor of this memory, views included. */
  #regions = new WeakMap<Tensor, Region<Block>>();
  #allocatedBytes = 0;

  constructor(private store: BlockStore<Block>) {}

  /** Throws if the device was closed. */
  protected abstract assertOpen(): void;

  /** Bytes of live tensors. */
  get allocatedBytes(): number {
    return this.#allocatedBytes;
  }

  /** See {@linkcode Device.alloc}. */
  alloc(dtype: DType, shape: readonly number[]): Tensor {
    this.assertOpen();
    const must = `its dtype must be one of ${Object.keys(DTYPE_BYTES).join(", ")}`;
    assertInput(Object.hasOwn(DTYPE_BYTES, dtype), "make a tensor", must, dtype, TypeError);
    const byteLength = elementCount(checkShape(shape)) * DTYPE_BYTES[dtype];
    const block = this.store.allocate(byteLength);
    const allocation = { block, byteLength, live: true, users: 0, unbind: new Set<() => void>() };
    const tensor = { dtype, shape: [...shape] };
    this.#owners.set(tensor, allocation);
    this.#regions.set(tensor, { allocation, byteOffset: 0, byteLength });
    this.#allocatedBytes += byteLength;
    return tensor;
  }

  /** See {@linkcode Device.view}. */
  view(tensor: Tensor, offset: number, shape: readonly number[]): Tensor {
    this.assertOpen();
    const count = elementCount(checkShape(shape));
    const available = elementCount(tensor.shape);
    if (!Number.isInteger(offset) || offset < 0 || offset + count > available) {
      const must = `they must be within the tensor's ${available}`;
      throw new RangeError(`Cannot view ${count} elements at ${offset}: ${must}`);
    }
    const { allocation, byteOffset } = this.region(tensor);
    const bytes = DTYPE_BYTES[tensor.dtype];
    const view = { dtype: tensor.dtype, shape: [...shape] };
    const place = { byteOffset: byteOffset + offset * bytes, byteLength: count * bytes };
    this.#regions.set(view, { allocation, ...place });
    return view;
  }

  /**
   * Returns the region of a tensor.
   *
   * @throws {TypeError} when the tensor was freed or belongs to another device.
   */
  protected region(tensor: Tensor): Region<Block> {
    this.assertOpen();
    const region = this.#regions.get(tensor);
    if (region?.allocation.live) return region;
    const must = "it must be a live tensor of this device", received = "a freed or foreign one";
    throw refusal(`use the tensor ${tensor.dtype} [${tensor.shape}]`, must, received, TypeError);
  }

  /**
   * Keeps allocations from being released until {@linkcode TensorMemory.unpin}.
   *
   * @throws {TypeError} when one was freed.
   */
  protected pin(allocations: readonly Allocation<Block>[]): void {
    const areLive = allocations.every((allocation) => allocation.live);
    assertInput(areLive, "run the kernel", "its tensors must live", "a freed one", TypeError);
    for (const allocation of allocations) allocation.users++;
  }

  /** Ends a {@linkcode TensorMemory.pin}. */
  protected unpin(allocations: readonly Allocation<Block>[]): void {
    for (const allocation of allocations) {
      allocation.users--;
      this.#releaseUnused(allocation);
    }
  }

  #releaseUnused({ live, users, block, unbind }: Allocation<Block>): void {
    if (live || users > 0) return;
    for (const one of unbind) one();
    this.store.release(block);
  }

  /** See {@linkcode Device.write}. */
  write(tensor: Tensor, data: HostArray): void {
    const { allocation, byteOffset, byteLength } = this.region(tensor);
    checkHostArray("write", tensor, data);
    if (byteLength > 0) this.store.write(allocation.block, byteOffset, bytesOf(data));
  }

  /** See {@linkcode Device.read}. */
  async read<A extends HostArray>(tensor: Tensor, into?: A): Promise<A> {
    const { allocation, byteOffset, byteLength } = this.region(tensor);
    const target = into ?? asHostArray(tensor.dtype, new Uint8Array(byteLength));
    checkHostArray("read", tensor, target);
    if (byteLength > 0) await this.store.read(allocation.block, byteOffset, bytesOf(target));
    return target as A;
  }

  /** See {@linkcode Device.zero}. */
  zero(tensor: Tensor): void {
    const { allocation, byteOffset, byteLength } = this.region(tensor);
    if (byteLength > 0) this.store.zero(allocation.block, byteOffset, byteLength);
  }

  /** See {@linkcode Device.free}. */
  free(tensor: Tensor): void {
    this.region(tensor);
    const isOwner = this.#owners.has(tensor);
    assertInput(isOwner, "free the tensor", "it must come from alloc", "a view", TypeError);
    this.#free(tensor);
  }

  #free(tensor: Tensor): void {
    const allocation = this.#owners.get(tensor)!;
    this.#owners.delete(tensor);
    this.#allocatedBytes -= allocation.byteLength;
    allocation.live = false;
    this.#releaseUnused(allocation);
  }

  /** Frees every tensor. */
  protected freeAll(): void {
    for (const tensor of [...this.#owners.keys()]) this.#free(tensor);
  }
}

const bytesOf = (data: HostArray) => new Uint8Array(data.buffer, data.byteOffset, data.byteLength);

function checkShape(shape: readonly number[]): readonly number[] {
  const isShape = shape.every((size) => Number.isInteger(size) && size >= 0);
  assertInput(isShape, "make a tensor", "its shape must be whole numbers from 0", `[${shape}]`);
  return shape;
}

function checkHostArray(verb: "read" | "write", tensor: Tensor, data: HostArray): void {
  const count = elementCount(tensor.shape);
  const cannot = `${verb} the tensor`, must = `the host array must be that of ${tensor.dtype}`;
  assertInput(holds(tensor.dtype, data), cannot, must, data.constructor.name, TypeError);
  const size = `the host array must have ${count} elements`;
  assertInput(data.length === count, cannot, size, data.length);
}

/**
 * Throws if a size exceeds the memory of this machine, including swap, where it may be asked for.
 *
 * @param what start of the message: "Cannot train".
 * @throws {RangeError} with both sizes.
 */
export function assertMachineHolds(what: string, bytes: number): void {
  const info = resultOr(() => Deno.systemMemoryInfo(), undefined);
  const held = info ? info.total + info.swapTotal : Infinity;
  if (bytes <= held) return;
  const must = `it must fit into the ${gibibytes(held)} of this machine`;
  throw new RangeError(`${what}: ${must}, received ${gibibytes(bytes)}`);
}

const gibibytes = (bytes: number) => `${(bytes / 2 ** 30).toPrecision(3)} GiB`;

/**
 * Formats bytes in MiB.
 *
 * @param round rounds hundredths: use `Math.floor` for a limit, so that larger sizes look larger.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * assert.equal(mebibytes(1.5 * 2 ** 20), "1.50 MiB");
 * assert.equal(mebibytes(2 ** 30 - 16, Math.floor), "1023.99 MiB");
 * ```
 */
export function mebibytes(bytes: number, round: (x: number) => number = Math.round): string {
  return `${(round(bytes / 2 ** 20 * 100) / 100).toFixed(2)} MiB`;
}
