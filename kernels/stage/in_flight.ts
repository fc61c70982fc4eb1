/**
 * The micro-batches in flight on a stage: the memory of each, and its runs with the weights that it
 * is for.
 *
 * Memory is allocated when first needed and used again, so a run in a steady state allocates nothing.
 *
 * @module
 */

import type { Device, Tensor } from "../devices/device.ts";
import type { DropoutKey } from "../layers/dropout.ts";
import { type Activations, allocateActivations, allocateShared } from "./activations.ts";
import { bindSlot, type ParameterPorts, type Slot, type StageLayer } from "./slot.ts";
import { openMasks } from "./masks.ts";
import type { StageOptions } from "./stage_options.ts";

/** The micro-batches in flight, by their numbers. */
export interface InFlight {
  /** How many there are. */
  readonly count: number;
  /** The versions of the weights that they use. */
  readonly versions: Set<number>;
  /** Bytes of all activations, those of micro-batches that have ended too. */
  readonly bytes: number;
  /** Whether a micro-batch is in flight. */
  has(microBatch: number): boolean;
  /** Lets a micro-batch begin, with one version of the weights, and what keys its dropout. */
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

/** The memory of one micro-batch, and its runs with each version of the weights that it was for. */
interface Place {
  readonly memory: Activations;
  readonly slots: Slot[];
  /** Of the micro-batch that is there. */
  dropout: DropoutKey | undefined;
}

/** Allocates what all micro-batches of a stage share; none is in flight. */
export function openInFlight(
  device: Device,
  layers: readonly StageLayer[],
  options: StageOptions,
  resident: {
    /** For each version of the weights, for each layer its parameters by port. */
    readonly parameters: readonly ParameterPorts[];
    readonly lossScale: Tensor;
  },
): InFlight {
  let live = new Map<number, { readonly place: Place; readonly version: number }>();
  const free: Place[] = [];
  let bytes = 0;
  const counted = <T>(allocate: () => T): T => {
    const held = device.allocatedBytes, result = allocate();
    bytes += device.allocatedBytes - held;
    return result;
  };
  const shared = counted(() => allocateShared(device, layers, options));
  const createPlace = (): Place => ({
    memory: counted(() => allocateActivations(device, layers, options, shared)),
    slots: [],
    dropout: undefined,
  });
  const masks = openMasks(device, layers, shared);
  const bind = (place: Place, version: number) =>
    bindSlot(layers, place.memory, options, {
      parameters: resident.parameters[version]!,
      lossScale: resident.lossScale,
      prepareMasks: (layer) => masks.prepare(layer, place.dropout),
    });
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
      return bytes;
    },
    has: (microBatch) => live.has(microBatch),
    begin(microBatch, version, dropout) {
      const place = free.pop() ?? createPlace();
      place.dropout = dropout;
      live.set(microBatch, { place, version });
      return place.slots[version] ??= bind(place, version);
    },
    slotOf(microBatch) {
      const { place, version } = find(microBatch);
      return place.slots[version]!;
    },
    end(microBatch) {
      free.push(find(microBatch).place);
      live.delete(microBatch);
      // A table of a Map refers to those that take its place: one that is old keeps all of them.
      if (live.size === 0) live = new Map();
    },
  };
}
