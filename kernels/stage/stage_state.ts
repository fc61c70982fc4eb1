/**
 * What goes in and out of a stage by name: weights, moments and gradients, in FP32 on the host.
 *
 * @module
 */

import type { Device, MessageArray } from "../devices/device.ts";
import type { Tie } from "../layers/layer.ts";
import { elementCount } from "../graph/shapes.ts";
import { toStorage } from "../layers/precision.ts";
import { MOMENTS, type OptimizerOptions } from "../optimizer/optimizer_options.ts";
import { type FlatState, readStateInto, writeState } from "../optimizer/flat_state.ts";
import type { ParameterStore } from "../optimizer/parameters.ts";
import { type FlatRange, partOf } from "../optimizer/flat_tensor.ts";
import type { FrozenWeights } from "./frozen.ts";

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
