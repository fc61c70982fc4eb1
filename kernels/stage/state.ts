/**
 * State of a stage: its tensors, the versions of its weights, and weights and moments by name.
 *
 * [Note: weight stashing] PipeDream (Narayanan et al. 2019, section 3.3) runs the backward of a
 * micro-batch with the weights of its forward, which are no longer the newest by then. An update
 * reads the newest weights and writes the next ones to a buffer that no micro-batch in flight uses,
 * so weights are never copied.
 *
 * @module
 */

import {
  layersOf,
  type NamedProgram,
  parametersOf,
  precisionOf,
  type StageProgram,
} from "../compile/programs.ts";
import type { Allocator, Device } from "../devices/device.ts";
import { assertInput, checkPositive, refusal } from "../errors.ts";
import { elementCount } from "../graph/shapes.ts";
import type { Tie } from "../layers/layer.ts";
import { type Precision, storageDtype, toStorage } from "../precision.ts";
import { checkInterval } from "./activations.ts";
import { allocateNorms, allocateSums } from "./gradients.ts";
import { allocateOptimizer } from "./optimizer.ts";
import {
  AVERAGE,
  MOMENTS,
  momentsOf,
  type OptimizerOptions,
  type StageOptions,
} from "./options.ts";
import {
  createParameters,
  flatLength,
  type FlatRange,
  type FlatState,
  type NamedShapes,
  type ParameterStore,
  partOf,
} from "./parameters.ts";

/** Allocates frozen weights. */
export function openFrozen(device: Device, specs: NamedShapes, precision: Precision) {
  const dtype = storageDtype(precision);
  const tensors = new Map(specs.map(({ name, shape }) => [name, device.alloc(dtype, shape)]));
  // FP16 storage loses bits of the values that were written, so the host keeps them.
  const written = new Map(
    dtype === "f16"
      ? specs.map(({ name, shape }) => [name, new Float32Array(elementCount(shape))])
      : [],
  );
  return {
    /** Tensors that the models read, by full name. */
    tensors,
    /** Sets one weight, or a part of it from element `from`. */
    write(name: string, values: Float32Array, from?: number): void {
      const part = partOf(device, tensors.get(name)!, values, from);
      device.write(part, toStorage(dtype, values));
      written.get(name)?.set(values, from);
    },
    /** Copies one weight from element `from`, bit for bit as it was written. */
    async read(name: string, from: number, into: Float32Array): Promise<void> {
      const kept = written.get(name);
      if (kept) return into.set(kept.subarray(from, from + into.length));
      await device.read(device.view(tensors.get(name)!, from, [into.length]), into);
    },
  };
}

/** Frozen weights on a device. */
export type FrozenWeights = ReturnType<typeof openFrozen>;

/**
 * Checks options against a stage.
 *
 * @throws {RangeError} when the bucket or the recompute interval is not a positive integer, or the
 * bucket is larger than a trained stage.
 * @throws {TypeError} when the precision is not that of the program.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { ADAMW_DEFAULTS, compileModel, mlp } from "@troupe/troupe/kernels";
 *
 * const stage = compileModel(mlp({ inputs: 16, hidden: 32, layers: 1, classes: 4 }, 1), "none");
 * const options = { optimizer: ADAMW_DEFAULTS, backward: "whole", precision: "fp16" } as const;
 * assert.throws(() => checkStageOptions(stage, options), /that of its program, fp32, received fp16/);
 * ```
 */
export function checkStageOptions(program: StageProgram, options: StageOptions): void {
  checkInterval(options.recomputeInterval);
  const layers = layersOf(program), compiled = precisionOf(layers);
  const { precision = compiled, bucketSize } = options;
  const must = `precision must be that of its program, ${compiled}`;
  assertInput(precision === compiled, "open stage", must, precision, TypeError);
  if (bucketSize === undefined) return;
  checkPositive("open stage", { bucketSize });
  const trained = parametersOf(layers).filter(({ frozen }) => !frozen);
  const elements = flatLength(trained), fits = trained.length === 0 || bucketSize <= elements;
  const most = `bucketSize must be at most ${elements}, the elements of the stage`;
  assertInput(fits, "open stage", most, bucketSize);
}

/** Allocates the tensors of a stage except activations and frozen weights. */
export function allocateResident(
  device: Allocator,
  layers: readonly NamedProgram[],
  options: StageOptions,
) {
  const precision = precisionOf(layers), parameters = parametersOf(layers);
  const trained = parameters.filter(({ frozen }) => !frozen);
  const store = createParameters(device, trained, { ...options, precision });
  return {
    precision,
    store,
    /** Full names and shapes of the weights that are not trained. */
    frozen: parameters.filter(({ frozen }) => frozen),
    optimizer: allocateOptimizer(device, store, options.optimizer),
    norms: allocateNorms(device, store),
    /** Memory for adding gradients, where they are added on the device. */
    sums: allocateSums(device, store, options),
    lossScale: device.alloc("f32", []),
  };
}

/** Tensors that a stage allocates at the start, except frozen weights. */
export type Resident = ReturnType<typeof allocateResident>;

/** A value for each weight and moment of a stage's, or a model's, parameters. */
export interface StateOf<T> {
  /** Weights by parameter name. */
  readonly weights: ReadonlyMap<string, T>;
  /** `${parameter}.${moment}`, for example `lm_head.weight.exp_avg`. */
  readonly moments: ReadonlyMap<string, T>;
}

/** A range of elements of a weight or moment, by its name in {@linkcode StateOf}. */
export interface TensorPart {
  /** Name of the tensor. */
  readonly name: string;
  /** The first element. */
  readonly from: number;
  /** The end, exclusive. */
  readonly to: number;
}

/** Names, weights and moments of a stage's parameters. */
export type StageState = StateOf<Float32Array>;

/**
 * Adds the weights and moments of aliases to a state, so that stages can load it: an alias shares the
 * memory of the parameter that it is tied to.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const state = { weights: new Map([["table", Float32Array.of(1)]]), moments: new Map() };
 * const { weights } = withAliases(state, [["table", "head"]]);
 * assert.deepEqual(weights.get("head"), Float32Array.of(1));
 * ```
 */
export function withAliases<T>({ weights, moments }: StateOf<T>, ties: readonly Tie[]): StateOf<T> {
  const suffixes = [...Object.values(MOMENTS).flat(), AVERAGE].map((moment) => `.${moment}`);
  const added = (values: ReadonlyMap<string, T>, endings: readonly string[]) => {
    const pairs = ties.flatMap(([canonical, alias]) =>
      endings.map((ending) => [alias + ending, values.get(canonical + ending)] as const)
    );
    return new Map([...values, ...pairs.filter((pair) => pair[1] !== undefined) as [string, T][]]);
  };
  return { weights: added(weights, [""]), moments: added(moments, suffixes) };
}

/**
 * Returns the range of a weight or moment, and the flat state of a moment.
 *
 * @param optimizer has the moments.
 * @returns undefined if there is no trained weight, or moment of one, with this name.
 */
export function findTensor(
  { parameters, ranges, moments }: ParameterStore,
  optimizer: OptimizerOptions,
  name: string,
): { readonly range: FlatRange; readonly state?: FlatState } | undefined {
  const weight = ranges.get(name);
  if (weight) return { range: weight };
  const dot = name.lastIndexOf("."), own = name.slice(0, dot);
  const range = ranges.get(own);
  if (!range) return undefined;
  const { shape, moments: places } = parameters.find((one) => one.name === own)!;
  const index = momentsOf(optimizer, shape).find((one) => one.name === name.slice(dot + 1))?.index;
  if (index === undefined) return undefined;
  return { state: moments[index]!, range: places?.[index] ?? range };
}

/** The versions of a stage's weights, of which only the first has been written at the start. */
export class WeightVersions {
  /** Written buffers, the newest first. */
  #written = [0];

  /** @param count number of buffers. */
  constructor(private readonly count: number) {}

  /** Index of the buffer with the newest weights. */
  get newest(): number {
    return this.#written[0]!;
  }

  /**
   * Returns the index of the buffer with the weights before the last `age` updates.
   *
   * @throws {RangeError} when they are not kept.
   */
  at(age: number): number {
    const buffer = this.#written[age];
    if (buffer !== undefined) return buffer;
    const must = `they must be at most ${this.#written.length - 1} updates old`;
    throw refusal("use old weights", must, age);
  }

  /**
   * Makes an unused buffer the newest and returns its index; with one version it is the same buffer.
   *
   * @throws {RangeError} when all are in use.
   */
  advance(inUse: ReadonlySet<number>): number {
    if (this.count === 1) return 0;
    const written = this.#written, buffers = Array.from({ length: this.count }, (_, i) => i);
    // The newest is kept as the version before the next; of the others the oldest is taken.
    const oldestFirst = [
      ...buffers.filter((one) => !written.includes(one)),
      ...written.toReversed(),
    ];
    const free = oldestFirst.find((one) => one !== written[0] && !inUse.has(one));
    if (free === undefined) {
      throw refusal("update weights", `one of ${this.count} versions must be free`, "all in use");
    }
    this.#written = [free, ...written.filter((one) => one !== free)];
    return free;
  }
}
