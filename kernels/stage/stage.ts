/**
 * A stage: a contiguous slice of a model's layers on one device, and what it computes.
 *
 * Activations live in *slots*, one for each micro-batch in flight: F fills a slot, B empties it. Of a
 * sequence in S slices, slice s of micro-batch m is known by the number m·S + s.
 *
 * @module
 */

import type { Batch } from "../batch.ts";
import { type LayerProgram, slicesOf, type StageProgram } from "../compile/programs.ts";
import type { Device, Kernel, MessageArray, Passed, Run } from "../devices/device.ts";
import { type DeviceName, DEVICES } from "../devices/table.ts";
import type { DropoutKey } from "../layers/dropout.ts";
import { transientBytes } from "../onnx/scratch.ts";
import { type ActivationOptions, readPassed, writePassed } from "./activations.ts";
import { type Bounds, checkBounds, fieldBounds } from "./field_bounds.ts";
import {
  type GradientNorms,
  type GradientSums,
  openGradientNorms,
  openGradientSums,
} from "./gradients.ts";
import {
  type BackwardKind,
  type InFlight,
  openInFlight,
  parameterPorts,
  type Slot,
  type StageLayer,
} from "./in_flight.ts";
import { countMemory, planResident, type StageMemory } from "./memory.ts";
import { openOptimizer, type Optimizer, stepLengths, stepModel } from "./optimizer.ts";
import { checkStageOptions, type StageOptions } from "./options.ts";
import { type Bucket, readFlat, writeFlat, zeroFlat } from "./parameters.ts";
import {
  allocateResident,
  type FrozenWeights,
  openFrozen,
  openWeightVersions,
  readGradients,
  readParts,
  readStageState,
  type Resident,
  type StagePlace,
  type StageState,
  type TensorPart,
  type WeightVersions,
  writeStageState,
  writeTensor,
} from "./state.ts";

/** What F returns: activations for the next stage, or on the last stage the loss of each sample. */
export interface ForwardResult {
  /** The activations, Float16Array where the stage is FP16, or the losses, Float32Array. */
  readonly output: Passed;
  /** Whether these are losses. */
  readonly isLoss: boolean;
}

/** What a stage is made of. */
interface StageParts {
  readonly device: Device;
  readonly layers: readonly StageLayer[];
  readonly resident: Resident;
  readonly frozen: FrozenWeights;
  readonly optimizer: Optimizer;
  readonly norms: GradientNorms;
  readonly sums: GradientSums | undefined;
  readonly inFlight: InFlight;
  readonly options: StageOptions;
}

/** A stage on a device. Made by {@linkcode openStage}; calls must be awaited one after the other. */
export class Stage {
  /** What adds gradients on the device; undefined where their memory is the host's, which adds. */
  readonly sums: GradientSums | undefined;
  readonly #device: Device;
  readonly #layers: readonly StageLayer[];
  readonly #resident: Resident;
  readonly #optimizer: Optimizer;
  readonly #norms: GradientNorms;
  readonly #inFlight: InFlight;
  readonly #state: StagePlace;
  readonly #versions: WeightVersions;
  readonly #bounds: ReadonlyMap<string, Bounds>;
  /** What has filled the shared activations: a segment's `again` of one slot. */
  #fresh: readonly Run[] | undefined;

  /** Use {@linkcode openStage}. */
  constructor(
    { device, layers, resident, frozen, optimizer, norms, sums, inFlight, options }: StageParts,
  ) {
    this.#device = device;
    this.#layers = layers;
    this.#bounds = new Map(layers.flatMap(({ program }) => [...fieldBounds(program)]));
    this.#resident = resident;
    this.#optimizer = optimizer;
    this.#norms = norms;
    this.sums = sums;
    this.#inFlight = inFlight;
    const { store } = resident;
    this.#state = { device, store, frozen, optimizer: options.optimizer.kind };
    this.#versions = openWeightVersions(store.versions.length);
  }

  /** Whether the stage ends with the loss. */
  get isLast(): boolean {
    return this.#layers.at(-1)!.program.isLoss;
  }

  /** Micro-batches whose activations are held now. */
  get liveActivations(): number {
    return this.#inFlight.count;
  }

  /** Versions of the weights that are in use now: the newest, and those of micro-batches in flight. */
  get weightVersions(): number {
    return this.#inFlight.versions.add(this.#versions.newest).size;
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
   * @param input what other stages sent: the output of the stage before, and by their keys what they
   * gave by name; absent on the first stage.
   * @param fields the micro-batch; fields that no layer of the stage reads are ignored.
   * @param into arrays for the output, such as those that came back empty.
   * @param age which weights F and the backward use: 0 for the newest, 1 for those before the last
   * update; what is older is only kept for micro-batches in flight.
   * @param dropout keys what is left out in F and the backward; without it nothing is.
   * @throws {TypeError} when a field is missing.
   * @throws {RangeError} when the micro-batch is in flight already, an array has a wrong length or
   * names a row or class that is not there, or such old weights are not kept.
   */
  async forward(
    microBatch: number,
    input: Passed | undefined,
    fields: Batch,
    into?: Passed,
    age = 0,
    dropout?: DropoutKey,
  ): Promise<ForwardResult> {
    if (this.#inFlight.has(microBatch)) {
      throw new RangeError(`Cannot run F: micro-batch ${microBatch} must not be in flight already`);
    }
    for (const { name } of this.#layers.flatMap(({ program }) => program.fields)) {
      if (fields[name]) continue;
      throw new TypeError(`Cannot run F: the micro-batch must have the field "${name}"`);
    }
    for (const [name, bounds] of this.#bounds) checkBounds(name, fields[name]!, bounds);
    const slot = this.#inFlight.begin(microBatch, this.#versions.at(age), dropout);
    try {
      return await this.#compute(slot, input, fields, into);
    } catch (error) {
      this.drop(microBatch); // No backward can follow.
      throw error;
    }
  }

  async #compute(
    slot: Slot,
    input: Passed | undefined,
    fields: Batch,
    into?: Passed,
  ): Promise<ForwardResult> {
    writePassed(this.#device, slot.inputs, input);
    for (const [name, tensor] of Object.entries(slot.fields)) {
      this.#device.write(tensor, fields[name]!);
    }
    this.#fresh = undefined;
    for (const run of slot.forward) await run();
    this.#fresh = slot.fresh;
    const output = await readPassed(this.#device, slot.outputs, into);
    return { output, isLoss: this.isLast };
  }

  /**
   * R: computes again what F did not keep of a micro-batch, so that its backward need not. It lies in
   * memory that all micro-batches share: where anything else runs on this stage before that backward,
   * the backward computes it once more. With several segments it is the last one that is brought back,
   * and nothing where F kept all.
   *
   * @throws {RangeError} when the micro-batch has no activations here.
   */
  async recompute(microBatch: number): Promise<void> {
    const { fresh } = this.#inFlight.slotOf(microBatch);
    if (this.#fresh === fresh) return;
    this.#fresh = undefined;
    for (const run of fresh) await run();
    this.#fresh = fresh;
  }

  /** Drops the activations of a micro-batch that gets no backward, as in an evaluation. */
  drop(microBatch: number): void {
    this.#inFlight.end(microBatch);
  }

  /**
   * B, I or W of one micro-batch. B and W add to the gradients of the weights and release the
   * activations.
   *
   * @param gradient of the stage's output, and of what it takes or gives by name and later stages
   * use, for B and I on all stages but the last.
   * @param lossScale factor of the loss, on the last stage: one over the predictions of the step.
   * @returns the gradients of what the stage was sent, from B and I where it was sent any that has one.
   * @throws {RangeError} when the micro-batch has no activations here.
   */
  async backward(
    microBatch: number,
    kind: BackwardKind,
    gradient: Passed | undefined,
    lossScale: number,
    into?: Passed,
  ): Promise<Passed | undefined> {
    const slot = this.#inFlight.slotOf(microBatch);
    if (kind !== "W") {
      if (this.isLast) this.#device.write(this.#resident.lossScale, Float32Array.of(lossScale));
      writePassed(this.#device, slot.gradients.arriving, gradient);
    }
    for (const { again, overwrites, runs } of slot.backward[kind]) {
      // What F, or I, has just left there need not be computed again.
      const isFresh = this.#fresh === again;
      const missing = isFresh && kind === "W" ? [] : [...isFresh ? [] : again, ...overwrites];
      this.#fresh = undefined;
      for (const run of [...missing, ...runs]) await run();
      this.#fresh = again;
    }
    if (kind !== "I") this.drop(microBatch);
    const { leaving } = slot.gradients;
    if (kind === "W" || Object.keys(leaving).length === 0) return undefined;
    return await readPassed(this.#device, leaving, into);
  }

  /** Sets the gradients to zero, before the first B of a step. */
  zeroGradients(): void {
    zeroFlat(this.#device, this.#resident.store.gradients);
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
    return readFlat(this.#device, this.#resident.store.gradients, { offset, length });
  }

  /** Sets a range of the flat gradients, such as the sum of all copies of the stage. */
  writeGradients(offset: number, values: Float32Array | Float16Array): void {
    writeFlat(this.#device, this.#resident.store.gradients, offset, values);
  }

  /**
   * Begins optimizer step `step`, counted from 1, before the first {@linkcode stepBucket}. Of a
   * stage with several versions of its weights, the next F comes after the last bucket.
   *
   * @param gradientScale factor of every gradient: below 1 where the norm is clipped.
   * @throws {RangeError} when all of several versions of the weights are in use.
   */
  beginStep(step: number, learningRate: number, gradientScale: number): void {
    const from = this.#versions.newest, to = this.#versions.advance(this.#inFlight.versions);
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
    writeStageState(this.#state, this.#versions.newest, state);
  }

  /**
   * Sets one weight or moment, or a part of it: never more than that of a state must be on the host.
   *
   * @param from where the part begins in it; all of it is set unless given.
   * @throws {RangeError} when the stage has none of that name, or it has another length.
   */
  write(name: string, values: Float32Array, from?: number): void {
    writeTensor(this.#state, this.#versions.newest, name, values, from);
  }

  /**
   * Copies parts of FP32 weights and moments to the host, one after the other into one array that
   * owns its buffer.
   *
   * @throws {RangeError} when the stage has no tensor of such a name.
   */
  read(parts: readonly TensorPart[]): Promise<Float32Array<ArrayBuffer>> {
    return readParts(this.#state, this.#versions.newest, parts);
  }

  /** Copies FP32 weights and moments to the host; frozen weights have no moments. */
  save(): Promise<StageState> {
    return readStageState(this.#state, this.#versions.newest);
  }

  /** Copies the accumulated gradients to the host in FP32, by full name. */
  gradients(): Promise<Map<string, Float32Array>> {
    return readGradients(this.#state);
  }

  /** Bytes that the stage holds, now and at its peak: what {@linkcode planMemory} has foretold. */
  get memory(): StageMemory {
    return countMemory(this.#resident, this.#inFlight.bytes);
  }
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
  const slices = await compileLayers(device, program, options), layers = slices[0]!;
  const resident = allocateResident(device, layers, options), { store } = resident;
  const frozen = openFrozen(device, resident.frozen, resident.precision);
  const optimizer = await openOptimizer(device, store, options.optimizer, resident.optimizer);
  const norms = await openGradientNorms(device, store, resident.norms);
  const sums = resident.sums && openGradientSums(device, store, resident.sums);
  const inFlight = openInFlight(device, {
    layers: slices,
    slicing: program.slicing,
    skips: program.skips,
    parameters: store.versions.map((_, i) => parameterPorts(layers, store, frozen.tensors, i)),
    lossScale: resident.lossScale,
  }, options);
  const parts = { device, layers, resident, frozen, optimizer, norms, sums, inFlight, options };
  return new Stage(parts);
}

/** The models of a layer that a stage compiles, by the names of their kernels. */
function modelsToCompile(
  { models }: LayerProgram,
  { backward, recomputeInterval }: ActivationOptions,
): { readonly forward: Uint8Array } & Partial<Record<BackwardKind, Uint8Array>> {
  const isSplit = backward === "split";
  return {
    forward: models.forward,
    ...backward !== "never" && models.backward && { B: models.backward },
    ...isSplit && models.input && { I: models.input },
    // With an interval, W is B again.
    ...isSplit && models.weight && !recomputeInterval && { W: models.weight },
  };
}

/** The models of a layer, in order, that a stage compiles to write over what F saved. */
function overwritesToCompile(
  { overwrites = [] }: LayerProgram,
  { backward }: ActivationOptions,
): readonly Uint8Array[] {
  return backward === "never" ? [] : overwrites.map(({ model }) => model);
}

/** Compiles the layers of a stage for each slice of a sequence, equal ones once. */
async function compileLayers(
  device: Device,
  stage: StageProgram,
  options: StageOptions,
): Promise<StageLayer[][]> {
  const compiled = new Map<LayerProgram, StageLayer["kernels"]>();
  for (const program of stage.programs) {
    const { forward, ...backward } = modelsToCompile(program, options);
    const kernels: Record<string, Kernel> = {};
    const first = await device.compile(forward);
    for (const [kind, model] of Object.entries(backward)) {
      kernels[kind] = await device.compile(model);
    }
    const overwrites: Kernel[] = [];
    for (const model of overwritesToCompile(program, options)) {
      overwrites.push(await device.compile(model));
    }
    compiled.set(program, { forward: first, overwrites, ...kernels });
  }
  return slicesOf(stage).map((layers) =>
    layers.map((layer) => {
      const kernels = compiled.get(layer.program);
      if (kernels) return { ...layer, kernels };
      throw new RangeError(`Cannot open stage: the program of ${layer.name} must exist`);
    })
  );
}

/** Bytes that a library takes for the stages of one worker, which runs one model at a time. */
export interface LibraryBytes {
  /** Values between the operations of the model for which they are most. */
  readonly transient: number;
  /** Compiled models, and what binds them to tensors. */
  readonly sessions: number;
}

/** A compiled model without constants, and how many times it holds its bytes, constants above all. */
const SESSION_BYTES = 2 ** 18, SESSION_COPIES = 3;

/** What a bucket of the optimizer takes that is bound: a dozen tensors with their names. */
const BUCKET_BYTES = 10 * 2 ** 10;

/** What is known of models, for each device. */
const known = new Map<DeviceName, WeakMap<Uint8Array, number>>();

/** Bytes of the values between the operations of a model as a device computes it. */
function transientOn(device: DeviceName, model: Uint8Array): number {
  const transients = known.get(device) ?? new WeakMap<Uint8Array, number>();
  known.set(device, transients);
  const bytes = transients.get(model) ?? transientBytes(DEVICES[device].prepare(model));
  transients.set(model, bytes);
  return bytes;
}

/**
 * Plans what a library takes for stages that one worker opens. Pure: nothing is compiled.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { ADAMW_DEFAULTS, compileModel, gpt2, planLibrary } from "@troupe/troupe/kernels";
 *
 * const stage = compileModel(gpt2({ layers: 1, hidden: 8, heads: 1, seq: 64, vocab: 1000 }, 1), "none");
 * const options = { optimizer: ADAMW_DEFAULTS, backward: "whole" } as const;
 * const { transient } = planLibrary([stage], options, "native");
 * assert.ok(transient >= 4 * 64 * 1000); // the logits at least
 * ```
 */
export function planLibrary(
  stages: readonly StageProgram[],
  options: StageOptions,
  device: DeviceName,
): LibraryBytes {
  let transient = 0, sessions = 0;
  const add = (model: Uint8Array) => {
    transient = Math.max(transient, transientOn(device, model));
    sessions += SESSION_BYTES + SESSION_COPIES * model.byteLength;
  };
  const { hasFreeViews } = DEVICES[device];
  for (const stage of stages) {
    for (const program of stage.programs) {
      for (const model of Object.values(modelsToCompile(program, options))) add(model);
      for (const model of overwritesToCompile(program, options)) add(model);
    }
    const { store, norms: { pieces } } = planResident(stage, { ...options, hasFreeViews });
    for (const length of stepLengths(store)) {
      add(stepModel(length, options.optimizer, store.master !== undefined));
    }
    // Their models have a few operations, and hold nothing in between but a piece in FP32.
    sessions += new Set(pieces.map(({ length }) => length)).size * SESSION_BYTES;
    sessions += store.buckets.length * BUCKET_BYTES;
  }
  return { transient, sessions };
}
