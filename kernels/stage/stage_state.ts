/**
 * What goes in and out of a stage by name: weights, moments and gradients, in FP32 on the host.
 *
 * @module
 */

import type { Device, MessageArray } from "../devices/device.ts";
import type { Tie } from "../layers/layer.ts";
import { toStorage } from "../layers/precision.ts";
import { MOMENTS, type OptimizerOptions } from "../optimizer/optimizer_options.ts";
import { type FlatState, readState, writeState } from "../optimizer/flat_state.ts";
import type { ParameterStore } from "../optimizer/parameters.ts";
import type { FrozenWeights } from "./frozen.ts";

/** Something for each weight and moment of a stage's parameters, or of a model's. */
export interface StateOf<T> {
  /** Weights by parameter name. */
  readonly weights: ReadonlyMap<string, T>;
  /** `${parameter}.${moment}`, for example `lm_head.weight.exp_avg`. */
  readonly moments: ReadonlyMap<string, T>;
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

/** The moments of the optimizer with their names. */
function momentsOf({ store, optimizer }: StagePlace): (readonly [string, FlatState])[] {
  return MOMENTS[optimizer].map((name, i) => [name, store.moments[i]!]);
}

/** Sets weights, those of one version, and moments; see {@linkcode Stage.load}. */
export function writeStageState(place: StagePlace, version: number, state: StageState): void {
  const { device, store: { parameters, ranges, master }, frozen } = place;
  const weightOf = (name: string) => {
    const values = state.weights.get(name);
    if (values) return values;
    throw new TypeError(`Cannot load stage: the weight "${name}" must be given`);
  };
  for (const name of frozen.tensors.keys()) frozen.write(name, weightOf(name));
  for (const { name, weights } of parameters) {
    const weight = weights[version]!, values = weightOf(name), range = ranges.get(name)!;
    device.write(weight, toStorage(weight.dtype, values));
    if (master) writeState(device, master, range, values);
    for (const [moment, array] of momentsOf(place)) {
      const kept = state.moments.get(`${name}.${moment}`);
      if (kept) writeState(device, array, range, kept);
    }
  }
}

/** Copies weights, those of one version, and moments to the host; see {@linkcode Stage.save}. */
export async function readStageState(place: StagePlace, version: number): Promise<StageState> {
  const weights = new Map<string, Float32Array>(), moments = new Map<string, Float32Array>();
  const { device, store: { ranges, versions, master = versions[version]! }, frozen } = place;
  for (const name of frozen.tensors.keys()) weights.set(name, await frozen.read(name));
  for (const [name, range] of ranges) {
    weights.set(name, await readState(device, master, range));
    for (const [moment, array] of momentsOf(place)) {
      moments.set(`${name}.${moment}`, await readState(device, array, range));
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
