/**
 * Devices over engines, which provide memory blocks and compiled programs.
 *
 * @module
 */

import { assertInput, refusal } from "../errors.ts";
import { elementCount } from "../graph/shapes.ts";
import { matchTensors, readSignature } from "../onnx/signature.ts";
import {
  type CopiedBytes,
  type Device,
  type DType,
  DTYPE_BYTES,
  HOST_ARRAYS,
  type HostArray,
  type Kernel,
  type Run,
  type Tensor,
} from "./device.ts";
import { asHostArray } from "./tensor_memory.ts";
import type { TensorSpec } from "../graph/value.ts";

/** Calls `release` once, after `close` and the last `leave`. */
class CloseGuard {
  #inside = 0;
  closed = false;

  constructor(private readonly release: () => void) {}

  enter(): void {
    this.#inside++;
  }

  leave(): void {
    if (--this.#inside === 0 && this.closed) this.release();
  }

  close(): void {
    if (this.closed) return;
    this.closed = true;
    if (this.#inside === 0) this.release();
  }
}

/** An input or output of a model, and the memory that is bound to it. */
export interface Binding<Block> extends TensorSpec {
  readonly block: Block;
  readonly byteOffset: number;
  readonly byteLength: number;
}

/** Inputs or outputs of a model with their memory. */
export type Bindings<Block> = readonly Binding<Block>[];

/** A model bound to memory. */
export interface BoundProgram {
  /** Bytes of tensor memory that the binding allocated. Default 0. */
  readonly ownBytes?: number;
  /** Computes once. */
  run(): Promise<void> | void;
  /** Frees the memory of the binding. */
  release(): void;
}

/** A compiled model of an {@linkcode Engine}. */
export interface Program<Block> {
  bind(inputs: Bindings<Block>, outputs: Bindings<Block>): BoundProgram;
  /** Frees the model; no bound program runs any more. */
  release(): void;
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

/** The engine of a device. */
interface Engine<Block>
  extends BlockStore<Block>, Pick<Device, "name" | "hasFreeViews" | "copied" | "close"> {
  /**
   * Compiles a model.
   *
   * @throws {Error} with the engine's reason when it refuses the model.
   */
  compile(model: Uint8Array): Promise<Program<Block>>;
}

const isEqual = (one: Uint8Array, other: Uint8Array) =>
  one.length === other.length && one.every((byte, i) => byte === other[i]);

/** A {@linkcode Device} over an engine. */
export class EngineDevice<Block> implements Device {
  readonly name: string;
  readonly hasFreeViews: boolean;
  /** Bytes of live tensors, and of bindings that are not released. */
  allocatedBytes = 0;
  #engine: Engine<Block>;
  /** Live tensors that `alloc` returned. */
  #owners = new Map<Tensor, Allocation<Block>>();
  /** All tensors of this device, views included. */
  #regions = new WeakMap<Tensor, Region<Block>>();
  /** All compiled models; those that nothing uses can be returned again. */
  #kernels = new Map<Kernel, { readonly model: Uint8Array; isIdle: boolean }>();
  /** Entered by every compiled model until it is freed. */
  #gate: CloseGuard;

  constructor(engine: Engine<Block>) {
    this.name = engine.name;
    this.hasFreeViews = engine.hasFreeViews;
    this.#engine = engine;
    this.#gate = new CloseGuard(() => {
      this.#freeAll();
      engine.close();
    });
  }

  get copied(): CopiedBytes {
    return { ...this.#engine.copied };
  }

  #assertOpen(): void {
    if (this.#gate.closed) throw new Error(`Cannot use the ${this.name} device: it was closed`);
  }

  alloc(dtype: DType, shape: readonly number[]): Tensor {
    this.#assertOpen();
    const must = `its dtype must be one of ${Object.keys(DTYPE_BYTES).join(", ")}`;
    assertInput(Object.hasOwn(DTYPE_BYTES, dtype), "make a tensor", must, dtype, TypeError);
    const byteLength = elementCount(checkShape(shape)) * DTYPE_BYTES[dtype];
    const block = this.#engine.allocate(byteLength);
    const allocation = { block, byteLength, live: true, users: 0, unbind: new Set<() => void>() };
    const tensor = { dtype, shape: [...shape] };
    this.#owners.set(tensor, allocation);
    this.#regions.set(tensor, { allocation, byteOffset: 0, byteLength });
    this.allocatedBytes += byteLength;
    return tensor;
  }

  view(tensor: Tensor, offset: number, shape: readonly number[]): Tensor {
    this.#assertOpen();
    const count = elementCount(checkShape(shape));
    const available = elementCount(tensor.shape);
    if (!Number.isInteger(offset) || offset < 0 || offset + count > available) {
      const must = `they must be within the tensor's ${available}`;
      throw new RangeError(`Cannot view ${count} elements at ${offset}: ${must}`);
    }
    const { allocation, byteOffset } = this.#region(tensor);
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
  #region(tensor: Tensor): Region<Block> {
    this.#assertOpen();
    const region = this.#regions.get(tensor);
    if (region?.allocation.live) return region;
    const must = "it must be a live tensor of this device", received = "a freed or foreign one";
    throw refusal(`use the tensor ${tensor.dtype} [${tensor.shape}]`, must, received, TypeError);
  }

  #releaseUnused({ live, users, block, unbind }: Allocation<Block>): void {
    if (live || users > 0) return;
    for (const one of unbind) one();
    this.#engine.release(block);
  }

  write(tensor: Tensor, data: HostArray): void {
    const { allocation, byteOffset, byteLength } = this.#region(tensor);
    checkHostArray("write", tensor, data);
    if (byteLength > 0) this.#engine.write(allocation.block, byteOffset, bytesOf(data));
  }

  async read<A extends HostArray>(tensor: Tensor, into?: A): Promise<A> {
    const { allocation, byteOffset, byteLength } = this.#region(tensor);
    const target = into ?? asHostArray(tensor.dtype, new Uint8Array(byteLength));
    checkHostArray("read", tensor, target);
    if (byteLength > 0) await this.#engine.read(allocation.block, byteOffset, bytesOf(target));
    return target as A;
  }

  zero(tensor: Tensor): void {
    const { allocation, byteOffset, byteLength } = this.#region(tensor);
    if (byteLength > 0) this.#engine.zero(allocation.block, byteOffset, byteLength);
  }

  free(tensor: Tensor): void {
    this.#region(tensor);
    const isOwner = this.#owners.has(tensor);
    assertInput(isOwner, "free the tensor", "it must come from alloc", "a view", TypeError);
    this.#free(tensor);
  }

  #free(tensor: Tensor): void {
    const allocation = this.#owners.get(tensor)!;
    this.#owners.delete(tensor);
    this.allocatedBytes -= allocation.byteLength;
    allocation.live = false;
    this.#releaseUnused(allocation);
  }

  /** Frees every tensor. */
  #freeAll(): void {
    for (const tensor of [...this.#owners.keys()]) this.#free(tensor);
  }

  async compile(model: Uint8Array): Promise<Kernel> {
    this.#assertOpen();
    for (const [kernel, known] of this.#kernels) {
      if (!known.isIdle || !isEqual(known.model, model)) continue;
      known.isIdle = false;
      return kernel;
    }
    this.#gate.enter();
    try {
      const program = await this.#engine.compile(model);
      try {
        return this.#kernel(program, model);
      } catch (error) {
        program.release();
        throw error;
      }
    } finally {
      this.#gate.leave();
    }
  }

  #kernel(program: Program<Block>, model: Uint8Array): Kernel {
    const signature = readSignature(model);
    const bound = new Set<() => void>();
    const gate = new CloseGuard(() => {
      for (const unbind of bound) unbind();
      program.release();
      this.#kernels.delete(kernel);
      this.#gate.leave();
    });
    const kernel: Kernel = {
      inputs: signature.inputs.map((input) => input.name),
      outputs: signature.outputs.map((output) => output.name),
      bind: (inputs, outputs) => {
        if (gate.closed) throw new Error("Cannot bind the kernel: it was closed");
        const allocations = new Set<Allocation<Block>>();
        const place = (what: "input" | "output", given: Readonly<Record<string, Tensor>>) => {
          const borders = signature[`${what}s`];
          const tensors = matchTensors(what, borders, given);
          return borders.map((border, i) => {
            const { allocation, byteOffset, byteLength } = this.#region(tensors[i]!);
            allocations.add(allocation);
            return { ...border, block: allocation.block, byteOffset, byteLength };
          });
        };
        const boundProgram = program.bind(place("input", inputs), place("output", outputs));
        const known = [bound, ...[...allocations].map(({ unbind }) => unbind)];
        const unbind = () => {
          for (const all of known) all.delete(unbind);
          boundProgram.release();
          this.allocatedBytes -= boundProgram.ownBytes ?? 0;
        };
        for (const all of known) all.add(unbind);
        this.allocatedBytes += boundProgram.ownBytes ?? 0;
        return this.#run(boundProgram, [...allocations], gate);
      },
      close: () => gate.close(),
    };
    this.#gate.enter();
    this.#kernels.set(kernel, { model, isIdle: false });
    if (this.#gate.closed) kernel.close();
    return kernel;
  }

  #run(bound: BoundProgram, allocations: readonly Allocation<Block>[], gate: CloseGuard): Run {
    return async () => {
      if (gate.closed) throw new Error("Cannot run the kernel: it was closed");
      const areLive = allocations.every(({ live }) => live);
      assertInput(areLive, "run the kernel", "its tensors must live", "a freed one", TypeError);
      for (const allocation of allocations) allocation.users++;
      gate.enter();
      try {
        await bound.run();
      } finally {
        for (const allocation of allocations) {
          allocation.users--;
          this.#releaseUnused(allocation);
        }
        gate.leave();
      }
    };
  }

  clear(): void {
    this.#freeAll();
    for (const known of this.#kernels.values()) known.isIdle = true;
  }

  close(): void {
    for (const kernel of [...this.#kernels.keys()]) kernel.close();
    this.#gate.close();
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
  const isOfType = data instanceof HOST_ARRAYS[tensor.dtype];
  assertInput(isOfType, cannot, must, data.constructor.name, TypeError);
  const size = `the host array must have ${count} elements`;
  assertInput(data.length === count, cannot, size, data.length);
}

/** An engine whose blocks are bytes of the host. */
interface HostEngine<Block>
  extends Pick<Engine<Block>, "name" | "allocate" | "release" | "compile" | "close"> {
  /** Returns the bytes of a block. Called at every use, because a wasm heap moves when it grows. */
  bytes(block: Block): Uint8Array;
  /** Sets bytes to zero, if there is a faster way than through their array. */
  readonly zero?: Engine<Block>["zero"];
}

/** Creates a {@linkcode Device} over an engine with host memory. */
export function hostDevice<Block>(engine: HostEngine<Block>): Device {
  const copied = { toDevice: 0, toHost: 0 };
  return new EngineDevice({
    ...engine,
    hasFreeViews: true,
    copied,
    write(block, byteOffset, bytes) {
      engine.bytes(block).set(bytes, byteOffset);
      copied.toDevice += bytes.byteLength;
    },
    read(block, byteOffset, into) {
      into.set(engine.bytes(block).subarray(byteOffset, byteOffset + into.byteLength));
      copied.toHost += into.byteLength;
    },
    zero: engine.zero ??
      ((block, byteOffset, byteLength) =>
        void engine.bytes(block).fill(0, byteOffset, byteOffset + byteLength)),
  });
}
