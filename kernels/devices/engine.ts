/**
 * Devices over engines, which provide memory blocks and compiled programs.
 *
 * @module
 */

import { matchTensors, type ModelPort, readSignature } from "../onnx/signature.ts";
import type { CopiedBytes, Device, Kernel, Run, Tensor } from "./device.ts";
import { type Allocation, type BlockStore, TensorMemory } from "./tensor_memory.ts";

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
export interface Binding<Block> extends ModelPort {
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

/** The engine of a device. */
interface Engine<Block> extends BlockStore<Block> {
  readonly name: string;
  /** See {@linkcode Device.hasFreeViews}. */
  readonly hasFreeViews: boolean;
  /** See {@linkcode Device.copied}. */
  readonly copied: CopiedBytes;
  /**
   * Compiles a model.
   *
   * @throws {Error} with the engine's reason when it refuses the model.
   */
  compile(model: Uint8Array): Promise<Program<Block>>;
  /** Frees the engine, after its blocks and programs. */
  close(): void;
}

const isEqual = (one: Uint8Array, other: Uint8Array) =>
  one.length === other.length && one.every((byte, i) => byte === other[i]);

/** A {@linkcode Device} over an engine. */
export class EngineDevice<Block> extends TensorMemory<Block> implements Device {
  readonly name: string;
  readonly hasFreeViews: boolean;
  #engine: Engine<Block>;
  /** All compiled models; those that nothing uses can be returned again. */
  #kernels = new Map<Kernel, { readonly model: Uint8Array; isIdle: boolean }>();
  /** Bytes that bindings allocated and have not freed. */
  #ownBytes = 0;
  /** Entered by every compiled model until it is freed. */
  #gate: CloseGuard;

  constructor(engine: Engine<Block>) {
    super(engine);
    this.name = engine.name;
    this.hasFreeViews = engine.hasFreeViews;
    this.#engine = engine;
    this.#gate = new CloseGuard(() => {
      this.freeAll();
      engine.close();
    });
  }

  override get allocatedBytes(): number {
    return super.allocatedBytes + this.#ownBytes;
  }

  get copied(): CopiedBytes {
    return { ...this.#engine.copied };
  }

  protected override assertOpen(): void {
    if (this.#gate.closed) throw new Error(`Cannot use the ${this.name} device: it was closed`);
  }

  async compile(model: Uint8Array): Promise<Kernel> {
    this.assertOpen();
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
            const { allocation, byteOffset, byteLength } = this.region(tensors[i]!);
            allocations.add(allocation);
            return { ...border, block: allocation.block, byteOffset, byteLength };
          });
        };
        const boundProgram = program.bind(place("input", inputs), place("output", outputs));
        const known = [bound, ...[...allocations].map(({ unbind }) => unbind)];
        const unbind = () => {
          for (const all of known) all.delete(unbind);
          boundProgram.release();
          this.#ownBytes -= boundProgram.ownBytes ?? 0;
        };
        for (const all of known) all.add(unbind);
        this.#ownBytes += boundProgram.ownBytes ?? 0;
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
      this.pin(allocations);
      gate.enter();
      try {
        await bound.run();
      } finally {
        this.unpin(allocations);
        gate.leave();
      }
    };
  }

  clear(): void {
    this.freeAll();
    for (const known of this.#kernels.values()) known.isIdle = true;
  }

  close(): void {
    for (const kernel of [...this.#kernels.keys()]) kernel.close();
    this.#gate.close();
  }
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
