/**
 * The micro-batches in flight on a stage: the memory of each, and its runs, bound to one version of
 * the weights.
 *
 * Memory is allocated on first use and reused, so a run in a steady state allocates nothing.
 *
 * [Note: slices in flight] Where sequences are cut into S slices, slice s of micro-batch m has the
 * number m·S + s and separate memory, since slices may differ in size. In addition a micro-batch has a
 * context, shared by its slices, from the F of its first slice until none of them is in flight. Runs
 * are bound once for each pair of memory and context.
 *
 * [Note: lengths in flight] Where samples have several lengths, a micro-batch of any length takes the
 * memory of one of the longest samples. Runs are bound once for each memory and length. With
 * `longestSlots` it takes memory for its length. If the sum would exceed the memory of that number of
 * longest samples, free memory of other lengths is released first, with its runs.
 *
 * @module
 */

import { type NamedProgram, PORTS, type StageProgram } from "../compile/programs.ts";
import { RANDOM_MAX } from "../devices/cpu/simd.ts";
import type { Device, Kernel, Run, Tensor } from "../devices/device.ts";
import { assertInput } from "../errors.ts";
import { elementCount } from "../graph/shapes.ts";
import { type DropoutKey, openMask } from "../layers/dropout.ts";
import {
  type ActivationOptions,
  type Activations,
  allocateActivations,
  allocateBackward,
  allocateContext,
  allocateShared,
  type BackwardValues,
  gradientsOf,
  type Ports,
  segmentsOf,
  type SharedActivations,
  type StageParts,
} from "./activations.ts";
import { bytesOfLengths } from "./memory.ts";
import type { StageOptions } from "./options.ts";
import { cutRange, type ParameterStore } from "./parameters.ts";
import { openMemory, type SlotPool, type Taken } from "./pool.ts";

/** The parts of the backward pass: B whole, I for the input, W for the weights. */
export type BackwardKind = "B" | "I" | "W";

/** A layer of a stage, compiled. */
export interface StageLayer extends NamedProgram {
  /** Its compiled kernels; some layers lack a part of the backward. */
  readonly kernels:
    & { readonly forward: Kernel; readonly overwrites: readonly Kernel[] }
    & Partial<Record<BackwardKind, Kernel>>;
}

/** For each layer its parameters and their gradients, by port. */
type ParameterPorts = readonly Readonly<Record<string, Tensor>>[];

/** Returns the parameters of a stage, in one version of its weights, by the ports of its layers. */
export function parameterPorts(
  layers: readonly NamedProgram[],
  { parameters }: ParameterStore,
  frozen: ReadonlyMap<string, Tensor>,
  version: number,
): ParameterPorts {
  const byName = new Map(parameters.map((parameter) => [parameter.name, parameter]));
  return layers.map(({ prefix, program }) =>
    Object.fromEntries(program.parameters.flatMap(({ name }) => {
      const fixed = frozen.get(prefix + name);
      if (fixed) return [[PORTS.parameter(name), fixed]];
      const { weights, gradient } = byName.get(prefix + name)!;
      return [
        [PORTS.parameter(name), weights[version]!],
        [PORTS.accumulator(name), gradient],
        [PORTS.gradient(name), gradient],
      ];
    }))
  );
}

/**
 * Binds the runs of one micro-batch, or of one slice of its sequences: `forward`, first layer first,
 * and `fresh`, the `again` of the last segment, whose activations F leaves in memory. `bindBackward`
 * binds its backward, last segment first, to the memory of one. Of each segment `again` are the forwards
 * that recompute its activations, the same array for all kinds of backward; `overwrites` overwrite
 * activations, once after these were computed; and `runs` are the backwards, last layer first.
 */
function bindSlot(
  layers: readonly StageLayer[],
  activations: Activations,
  options: ActivationOptions,
  shared: {
    readonly parameters: ParameterPorts;
    readonly lossScale: Tensor;
    /** For each layer, the values that the slices of the micro-batch share. */
    readonly context: readonly Ports[];
    /** Outputs, by port, of gradients that W recomputes with an interval. */
    readonly again: Ports;
    /** Prepares the masks of a layer. */
    readonly prepareMasks: (layer: number) => void;
  },
) {
  const isAgain = options.recomputeInterval !== undefined;
  const binderOf = ({ program }: StageLayer, i: number, backward: Ports = {}) => {
    const own = activations.ports[i]!, { masks = [] } = program;
    const inPlace = Object.fromEntries(
      program.saved.map(({ name }) => [PORTS.overwritten(name), own[name]!]),
    );
    const context = shared.context[i], lossScale = { [PORTS.lossScale]: shared.lossScale };
    const parameters = shared.parameters[i];
    const tensors = { ...parameters, ...own, ...backward, ...inPlace, ...lossScale, ...context };
    return (kernel: Kernel, outputs: Ports = {}): Run => {
      const run = bind(kernel, tensors, { ...tensors, ...outputs });
      if (!masks.some(({ name }) => kernel.inputs.includes(name))) return run;
      return () => {
        shared.prepareMasks(i);
        return run();
      };
    };
  };
  const computed = layers.map((layer, i) => {
    const { forward, overwrites } = layer.kernels, bindRun = binderOf(layer, i);
    return { forward: bindRun(forward), overwrites: overwrites.map((kernel) => bindRun(kernel)) };
  });
  const forward = computed.map((runs) => runs.forward);
  const parts = segmentsOf(layers, options.recomputeInterval).map(({ from, to }) => {
    // The output of a segment is kept or unread, so a last layer that saves nothing does not rerun.
    const end = layers[to - 1]!.program.saved.length > 0 ? to : to - 1;
    return { from, to, again: isAgain ? forward.slice(from, end) : [] };
  });
  const firstTrained = layers.findIndex(({ program }) => program.models.weight);
  const bindBackward = (values: BackwardValues) => {
    const bound = layers.map((layer, i) => {
      // With an interval W cannot read values of I, so it runs B again.
      const { B, I, W } = layer.kernels, bindRun = binderOf(layer, i, values.ports[i]);
      const whole = B && bindRun(B);
      const addsAgain = I !== undefined && B?.outputs.some((name) => name in shared.again);
      const again = addsAgain ? bindRun(B!, shared.again) : whole;
      return { B: whole, I: I && bindRun(I), W: isAgain ? again : W && bindRun(W) };
    });
    const ofKind = (kind: BackwardKind) =>
      parts.toReversed().flatMap(({ from, to, again }) => {
        if (kind === "W" && (firstTrained < 0 || to <= firstTrained)) return [];
        const runs = bound.slice(from, to).reverse().map((one) => one[kind]);
        // Without an interval, W reads the values that I has overwritten.
        const isOver = kind === "W" && !isAgain;
        const overwrites = isOver ? [] : computed.slice(from, to).flatMap((one) => one.overwrites);
        return [{ again, overwrites, runs: runs.filter((run) => run !== undefined) }];
      });
    return { ...values, segments: { B: ofKind("B"), I: ofKind("I"), W: ofKind("W") } };
  };
  /** Its backwards that are bound, by their memory. */
  const backwards = new Map<BackwardPlace, ReturnType<typeof bindBackward>>();
  return { ...activations, forward, fresh: parts.at(-1)!.again, bindBackward, backwards };
}

/** A micro-batch in flight. */
export type Slot = ReturnType<typeof bindSlot>;

/** Binds a kernel to the tensors that its inputs and outputs name. */
export function bind(kernel: Kernel, inputs: Ports, outputs: Ports): Run {
  const pick = (names: readonly string[], tensors: Ports) =>
    Object.fromEntries(names.map((name) => [name, tensors[name]!]));
  return kernel.bind(pick(kernel.inputs, inputs), pick(kernel.outputs, outputs));
}

/**
 * Opens the masks of a stage's layers, in the memory that all micro-batches share.
 *
 * @returns a function that writes the masks of a layer, with the key of the micro-batch; without a key
 * there is no dropout.
 */
function openMasks(
  device: Device,
  { slices, slicing }: InFlightParts,
  { ports }: SharedActivations,
) {
  const pieces = new WeakMap<Tensor, readonly Tensor[]>();
  /** Returns the parts in which a mask is written. */
  const piecesOf = (mask: Tensor) =>
    pieces.getOrInsertComputed(mask, () => {
      if (!device.hasFreeViews) return [mask];
      const parts = cutRange(0, elementCount(mask.shape), RANDOM_MAX);
      return parts.map(({ offset, length }) => device.view(mask, offset, [length]));
    });
  let scratch = new Float32Array(0), prepared: string | undefined;
  return (slice: number, layer: number, key: DropoutKey | undefined): void => {
    const label = JSON.stringify([slice, layer, key]);
    if (label === prepared) return;
    prepared = label;
    const { name, program: { masks = [] } } = slices[slice]![layer]!;
    const part = slicing && { index: slice, count: slicing.slices, samples: slicing.samples };
    for (const spec of masks) {
      const fill = openMask(spec, name, key, part);
      let from = 0;
      for (const piece of piecesOf(ports[slice]![layer]![spec.name]!)) {
        const length = elementCount(piece.shape);
        if (scratch.length < length) scratch = new Float32Array(length);
        const values = scratch.subarray(0, length);
        fill(values, from);
        device.write(piece, values);
        from += length;
      }
    }
  };
}

/** The memory of one backward: for each length, the same. */
type BackwardPlace = readonly BackwardValues[];

/** The memory of one micro-batch or slice, and its runs. */
interface Place {
  /** For each length, the same memory; that of one length if each has its own. */
  readonly memory: readonly Activations[];
  /** Runs by context, and by version of the weights and length. */
  readonly slots: Map<SharedContext, Slot[]>;
  /** Key of the micro-batch that uses the memory. */
  dropout: DropoutKey | undefined;
}

/** Values that the slices of a micro-batch share, by layer. */
interface SharedContext {
  readonly ports: readonly Ports[];
  /** Slices that have started. */
  begun: number;
}

/** A micro-batch or slice in flight. */
interface Live {
  readonly place: Taken<Place>;
  readonly context: SharedContext;
  readonly version: number;
  /** Index of the length of its samples. */
  readonly length: number;
  /** Its runs. */
  readonly slot: Slot;
  /** The memory of its backward, from B or I on. */
  backward?: Taken<BackwardPlace>;
}

/** The parts of a stage that micro-batches in flight share. */
interface InFlightParts extends StageParts, Pick<StageProgram, "slicing"> {
  /** Layers with their kernels; those of a length are compiled before its first micro-batch begins. */
  readonly compiled: readonly (readonly StageLayer[])[];
  /** For each version of the weights and each layer, its parameters by port. */
  readonly parameters: readonly ParameterPorts[];
  readonly lossScale: Tensor;
  /** The memory that it shares with other stages. */
  readonly pool: SlotPool | undefined;
}

/** The micro-batches in flight, or slices of them, by their numbers. */
export class InFlight {
  readonly #slices: number;
  readonly #places: ReturnType<typeof openPlaces>;
  readonly #freeContexts: SharedContext[] = [];
  #live = new Map<number, Live>();
  /** The `again` whose outputs the shared activations hold now. */
  fresh: readonly Run[] | undefined;

  /** Allocates the memory that all micro-batches of a stage share; none is in flight. */
  constructor(device: Device, parts: InFlightParts, options: StageOptions) {
    this.#slices = parts.slicing?.slices ?? 1;
    this.#places = openPlaces(device, parts, options);
  }

  /** Number of micro-batches in flight. */
  get count(): number {
    return this.#live.size;
  }

  /** The versions of the weights that they use. */
  get versions(): Set<number> {
    return new Set([...this.#live.values()].map(({ version }) => version));
  }

  /** The most bytes of all activations so far, including free ones. */
  get bytes(): number {
    return this.#places.bytes;
  }

  /** Returns whether a micro-batch is in flight. */
  has(microBatch: number): boolean {
    return this.#live.has(microBatch);
  }

  /**
   * Starts a micro-batch of a length with one version of the weights and its dropout key.
   *
   * @throws {RangeError} when it is a slice, and not the next one of its micro-batch.
   */
  begin(microBatch: number, version: number, dropout?: DropoutKey, length = 0): Slot {
    const slice = microBatch % this.#slices, known = this.#contextOf(microBatch);
    const next = known?.begun ?? 0, sequence = Math.floor(microBatch / this.#slices);
    const must = `slices of micro-batch ${sequence} must run in order, ${next} next`;
    assertInput(slice === next, "run F", must, slice);
    const context = known ?? this.#freeContexts.pop() ??
      { ports: this.#places.allocateContext(), begun: 0 };
    context.begun = slice + 1;
    const place = this.#places.take(slice, length);
    const { value } = place, slots = value.slots.getOrInsert(context, []);
    value.dropout = dropout;
    const one = { place, context, version, length };
    const index = version * value.memory.length + length;
    const slot = slots[index] ??= this.#places.bind(slice, one);
    this.#live.set(microBatch, { ...one, slot });
    return slot;
  }

  /**
   * Returns the memory and runs of a micro-batch.
   *
   * @throws {RangeError} when it is not in flight.
   */
  slotOf(microBatch: number): Slot {
    return this.#find(microBatch).slot;
  }

  /**
   * Returns the backward of a micro-batch, which keeps its memory until the micro-batch ends.
   *
   * @throws {RangeError} when it is not in flight.
   */
  backwardOf(microBatch: number): ReturnType<Slot["bindBackward"]> {
    const one = this.#find(microBatch), { slot } = one;
    one.backward ??= this.#places.takeBackward(microBatch % this.#slices, slot);
    const { value } = one.backward;
    return slot.backwards.getOrInsertComputed(value, () => slot.bindBackward(value[one.length]!));
  }

  /**
   * Ends a micro-batch and frees its memory for the next one.
   *
   * @throws {RangeError} when it is not in flight.
   */
  end(microBatch: number): void {
    const one = this.#find(microBatch);
    this.#places.give(microBatch % this.#slices, one);
    this.#live.delete(microBatch);
    if (!this.#contextOf(microBatch)) this.#freeContexts.push(one.context);
    // A Map's old hash tables refer to their successors, so one table in old memory keeps all alive.
    this.#live = new Map(this.#live);
  }

  /** Ends all micro-batches. */
  clear(): void {
    for (const microBatch of [...this.#live.keys()]) this.end(microBatch);
    this.fresh = undefined;
  }

  /** Returns what the slices in flight of a micro-batch share; undefined if there is none. */
  #contextOf(slice: number): SharedContext | undefined {
    const first = slice - slice % this.#slices;
    for (let other = first; other < first + this.#slices; other++) {
      const one = this.#live.get(other);
      if (one) return one.context;
    }
  }

  #find(microBatch: number): Live {
    const one = this.#live.get(microBatch);
    if (one) return one;
    throw new RangeError(`Cannot run backward: micro-batch ${microBatch} must have had its F here`);
  }
}

/**
 * Returns a function that frees memory of other lengths until there is room for one more of a length.
 *
 * @param sizes the bytes of each length.
 * @param most of all together.
 */
function roomMaker(
  device: Device,
  memories: readonly ReturnType<typeof openMemory>[],
  sizes: readonly number[],
  most: number,
) {
  let held = 0;
  return (length: number): void => {
    for (const [other, { free, drop }] of memories.entries()) {
      for (let left = free; left > 0 && held + sizes[length]! > most; left--) {
        for (const tensor of drop()) device.free(tensor);
        held -= sizes[other]!;
      }
    }
    held += sizes[length]!;
  };
}

/** The memory of micro-batches in flight, reused after they end. */
function openPlaces(
  device: Device,
  parts: InFlightParts,
  options: StageOptions,
) {
  const { slices, compiled, lengths, parameters, lossScale, pool } = parts;
  const { longestSlots } = options, isOwn = lengths !== undefined && longestSlots !== undefined;
  const kindOf = (slice: number, length: number) => isOwn ? length : slice;
  let bytes = 0, peak = 0;
  const counted = <T>(allocate: () => T): T => {
    const held = device.allocatedBytes, result = allocate();
    bytes += device.allocatedBytes - held;
    peak = Math.max(peak, bytes);
    return result;
  };
  const shared = counted(() => allocateShared(device, parts, options));
  const memory = { parts, options, shared };
  const prepareMasks = openMasks(device, parts, shared);
  const kinds = lengths && !isOwn ? [0] : [...slices.keys()];
  /** The memory of each slice, or of each length if it has its own. */
  const slots = kinds.map((kind) =>
    openMemory(
      device,
      (own): Place => (
        { memory: allocateActivations(own, memory, kind), slots: new Map(), dropout: undefined }
      ),
      pool?.slices[kind],
    )
  );
  const backwards = (lengths ? [0] : kinds).map((slice) =>
    openMemory(
      device,
      (own): BackwardPlace => allocateBackward(own, memory, slice),
      pool?.backwards[slice],
    )
  );
  const sizes = isOwn ? bytesOfLengths(device.hasFreeViews, memory) : [];
  const makeRoom = roomMaker(device, slots, sizes, (longestSlots ?? 0) * (sizes[0] ?? 0));
  return {
    get bytes() {
      return peak;
    },
    take(slice: number, length: number): Taken<Place> {
      const kind = kindOf(slice, length), places = slots[kind]!;
      return counted(() => {
        if (isOwn && places.free === 0) makeRoom(kind);
        return places.take();
      });
    },
    /** Prefers memory to which the slot is bound, to bind few. */
    takeBackward: (slice: number, slot: Slot): Taken<BackwardPlace> =>
      counted(() => backwards[slice]!.take((value) => slot.backwards.has(value))),
    give(slice: number, { place, backward, length }: Live): void {
      slots[kindOf(slice, length)]!.give(place);
      if (backward) backwards[slice]!.give(backward);
    },
    allocateContext: () => counted(() => allocateContext(device, parts, options)),
    bind: (slice: number, { place, context, version, length }: Omit<Live, "slot">): Slot =>
      bindSlot(compiled[slice + length]!, place.value.memory[isOwn ? 0 : length]!, options, {
        parameters: parameters[version]!,
        lossScale,
        context: context.ports,
        again: gradientsOf(shared, slice + length).again,
        prepareMasks: (layer) => prepareMasks(slice + length, layer, place.value.dropout),
      }),
  };
}
