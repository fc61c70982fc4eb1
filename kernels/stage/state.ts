/**
 * Which buffer holds which version of a stage's weights.
 *
 * [Note: weight stashing] PipeDream (Narayanan et al. 2019, section 3.3) runs the backward of a
 * micro-batch with the weights of its forward, which are no longer the newest by then. An update
 * reads the newest weights and writes the next ones to a buffer that nobody in flight uses, so
 * nothing is ever copied.
 *
 * @module
 */

import { type NamedProgram, parametersOf, precisionOf } from "../compile/programs.ts";
import type { Device, MessageArray, Tensor } from "../devices/device.ts";
import { elementCount } from "../graph/shapes.ts";
import type { Tie } from "../layers/layer.ts";
import { type Precision, storageDtype, toStorage } from "../precision.ts";
import { allocateNorms, allocateSums, type NormMemory, type SumMemory } from "./gradients.ts";
import { allocateOptimizer, type OptimizerMemory } from "./optimizer.ts";
import { MOMENTS, type OptimizerOptions, type StageOptions } from "./options.ts";
import {
  createParameters,
  type FlatRange,
  type FlatState,
  type ParameterStore,
  partOf,
  readStateInto,
  writeState,
} from "./parameters.ts";

/** Frozen weights on a device, by full name. */
export interface FrozenWeights {
  /** What the models read. */
  readonly tensors: ReadonlyMap<string, Tensor>;
  /** Sets one, or a part of it from an element on. */
  write(name: string, values: Float32Array, from?: number): void;
  /** Copies what was written, bit for bit, from an element on. */
  read(name: string, from: number, into: Float32Array): Promise<void>;
}

/** Allocates frozen weights. */
export function openFrozen(
  device: Device,
  specs: readonly { readonly name: string; readonly shape: readonly number[] }[],
  precision: Precision,
): FrozenWeights {
  const dtype = storageDtype(precision);
  const tensors = new Map(specs.map(({ name, shape }) => [name, device.alloc(dtype, shape)]));
  // FP16 cannot give back what was written, so the host keeps it, as it were a master weight.
  const written = new Map(
    dtype === "f16"
      ? specs.map(({ name, shape }) => [name, new Float32Array(elementCount(shape))])
      : [],
  );
  return {
    tensors,
    write(name, values, from) {
      const part = partOf(device, tensors.get(name)!, values, from);
      device.write(part, toStorage(dtype, values));
      written.get(name)?.set(values, from);
    },
    async read(name, from, into) {
      const kept = written.get(name);
      if (kept) return into.set(kept.subarray(from, from + into.length));
      await device.read(device.view(tensors.get(name)!, from, [into.length]), into);
    },
  };
}

/** What a stage holds on its device from the start, beside frozen weights. */
export interface Resident {
  readonly precision: Precision;
  readonly store: ParameterStore;
  /** Full names and shapes of the weights that are not trained. */
  readonly frozen: readonly { readonly name: string; readonly shape: readonly number[] }[];
  readonly optimizer: OptimizerMemory;
  readonly norms: NormMemory;
  /** What adding gradients takes, where they are added on the device. */
  readonly sums: SumMemory | undefined;
  readonly lossScale: Tensor;
}

/** Allocates what a stage holds from the start. */
export function allocateResident(
  device: Pick<Device, "alloc" | "view" | "hasFreeViews">,
  layers: readonly NamedProgram[],
  { optimizer, bucketSize, offload = false, versions = 1, ...adding }: StageOptions,
): Resident {
  const precision = precisionOf(layers), parameters = parametersOf(layers);
  const store = createParameters(device, parameters.filter(({ frozen }) => !frozen), {
    moments: MOMENTS[optimizer.kind].length,
    precision,
    offload,
    versions,
    ...bucketSize && { bucketSize },
  });
  return {
    precision,
    store,
    frozen: parameters.filter(({ frozen }) => frozen),
    optimizer: allocateOptimizer(device, store, optimizer),
    norms: allocateNorms(device, store),
    sums: allocateSums(device, store, adding),
    lossScale: device.alloc("f32", []),
  };
}

/** Something for each weight and moment of a stage's parameters, or of a model's. */
export interface StateOf<T> {
  /** Weights by parameter name. */
  readonly weights: ReadonlyMap<string, T>;
  /** `${parameter}.${moment}`, for example `lm_head.weight.exp_avg`. */
  readonly moments: ReadonlyMap<string, T>;
}

/** Elements of a weight or moment, by the name that a {@linkcode StateOf} has for it. */
export interface TensorPart {
  /** The tensor. */
  readonly name: string;
  /** The first element. */
  readonly from: number;
  /** The element behind the last. */
  readonly to: number;
}

/** Names, weights and moments of a stage's parameters. */
export type StageState = StateOf<Float32Array>;

/**
 * A state with the weights and moments of aliases added, for stages to load: an alias has those of
 * the parameter that it is tied to, in the same memory.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { withAliases } from "@troupe/troupe/kernels";
 *
 * const state = { weights: new Map([["table", Float32Array.of(1)]]), moments: new Map() };
 * const { weights } = withAliases(state, [["table", "head"]]);
 * assert.deepEqual(weights.get("head"), Float32Array.of(1));
 * ```
 */
export function withAliases<T>(
  { weights, moments }: StateOf<T>,
  ties: readonly Tie[],
): StateOf<T> {
  const suffixes = Object.values(MOMENTS).flat().map((moment) => `.${moment}`);
  const added = (values: ReadonlyMap<string, T>, endings: readonly string[]) => {
    const pairs = ties.flatMap(([canonical, alias]) =>
      endings.map((ending) => [alias + ending, values.get(canonical + ending)] as const)
    );
    return new Map([...values, ...pairs.filter((pair) => pair[1] !== undefined) as [string, T][]]);
  };
  return { weights: added(weights, [""]), moments: added(moments, suffixes) };
}

/** Where the state of a stage lies. */
export interface StagePlace {
  readonly device: Device;
  readonly store: ParameterStore;
  readonly frozen: FrozenWeights;
  /** Which optimizer names the moments. */
  readonly optimizer: OptimizerOptions["kind"];
}

/** Where a weight or moment lies; a weight has no state of its own. */
interface TensorPlace {
  readonly state?: FlatState;
  readonly range: FlatRange;
}

function placeOf(place: StagePlace, name: string): TensorPlace {
  const found = findPlace(place, name);
  if (found) return found;
  throw new RangeError(
    `Cannot find "${name}": it must be a weight or a moment of the stage`,
  );
}

function findPlace({ store: { ranges, moments }, optimizer }: StagePlace, name: string) {
  const weight = ranges.get(name);
  if (weight) return { range: weight };
  const dot = name.lastIndexOf("."), range = ranges.get(name.slice(0, dot));
  const index = (MOMENTS[optimizer] as readonly string[]).indexOf(name.slice(dot + 1));
  return range && index >= 0 ? { state: moments[index]!, range } : undefined;
}

/** Sets weights, those of one version, and moments; see {@linkcode Stage.load}. */
export function writeStageState(place: StagePlace, version: number, state: StageState): void {
  for (const name of [...place.frozen.tensors.keys(), ...place.store.ranges.keys()]) {
    if (state.weights.has(name)) continue;
    throw new TypeError(`Cannot load stage: the weight "${name}" must be given`);
  }
  for (const [name, values] of [...state.weights, ...state.moments]) {
    if (place.frozen.tensors.has(name) || findPlace(place, name)) {
      writeTensor(place, version, name, values);
    }
  }
}

/** Sets one weight or moment; see {@linkcode Stage.write}. */
export function writeTensor(
  place: StagePlace,
  version: number,
  name: string,
  values: Float32Array,
  from?: number,
): void {
  const { device, store: { parameters, master }, frozen } = place;
  if (frozen.tensors.has(name)) return frozen.write(name, values, from);
  const { state, range } = placeOf(place, name);
  if (state === undefined) {
    const weight = parameters.find((one) => one.name === name)!.weights[version]!;
    device.write(partOf(device, weight, values, from), toStorage(weight.dtype, values));
  }
  const kept = state ?? master;
  if (kept) writeState(device, kept, partOfRange(range, values, from), values);
}

/** The same of a range. */
const partOfRange = (range: FlatRange, { length }: Float32Array, from?: number): FlatRange =>
  from === undefined ? range : { offset: range.offset + from, length };

/** Copies parts of weights and moments to the host; see {@linkcode Stage.read}. */
export async function readParts(
  place: StagePlace,
  version: number,
  parts: readonly TensorPart[],
): Promise<Float32Array<ArrayBuffer>> {
  const { device, store: { versions, master = versions[version]! }, frozen } = place;
  const all = new Float32Array(parts.reduce((sum, { from, to }) => sum + to - from, 0));
  let at = 0;
  for (const { name, from, to } of parts) {
    const into = all.subarray(at, at += to - from);
    if (frozen.tensors.has(name)) {
      await frozen.read(name, from, into);
      continue;
    }
    const { state = master, range } = placeOf(place, name);
    await readStateInto(device, state, range.offset + from, into);
  }
  return all;
}

/** Copies weights, those of one version, and moments to the host; see {@linkcode Stage.save}. */
export async function readStageState(place: StagePlace, version: number): Promise<StageState> {
  const weights = new Map<string, Float32Array>(), moments = new Map<string, Float32Array>();
  const read = (name: string, to: number) => readParts(place, version, [{ name, from: 0, to }]);
  for (const [name, { shape }] of place.frozen.tensors) {
    weights.set(name, await read(name, elementCount(shape)));
  }
  for (const [name, { length }] of place.store.ranges) {
    weights.set(name, await read(name, length));
    for (const moment of MOMENTS[place.optimizer]) {
      moments.set(`${name}.${moment}`, await read(`${name}.${moment}`, length));
    }
  }
  return { weights, moments };
}

/** Copies the accumulated gradients to the host, by full name. */
export async function readGradients(
  { device, store }: Pick<StagePlace, "device" | "store">,
): Promise<Map<string, Float32Array>> {
  const gradients = new Map<string, Float32Array>();
  for (const { name, gradient } of store.parameters) {
    gradients.set(name, new Float32Array(await device.read<MessageArray>(gradient)));
  }
  return gradients;
}

/** The versions of a stage's weights. */
export interface WeightVersions {
  /** The buffer of the newest weights. */
  readonly newest: number;
  /**
   * The buffer of the weights as they were so many updates ago.
   *
   * @throws {RangeError} when they are not kept.
   */
  at(age: number): number;
  /**
   * Makes a buffer that is not in use that of the newest weights: the newest of before where it is
   * the only one.
   *
   * @throws {RangeError} when all are in use.
   */
  advance(inUse: ReadonlySet<number>): number;
}

/** Opens `count` versions, of which only the first has been written. */
export function openWeightVersions(count: number): WeightVersions {
  /** Written buffers, the newest first. */
  let written = [0];
  const buffers = Array.from({ length: count }, (_, i) => i);
  return {
    get newest() {
      return written[0]!;
    },
    at(age) {
      const buffer = written[age];
      if (buffer !== undefined) return buffer;
      throw new RangeError(
        `Cannot use old weights: they must be at most ${
          written.length - 1
        } updates old, received ${age}`,
      );
    },
    advance(inUse) {
      if (count === 1) return 0;
      // The newest stays, to be the version before the next; else the oldest goes first.
      const oldestFirst = [
        ...buffers.filter((one) => !written.includes(one)),
        ...written.toReversed(),
      ];
      const free = oldestFirst.find((one) => one !== written[0] && !inUse.has(one));
      if (free === undefined) {
        throw new RangeError(
          `Cannot update weights: one of ${count} versions must be free, received all in use`,
        );
      }
      written = [free, ...written.filter((one) => one !== free)];
      return free;
    },
  };
}
