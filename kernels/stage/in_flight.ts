/**
 * The micro-batches in flight on a stage: the memory of each, and its runs with the weights that it
 * is for.
 *
 * Memory is allocated when first needed and used again, so a run in a steady state allocates nothing.
 *
 * [Note: slices in flight] Where sequences are cut into S slices, slice s of micro-batch m is in flight
 * by the number m·S + s, with memory of its own: that of another slice may have other sizes. Beside it
 * a micro-batch has a context, what its slices keep for each other, from the F of its first slice until
 * none of them is in flight. Runs are bound to both, once for each pair that meets.
 *
 * @module
 */

import type { Slicing } from "../batch.ts";
import { type NamedProgram, PORTS, type StageSkip } from "../compile/programs.ts";
import { CHANCE_MAX } from "../devices/cpu/simd.ts";
import type { Device, Kernel, Run, Tensor } from "../devices/device.ts";
import { elementCount } from "../graph/shapes.ts";
import { type DropoutKey, openMask } from "../layers/dropout.ts";
import {
  type ActivationOptions,
  type Activations,
  allocateActivations,
  allocateContext,
  allocateShared,
  type Ports,
  segmentsOf,
  type SharedActivations,
} from "./activations.ts";
import type { StageOptions } from "./options.ts";
import type { ParameterStore } from "./parameters.ts";

/** The parts of the backward pass: B whole, I for the input, W for the weights. */
export type BackwardKind = "B" | "I" | "W";

/** A layer of a stage, compiled. */
export interface StageLayer extends NamedProgram {
  /** Its models, as far as they exist and will be asked for. */
  readonly kernels:
    & { readonly forward: Kernel; readonly overwrites: readonly Kernel[] }
    & Partial<Record<BackwardKind, Kernel>>;
}

/** The backward of a segment of layers. */
interface SegmentBackward {
  /** Forwards that compute its activations again; one array for all kinds of backward. */
  readonly again: readonly Run[];
  /** What writes over activations; it runs once after they were computed. */
  readonly overwrites: readonly Run[];
  /** Last layer first. */
  readonly runs: readonly Run[];
}

/** A micro-batch in flight. */
export interface Slot extends Activations {
  /** First layer first. */
  readonly forward: readonly Run[];
  /** {@linkcode SegmentBackward.again} of the last segment, whose activations F leaves behind. */
  readonly fresh: readonly Run[];
  /** Last segment first. */
  readonly backward: Readonly<Record<BackwardKind, readonly SegmentBackward[]>>;
}

/** For each layer its parameters and their gradients, by port. */
type ParameterPorts = readonly Readonly<Record<string, Tensor>>[];

/** The parameters of a stage, in one version of its weights, where its layers look for them. */
export function parameterPorts(
  layers: readonly StageLayer[],
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

/** Binds the runs of one micro-batch, or of one slice of its sequences. */
function bindSlot(
  layers: readonly StageLayer[],
  activations: Activations,
  options: ActivationOptions,
  shared: {
    readonly parameters: ParameterPorts;
    readonly lossScale: Tensor;
    /** For each layer what the slices of the micro-batch keep for each other. */
    readonly context: readonly Ports[];
    /** See {@linkcode SharedActivations.again}. */
    readonly again: Ports;
    /** Has the masks of a layer ready. */
    readonly prepareMasks: (layer: number) => void;
  },
): Slot {
  const isAgain = options.recomputeInterval !== undefined;
  const bound = layers.map(({ kernels, program }, i) => {
    const lossScale = { [PORTS.lossScale]: shared.lossScale };
    const own = activations.ports[i]!;
    const inPlace = Object.fromEntries(
      program.saved.map(({ name }) => [PORTS.overwritten(name), own[name]!]),
    );
    const context = shared.context[i];
    const tensors = { ...shared.parameters[i], ...own, ...inPlace, ...lossScale, ...context };
    const { masks = [] } = program;
    const bindRun = (kernel: Kernel, outputs: Ports = {}): Run => {
      const run = bind(kernel, tensors, { ...tensors, ...outputs });
      if (!masks.some(({ name }) => kernel.inputs.includes(name))) return run;
      return () => {
        shared.prepareMasks(i);
        return run();
      };
    };
    const runOf = (kernel: Kernel | undefined) => kernel && bindRun(kernel);
    // With an interval, W cannot read what I has left: it is B again.
    const { forward, overwrites, B, I, W } = kernels, whole = runOf(B);
    const addsAgain = I !== undefined && B?.outputs.some((name) => name in shared.again);
    return {
      forward: bindRun(forward),
      overwrites: overwrites.map((kernel) => bindRun(kernel)),
      B: whole,
      I: runOf(I),
      W: isAgain ? (addsAgain ? bindRun(B!, shared.again) : whole) : runOf(W),
    };
  });
  const forward = bound.map((runs) => runs.forward);
  const segments = segmentsOf(layers, options.recomputeInterval).map(({ from, to }) => {
    // The output of a segment is kept, or nothing reads it: a last layer that saves nothing rests.
    const end = layers[to - 1]!.program.saved.length > 0 ? to : to - 1;
    return { from, to, again: isAgain ? forward.slice(from, end) : [] };
  });
  const firstTrained = layers.findIndex(({ program }) => program.models.weight);
  const backward = (kind: BackwardKind) =>
    segments.toReversed().flatMap(({ from, to, again }): SegmentBackward[] => {
      if (kind === "W" && (firstTrained < 0 || to <= firstTrained)) return [];
      const runs = bound.slice(from, to).reverse().map((one) => one[kind]);
      // Without an interval, W reads what I has written over.
      const isOver = kind === "W" && !isAgain;
      const overwrites = isOver ? [] : bound.slice(from, to).flatMap((one) => one.overwrites);
      return [{ again, overwrites, runs: runs.filter((run) => run !== undefined) }];
    });
  return {
    ...activations,
    forward,
    fresh: segments.at(-1)!.again,
    backward: { B: backward("B"), I: backward("I"), W: backward("W") },
  };
}

/** Binds a kernel to the tensors that its inputs and outputs name. */
function bind(kernel: Kernel, inputs: Ports, outputs: Ports): Run {
  const pick = (names: readonly string[], tensors: Ports) =>
    Object.fromEntries(names.map((name) => [name, tensors[name]!]));
  return kernel.bind(pick(kernel.inputs, inputs), pick(kernel.outputs, outputs));
}

/** Computes masks. */
interface Masks {
  /**
   * Leaves the masks of a layer where its models read them.
   *
   * @param key of the micro-batch; without one nothing is left out.
   */
  prepare(slice: number, layer: number, key: DropoutKey | undefined): void;
}

/** Opens the masks of a stage's layers, slice by slice, in the memory that all micro-batches share. */
function openMasks(
  device: Device,
  slices: readonly (readonly NamedProgram[])[],
  { ports }: SharedActivations,
  slicing: Slicing | undefined,
): Masks {
  const pieces = new WeakMap<Tensor, readonly Tensor[]>();
  const piecesOf = (mask: Tensor) => {
    const known = pieces.get(mask) ?? cut(device, mask);
    pieces.set(mask, known);
    return known;
  };
  let scratch = new Float32Array(0), prepared: string | undefined;
  return {
    prepare(slice, layer, key) {
      const label = JSON.stringify([slice, layer, key]);
      if (label === prepared) return;
      prepared = label;
      const { name, program: { masks = [] } } = slices[slice]![layer]!;
      const part = slicing &&
        { index: slice, count: slicing.slices, samples: slicing.samples };
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
    },
  };
}

/** The parts in which a tensor is written. */
function cut(device: Device, tensor: Tensor): Tensor[] {
  const length = elementCount(tensor.shape);
  if (!device.hasFreeViews) return [tensor];
  return Array.from({ length: Math.ceil(length / CHANCE_MAX) }, (_, i) => {
    const from = i * CHANCE_MAX;
    return device.view(tensor, from, [Math.min(CHANCE_MAX, length - from)]);
  });
}

/** The micro-batches in flight, or slices of them, by their numbers. */
export interface InFlight {
  /** How many there are. */
  readonly count: number;
  /** The versions of the weights that they use. */
  readonly versions: Set<number>;
  /** Bytes of all activations, those of micro-batches that have ended too. */
  readonly bytes: number;
  /** Whether a micro-batch is in flight. */
  has(microBatch: number): boolean;
  /**
   * Lets a micro-batch begin, with one version of the weights, and what keys its dropout.
   *
   * @throws {RangeError} when it is a slice, and not the next one of its micro-batch.
   */
  begin(microBatch: number, version: number, dropout: DropoutKey | undefined): Slot;
  /**
   * The runs of a micro-batch.
   *
   * @throws {RangeError} when it is not in flight.
   */
  slotOf(microBatch: number): Slot;
  /**
   * Gives the memory of a micro-batch to the next one.
   *
   * @throws {RangeError} when it is not in flight.
   */
  end(microBatch: number): void;
}

/** The memory of one micro-batch or slice, and its runs. */
interface Place {
  readonly memory: Activations;
  /** For each context that it met the runs with each version of the weights that it was for. */
  readonly slots: Map<SharedContext, Slot[]>;
  /** Of the micro-batch that is there. */
  dropout: DropoutKey | undefined;
}

/** What the slices of a micro-batch keep for each other, for each layer. */
interface SharedContext {
  readonly ports: readonly Ports[];
  /** Slices that have begun, and those that are in flight. */
  begun: number;
  live: number;
}

/** A micro-batch or slice that is in flight. */
interface Live {
  readonly place: Place;
  readonly context: SharedContext;
  readonly version: number;
}

/** What a stage has that micro-batches in flight share. */
interface InFlightParts {
  /** For each slice of a sequence the layers; of a whole one once. */
  readonly layers: readonly (readonly StageLayer[])[];
  readonly slicing: Slicing | undefined;
  /** What crosses its border by name. */
  readonly skips: readonly StageSkip[] | undefined;
  /** For each version of the weights, for each layer its parameters by port. */
  readonly parameters: readonly ParameterPorts[];
  readonly lossScale: Tensor;
}

/** Allocates what all micro-batches of a stage share; none is in flight. */
export function openInFlight(
  device: Device,
  parts: InFlightParts,
  options: StageOptions,
): InFlight {
  const slices = parts.layers.length, places = openPlaces(device, parts, options);
  const contexts = openContexts(slices, places.allocateContext);
  let live = new Map<number, Live>();
  const find = (microBatch: number) => {
    const one = live.get(microBatch);
    if (one) return one;
    throw new RangeError(
      `Cannot run backward: micro-batch ${microBatch} must have had its F here`,
    );
  };
  return {
    get count() {
      return live.size;
    },
    get versions() {
      return new Set([...live.values()].map(({ version }) => version));
    },
    get bytes() {
      return places.bytes;
    },
    has: (microBatch) => live.has(microBatch),
    begin(microBatch, version, dropout) {
      const slice = microBatch % slices, context = contexts.begin(microBatch);
      const place = places.take(slice);
      place.dropout = dropout;
      const one = { place, context, version };
      live.set(microBatch, one);
      const slots = place.slots.get(context) ?? [];
      place.slots.set(context, slots);
      return slots[version] ??= places.bind(slice, one);
    },
    slotOf(microBatch) {
      const { place, context, version } = find(microBatch);
      return place.slots.get(context)![version]!;
    },
    end(microBatch) {
      places.give(microBatch % slices, find(microBatch).place);
      live.delete(microBatch);
      contexts.end(microBatch);
      // A table of a Map refers to those that take its place: one that is old keeps all of them.
      live = new Map(live);
    },
  };
}

/** The memory of what is in flight, which the next ones get when it has ended. */
function openPlaces(
  device: Device,
  { layers, slicing, skips, parameters, lossScale }: InFlightParts,
  options: StageOptions,
) {
  const free: Place[][] = layers.map(() => []);
  let bytes = 0;
  const counted = <T>(allocate: () => T): T => {
    const held = device.allocatedBytes, result = allocate();
    bytes += device.allocatedBytes - held;
    return result;
  };
  const parts = { slices: layers, skips };
  const shared = counted(() => allocateShared(device, parts, options));
  const masks = openMasks(device, layers, shared, slicing);
  return {
    get bytes() {
      return bytes;
    },
    take: (slice: number): Place =>
      free[slice]!.pop() ?? {
        memory: counted(() => allocateActivations(device, parts, options, shared, slice)),
        slots: new Map(),
        dropout: undefined,
      },
    give: (slice: number, place: Place) => void free[slice]!.push(place),
    allocateContext: () => counted(() => allocateContext(device, parts, options)),
    bind: (slice: number, { place, context, version }: Live) =>
      bindSlot(layers[slice]!, place.memory, options, {
        parameters: parameters[version]!,
        lossScale,
        context: context.ports,
        again: shared.again,
        prepareMasks: (layer) => masks.prepare(slice, layer, place.dropout),
      }),
  };
}

/** The contexts of the micro-batches of which a slice is in flight. */
function openContexts(slices: number, allocate: () => readonly Ports[]) {
  const free: SharedContext[] = [];
  let live = new Map<number, SharedContext>();
  const sequenceOf = (number: number) => Math.floor(number / slices);
  return {
    /** A slice begins, by its number. */
    begin(number: number): SharedContext {
      const sequence = sequenceOf(number), slice = number % slices;
      const known = live.get(sequence), next = known?.begun ?? 0;
      if (slice !== next) {
        throw new RangeError(
          `Cannot run F: slices of micro-batch ${sequence} must run in order, ${next} next, received ${slice}`,
        );
      }
      const context = known ?? free.pop() ?? { ports: allocate(), begun: 0, live: 0 };
      context.begun++;
      context.live++;
      if (!known) live.set(sequence, context);
      return context;
    },
    end(number: number): void {
      const sequence = sequenceOf(number), context = live.get(sequence)!;
      if (--context.live > 0) return;
      context.begun = 0;
      live.delete(sequence);
      free.push(context);
      live = new Map(live);
    },
  };
}
