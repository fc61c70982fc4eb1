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

import type { Device, Tensor } from "../../devices/device.ts";
import type { DropoutKey } from "../../layers/dropout.ts";
import {
  type Activations,
  allocateActivations,
  allocateContext,
  allocateShared,
  type Ports,
} from "./activations.ts";
import type { StageSkip } from "../../compile/stage_program.ts";
import type { Slicing } from "../../layers/batch.ts";
import { bindSlot, type ParameterPorts, type Slot, type StageLayer } from "./slot.ts";
import { openMasks } from "./masks.ts";
import type { StageOptions } from "../stage_options.ts";

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
export interface InFlightParts {
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
