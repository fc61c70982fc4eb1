/**
 * A stage: a contiguous slice of a model's layers, compiled and bound on one device.
 *
 * Activations live in *slots*, one for each micro-batch in flight: F fills a slot, B empties it.
 * Slots are made when first needed and used again, so a run in a steady state allocates nothing.
 *
 * @module
 */

import {
  type Activations,
  allocateActivations,
  allocateShared,
  type SharedActivations,
} from "./activations.ts";
import type { Device, MessageArray, Run, Tensor } from "../devices/device.ts";
import { type FrozenWeights, openFrozen } from "./frozen.ts";
import { type GradientNorms, openGradientNorms } from "../optimizer/gradient_norms.ts";
import type { Batch } from "../layers/layer.ts";
import { MOMENTS, openOptimizer, type Optimizer } from "../optimizer/optimizer.ts";
import { type Bucket, type FlatState, readState, writeState } from "../optimizer/parameters.ts";
import { toStorage } from "../layers/precision.ts";
import { type LayerProgram, PORTS } from "../layers/layer_program.ts";
import { type BackwardKind, bindSlot, type Slot, type StageLayer } from "./slot.ts";
import {
  allocateResident,
  checkStageOptions,
  countMemory,
  type Resident,
  type StageMemory,
  type StageOptions,
} from "./stage_memory.ts";
import { openWeightVersions, type WeightVersions } from "./weight_versions.ts";

export type { BackwardKind, StageLayer, StageOptions };

/** The layers of a stage as plain data: what a worker needs to compute it. */
export interface StageProgram {
  /** Distinct layer programs. */
  readonly programs: readonly LayerProgram[];
  /** The layers in order: which program each runs, and the prefix of its parameters' names. */
  readonly layers: readonly {
    readonly name: string;
    readonly prefix: string;
    readonly program: number;
  }[];
}

/** What F returns: activations for the next stage, or on the last stage the loss of each sample. */
export interface ForwardResult {
  /** The activations, Float16Array where the stage is FP16, or the losses, Float32Array. */
  readonly output: MessageArray;
  /** Whether these are losses. */
  readonly isLoss: boolean;
}

/** Names, weights and moments of a stage's parameters. */
export interface StageState {
  /** Weights by parameter name. */
  readonly weights: ReadonlyMap<string, Float32Array>;
  /** `${parameter}.${moment}`, for example `lm_head.weight.exp_avg`. */
  readonly moments: ReadonlyMap<string, Float32Array>;
}

/**
 * Compiles a stage and allocates its parameters, all zero until {@linkcode Stage.load}.
 *
 * @throws {RangeError} when the recompute interval or the bucket size is not a positive integer, or
 * the bucket is larger than the stage.
 * @throws {TypeError} when the precision is not that of the program.
 * @throws {Error} with the device's reason when it refuses a model.
 */
export async function openStage(
  device: Device,
  program: StageProgram,
  options: StageOptions,
): Promise<Stage> {
  checkStageOptions(program, options);
  const compiled: Pick<StageLayer, "program" | "kernels">[] = [];
  const isSplit = options.backward === "split";
  for (const one of program.programs) {
    const { forward, backward, input, weight } = one.models;
    const kernels: StageLayer["kernels"] = {
      forward: await device.compile(forward),
      ...options.backward !== "never" && backward && { B: await device.compile(backward) },
      ...isSplit && input && { I: await device.compile(input) },
      // With an interval, W is B again.
      ...isSplit && weight && !options.recomputeInterval && { W: await device.compile(weight) },
    };
    compiled.push({ program: one, kernels });
  }
  const layers = program.layers.map(({ prefix, program: index }) => {
    const one = compiled[index];
    if (!one) throw new RangeError(`Cannot open stage: program ${index} must exist`);
    return { prefix, ...one };
  });
  const resident = allocateResident(device, layers, options), { store } = resident;
  return new Stage(device, layers, resident, {
    frozen: openFrozen(device, resident.frozen, resident.precision),
    optimizer: await openOptimizer(device, store, options.optimizer, resident.optimizer),
    norms: await openGradientNorms(device, store, resident.norms),
  }, options);
}

/** The memory of one micro-batch, and its runs with each version of the weights that it was for. */
interface Place {
  readonly memory: Activations;
  readonly slots: Slot[];
}

/** A micro-batch in flight. */
interface InFlight {
  readonly place: Place;
  readonly slot: Slot;
  /** The buffer of its weights. */
  readonly version: number;
}

/** A stage on a device. Made by {@linkcode openStage}; calls must be awaited one after the other. */
export class Stage {
  readonly #device: Device;
  readonly #layers: readonly StageLayer[];
  readonly #resident: Resident;
  readonly #frozen: FrozenWeights;
  readonly #optimizer: Optimizer;
  readonly #norms: GradientNorms;
  /** For each version of the weights, for each layer its parameters by port. */
  readonly #parameterTensors: Readonly<Record<string, Tensor>>[][];
  readonly #versions: WeightVersions;
  readonly #options: StageOptions;
  readonly #shared: SharedActivations;
  /** What has filled the shared activations: a segment's `again` of one slot. */
  #fresh: readonly Run[] | undefined;
  /** What slots and their shared activations take. */
  #activationBytes: number;
  readonly #free: Place[] = [];
  /** By micro-batch. */
  readonly #live: (InFlight | undefined)[] = [];

  /** Use {@linkcode openStage}. */
  constructor(
    device: Device,
    layers: readonly StageLayer[],
    resident: Resident,
    parts: { frozen: FrozenWeights; optimizer: Optimizer; norms: GradientNorms },
    options: StageOptions,
  ) {
    const { store } = resident, { frozen, optimizer, norms } = parts;
    this.#device = device;
    this.#layers = layers;
    this.#resident = resident;
    this.#frozen = frozen;
    this.#options = options;
    this.#optimizer = optimizer;
    this.#norms = norms;
    const byName = new Map(store.parameters.map((parameter) => [parameter.name, parameter]));
    this.#versions = openWeightVersions(store.versions.length);
    this.#parameterTensors = store.versions.map((_, version) =>
      layers.map(({ prefix, program }) =>
        Object.fromEntries(program.parameters.flatMap(({ name }) => {
          const fixed = frozen.tensors.get(prefix + name);
          if (fixed) return [[PORTS.parameter(name), fixed]];
          const { weights, gradient } = byName.get(prefix + name)!;
          return [
            [PORTS.parameter(name), weights[version]!],
            [PORTS.accumulator(name), gradient],
            [PORTS.gradient(name), gradient],
          ];
        }))
      )
    );
    const held = device.allocatedBytes;
    this.#shared = allocateShared(device, layers.map(({ program }) => program), options);
    this.#activationBytes = device.allocatedBytes - held;
  }

  /** Whether the stage ends with the loss. */
  get isLast(): boolean {
    return this.#layers.at(-1)!.program.isLoss;
  }

  /** Micro-batches whose activations are held now. */
  get liveActivations(): number {
    return this.#inUse().length;
  }

  /** Versions of the weights that are in use now: the newest, and those of micro-batches in flight. */
  get weightVersions(): number {
    return this.#usedVersions().add(this.#versions.newest).size;
  }

  #usedVersions(): Set<number> {
    return new Set(this.#inUse().map(({ version }) => version));
  }

  #inUse(): InFlight[] {
    return this.#live.filter((one) => one !== undefined);
  }

  /** The buckets of the optimizer: ranges of the flat gradients, in elements. */
  get buckets(): readonly Bucket[] {
    return this.#resident.store.buckets;
  }

  /** Where the gradient of a parameter lies in the flat gradients, in elements. */
  rangeOf(parameter: string): { readonly offset: number; readonly length: number } {
    const range = this.#resident.store.ranges.get(parameter);
    if (range) return range;
    throw new RangeError(`Cannot find "${parameter}": it must be a parameter of the stage`);
  }

  /**
   * F: runs the layers for one micro-batch and keeps its activations until B (or W).
   *
   * @param input output of the stage before; absent on the first stage.
   * @param fields the micro-batch; fields that no layer of the stage reads are ignored.
   * @param into an array for the output, such as one that came back empty.
   * @param age which weights F and the backward use: 0 for the newest, 1 for those before the last
   * update; what is older is only kept for micro-batches in flight.
   * @throws {TypeError} when a field is missing.
   * @throws {RangeError} when the micro-batch is in flight already, an array has a wrong length, or
   * such old weights are not kept.
   */
  async forward(
    microBatch: number,
    input: MessageArray | undefined,
    fields: Batch,
    into?: MessageArray,
    age = 0,
  ): Promise<ForwardResult> {
    if (this.#live[microBatch]) {
      throw new RangeError(`Cannot run F: micro-batch ${microBatch} must not be in flight already`);
    }
    for (const { name } of this.#layers.flatMap(({ program }) => program.fields)) {
      if (fields[name]) continue;
      throw new TypeError(`Cannot run F: the micro-batch must have the field "${name}"`);
    }
    const version = this.#versions.at(age), place = this.#free.pop() ?? this.#createPlace();
    const slot = place.slots[version] ??= this.#bind(place.memory, version);
    this.#live[microBatch] = { place, slot, version };
    if (slot.input) this.#device.write(slot.input, input!);
    for (const [name, tensor] of Object.entries(slot.fields)) {
      this.#device.write(tensor, fields[name]!);
    }
    this.#fresh = undefined;
    for (const run of slot.forward) await run();
    this.#fresh = slot.fresh;
    const output = await this.#device.read<MessageArray>(slot.output, into);
    return { output, isLoss: this.isLast };
  }

  /** Drops the activations of a micro-batch that gets no backward, as in an evaluation. */
  drop(microBatch: number): void {
    this.#free.push(this.#inFlight(microBatch).place);
    this.#live[microBatch] = undefined;
  }

  /**
   * B, I or W of one micro-batch. B and W add to the gradients of the weights and release the
   * activations.
   *
   * @param gradient of the stage's output, for B and I on all stages but the last.
   * @param lossScale factor of the loss, on the last stage: one over the predictions of the step.
   * @returns the gradient of the stage's input, from B and I on all stages but the first.
   * @throws {RangeError} when the micro-batch has no activations here.
   */
  async backward(
    microBatch: number,
    kind: BackwardKind,
    gradient: MessageArray | undefined,
    lossScale: number,
    into?: MessageArray,
  ): Promise<MessageArray | undefined> {
    const { slot } = this.#inFlight(microBatch);
    if (kind !== "W") {
      if (this.isLast) this.#device.write(this.#resident.lossScale, Float32Array.of(lossScale));
      else this.#device.write(slot.gradients.at(-1)!, gradient!);
    }
    for (const { again, runs } of slot.backward[kind]) {
      // What F, or I, has just left there need not be computed again.
      const missing = this.#fresh === again ? [] : again;
      this.#fresh = undefined;
      for (const run of [...missing, ...runs]) await run();
      this.#fresh = again;
    }
    if (kind !== "I") this.drop(microBatch);
    const inputGradient = slot.gradients[0];
    if (kind === "W" || !inputGradient) return undefined;
    return await this.#device.read<MessageArray>(inputGradient, into);
  }

  #inFlight(microBatch: number): InFlight {
    const one = this.#live[microBatch];
    if (one) return one;
    throw new RangeError(
      `Cannot run backward: micro-batch ${microBatch} must have had its F here`,
    );
  }

  #createPlace(): Place {
    const programs = this.#layers.map(({ program }) => program);
    const held = this.#device.allocatedBytes;
    const memory = allocateActivations(this.#device, programs, this.#options, this.#shared);
    this.#activationBytes += this.#device.allocatedBytes - held;
    return { memory, slots: [] };
  }

  #bind(memory: Activations, version: number): Slot {
    return bindSlot(this.#layers, memory, this.#options, {
      parameters: this.#parameterTensors[version]!,
      lossScale: this.#resident.lossScale,
    });
  }

  /** Sets the gradients to zero, before the first B of a step. */
  zeroGradients(): void {
    this.#device.zero(this.#resident.store.gradients);
  }

  /** The sum of squares of each parameter's gradient as it is stored, by full name. */
  gradientSquares(): Promise<Map<string, number>> {
    return this.#norms.squares();
  }

  /**
   * The vote of this stage before a step: whether every gradient is finite, and small enough that no
   * sum of `copies` such gradients overflows in the type in which they are stored, in any order, nor
   * the norm of the sum.
   */
  checkGradients(copies: number): Promise<boolean> {
    return this.#norms.areSafe(copies);
  }

  /** Copies a range of the flat gradients to the host, in an array that owns its buffer. */
  readGradients(offset: number, length: number): Promise<MessageArray> {
    return this.#device.read(this.#device.view(this.#resident.store.gradients, offset, [length]));
  }

  /** Sets a range of the flat gradients, such as the sum of all copies of the stage. */
  writeGradients(offset: number, values: Float32Array | Float16Array): void {
    const { gradients } = this.#resident.store;
    this.#device.write(this.#device.view(gradients, offset, [values.length]), values);
  }

  /**
   * Begins optimizer step `step`, counted from 1, before the first {@linkcode stepBucket}. Of a
   * stage with several versions of its weights, the next F comes after the last bucket.
   *
   * @param gradientScale factor of every gradient: below 1 where the norm is clipped.
   * @throws {RangeError} when all of several versions of the weights are in use.
   */
  beginStep(step: number, learningRate: number, gradientScale: number): void {
    const from = this.#versions.newest, to = this.#versions.advance(this.#usedVersions());
    this.#optimizer.begin(step, learningRate, gradientScale, { from, to });
  }

  /** A whole optimizer step: every bucket. */
  async optimize(step: number, learningRate: number, gradientScale = 1): Promise<void> {
    this.beginStep(step, learningRate, gradientScale);
    for (let i = 0; i < this.buckets.length; i++) await this.stepBucket(i);
  }

  /** Steps the optimizer on one bucket of {@linkcode buckets}. */
  stepBucket(index: number): Promise<void> {
    return this.#optimizer.stepBucket(index);
  }

  /**
   * Sets weights and moments by name; moments that are not given stay as they are.
   *
   * @throws {TypeError} when a weight is missing.
   * @throws {RangeError} when an array has a wrong length.
   */
  load(state: StageState): void {
    const weightOf = (name: string) => {
      const values = state.weights.get(name);
      if (values) return values;
      throw new TypeError(`Cannot load stage: the weight "${name}" must be given`);
    };
    for (const name of this.#frozen.tensors.keys()) this.#frozen.write(name, weightOf(name));
    const { store: { parameters, ranges, master } } = this.#resident;
    for (const { name, weights } of parameters) {
      const weight = weights[this.#versions.newest]!;
      const values = weightOf(name), range = ranges.get(name)!;
      this.#device.write(weight, toStorage(weight.dtype, values));
      if (master) writeState(this.#device, master, range, values);
      for (const [moment, array] of this.#moments()) {
        const kept = state.moments.get(`${name}.${moment}`);
        if (kept) writeState(this.#device, array, range, kept);
      }
    }
  }

  /** Copies FP32 weights and moments to the host; frozen weights have no moments. */
  async save(): Promise<StageState> {
    const state = {
      weights: new Map<string, Float32Array>(),
      moments: new Map<string, Float32Array>(),
    };
    for (const name of this.#frozen.tensors.keys()) {
      state.weights.set(name, await this.#frozen.read(name));
    }
    const { store: { ranges, versions, master = versions[this.#versions.newest]! } } =
      this.#resident;
    for (const [name, range] of ranges) {
      state.weights.set(name, await readState(this.#device, master, range));
      for (const [moment, array] of this.#moments()) {
        state.moments.set(`${name}.${moment}`, await readState(this.#device, array, range));
      }
    }
    return state;
  }

  /** The moments of the optimizer with their names. */
  #moments(): (readonly [string, FlatState])[] {
    const { store } = this.#resident, names = MOMENTS[this.#options.optimizer.kind];
    return names.map((name, i) => [name, store.moments[i]!]);
  }

  /** Copies the accumulated gradients to the host in FP32, by full name. */
  async gradients(): Promise<Map<string, Float32Array>> {
    const gradients = new Map<string, Float32Array>();
    for (const { name, gradient } of this.#resident.store.parameters) {
      gradients.set(name, new Float32Array(await this.#device.read<MessageArray>(gradient)));
    }
    return gradients;
  }

  /** Bytes that the stage holds, now and at its peak: what {@linkcode planMemory} has foretold. */
  get memory(): StageMemory {
    return countMemory(this.#resident, this.#activationBytes);
  }
}
