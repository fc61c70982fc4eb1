/**
 * A stage: a contiguous slice of a model's layers on one device, with its kernels and state.
 *
 * Activations are in *slots*, one for each micro-batch in flight: F fills a slot, B frees it. Where
 * sequences are cut into S slices, slice s of micro-batch m has the number m·S + s.
 *
 * @module
 */

import type { Batch } from "../batch.ts";
import {
  type Bounds,
  boundsProblem,
  fieldBounds,
  haveLengths,
  type LayerProgram,
  layersOf,
  type NamedProgram,
  slicesOf,
  type StageProgram,
} from "../compile/programs.ts";
import {
  type Device,
  HOST_ARRAYS,
  type Kernel,
  type MessageArray,
  type StageValues,
} from "../devices/device.ts";
import type { IntermediateBytes } from "../devices/cpu/parts.ts";
import { type DeviceName, DEVICES } from "../devices/table.ts";
import { assertInput } from "../errors.ts";
import { elementCount } from "../graph/shapes.ts";
import type { DropoutKey } from "../layers/dropout.ts";
import { toStorage } from "../precision.ts";
import {
  type ActivationOptions,
  keyed,
  readValues,
  stageBorder,
  writeValues,
} from "./activations.ts";
import { type GradientSums, openGradientNorms, openGradientSums } from "./gradients.ts";
import { type BackwardKind, InFlight, parameterPorts, type StageLayer } from "./in_flight.ts";
import { countMemory, type StageMemory } from "./memory.ts";
import { openOptimizer, stepModel, stepShapes } from "./optimizer.ts";
import { AVERAGE, momentsOf, type StageOptions } from "./options.ts";
import { type Bucket, partOf, readFlat, tensorsOf, writeFlat } from "./parameters.ts";
import { describer, type SlotPool } from "./pool.ts";
import {
  allocateResident,
  checkStageOptions,
  findTensor,
  type FrozenWeights,
  openFrozen,
  type Resident,
  type StageState,
  type TensorPart,
  WeightVersions,
} from "./state.ts";

/** Result of F: activations for the next stage, or on the last stage the loss of each sample. */
export interface ForwardResult {
  /** The activations, Float16Array where the stage is FP16, or the losses, Float32Array. */
  readonly output: StageValues;
  /** True if `output` holds losses. */
  readonly isLoss: boolean;
}

/** Parts of a stage. */
export type StageParts = Awaited<ReturnType<typeof openParts>>[number];

/** Elements of a piece of {@linkcode Stage.scan}, small enough to stay in a CPU's cache. */
const SCANNED_ELEMENTS = 131_072;

/** A stage on a device. Made by {@linkcode openStage}; calls must be awaited one after the other. */
export class Stage {
  /** Adds gradients on the device; undefined where the device uses host memory and the host adds. */
  readonly sums: GradientSums | undefined;
  readonly #parts: StageParts;
  readonly #versions: WeightVersions;
  readonly #bounds: ReadonlyMap<string, Bounds>;
  /** True if the averages that forwards can use are those of the last step. */
  #isAveraged = false;

  /** Use {@linkcode openStage}. */
  constructor(parts: StageParts) {
    const { slices: [layers], resident: { store }, sums } = parts;
    this.#parts = parts;
    this.sums = sums;
    this.#bounds = new Map(layers!.flatMap(({ program }) => [...fieldBounds(program)]));
    this.#versions = new WeightVersions(store.versions.length);
  }

  /** True if the stage ends with the loss. */
  get isLast(): boolean {
    return this.#parts.slices[0]!.at(-1)!.program.isLoss;
  }

  /** Its activations, which stages of several jobs share. */
  get inFlight(): InFlight {
    return this.#parts.inFlight;
  }

  /** Number of micro-batches whose activations are in memory. */
  get liveActivations(): number {
    return this.inFlight.count;
  }

  /** Number of weight versions in use: the newest, and those of micro-batches in flight. */
  get weightVersions(): number {
    return this.#parts.inFlight.versions.add(this.#versions.newest).size;
  }

  /** The buckets of the optimizer: ranges of the flat gradients, in elements. */
  get buckets(): readonly Bucket[] {
    return this.#parts.resident.store.buckets;
  }

  /** Returns the range of a parameter in the flat gradients, in elements. */
  rangeOf(parameter: string): { readonly offset: number; readonly length: number } {
    const range = this.#parts.resident.store.ranges.get(parameter);
    if (range) return range;
    throw new RangeError(`Cannot find "${parameter}": it must be a parameter of the stage`);
  }

  /**
   * F: runs the layers for one micro-batch and keeps its activations until B (or W).
   *
   * @param input values from other stages: the output of the stage before, and skip values by their
   * keys; undefined on the first stage.
   * @param fields the micro-batch; fields that no layer of the stage reads are ignored.
   * @param into arrays for the output, such as buffers that were returned empty.
   * @param age version of the weights for F and the backward: 0 for the newest, 1 for those before
   * the last update; older ones are kept only for micro-batches in flight. −1 for the average of the
   * weights, if the stage has it.
   * @param dropout key of the dropout masks in F and the backward; without it there is no dropout.
   * @throws {TypeError} when a field is missing.
   * @throws {RangeError} when the micro-batch is already in flight, an array has a wrong length or
   * a row or class out of range, or the version of the weights is not kept.
   */
  async forward(
    microBatch: number,
    input: StageValues | undefined,
    fields: Batch,
    into?: StageValues,
    age = 0,
    dropout?: DropoutKey,
  ): Promise<ForwardResult> {
    if (this.#parts.inFlight.has(microBatch)) {
      throw new RangeError(`Cannot run F: micro-batch ${microBatch} must not be in flight already`);
    }
    for (const { name } of this.#parts.slices[0]!.flatMap(({ program }) => program.fields)) {
      if (fields[name]) continue;
      throw new TypeError(`Cannot run F: the micro-batch must have the field "${name}"`);
    }
    for (const [name, bounds] of this.#bounds) {
      const problem = boundsProblem(name, fields[name]!, bounds);
      if (problem !== undefined) throw new RangeError(`Cannot run F: ${problem}`);
    }
    const { device, inFlight, slices, compiled, compile } = this.#parts;
    const length = this.#parts.lengthOf(input, fields);
    compiled[length] ??= await compile(slices[length]!);
    const version = age < 0 ? await this.#average() : this.#versions.at(age);
    const slot = inFlight.begin(microBatch, this.#parts.first + version, dropout, length);
    try {
      writeValues(device, slot.inputs, input);
      for (const [name, tensor] of Object.entries(slot.fields)) device.write(tensor, fields[name]!);
      inFlight.fresh = undefined;
      for (const run of slot.forward) await run();
      inFlight.fresh = slot.fresh;
      return { output: await readValues(device, slot.outputs, into), isLoss: this.isLast };
    } catch (error) {
      this.drop(microBatch); // No backward can follow.
      throw error;
    }
  }

  /** Copies averages to where forwards read them; returns their version of the weights. */
  async #average(): Promise<number> {
    const { device, resident: { store } } = this.#parts, { average, ranges, versions } = store;
    if (!average) return this.#versions.newest;
    for (const [name, { offset, length }] of this.#isAveraged ? [] : ranges) {
      const values = await this.read([{ name: `${name}.${AVERAGE}`, from: 0, to: length }]);
      writeFlat(device, average, offset, toStorage(average.dtype, values));
    }
    this.#isAveraged = true;
    return versions.length;
  }

  /**
   * R: recomputes the activations that F did not keep, so that the backward does not have to. They are
   * in memory that all micro-batches share: if the stage runs anything else before that backward, the
   * backward recomputes them again. With several segments R recomputes the last one; it does nothing
   * where F kept everything.
   *
   * @throws {RangeError} when the micro-batch has no activations here.
   */
  async recompute(microBatch: number): Promise<void> {
    const { inFlight } = this.#parts, { fresh } = inFlight.slotOf(microBatch);
    if (inFlight.fresh === fresh) return;
    inFlight.fresh = undefined;
    for (const run of fresh) await run();
    inFlight.fresh = fresh;
  }

  /** Drops the activations of a micro-batch without a backward, as in an evaluation. */
  drop(microBatch: number): void {
    this.#parts.inFlight.end(microBatch);
  }

  /**
   * B, I or W of one micro-batch. B and W add to the gradients of the weights and release the
   * activations.
   *
   * @param gradient of the stage's output and of its skip values that later stages read, for B and I
   * on all stages except the last.
   * @param lossScale factor of the loss, on the last stage: one over the predictions of the step.
   * @returns the gradients of the values from other stages, from B and I; undefined if there are none.
   * @throws {RangeError} when the micro-batch has no activations here.
   */
  async backward(
    microBatch: number,
    kind: BackwardKind,
    gradient: StageValues | undefined,
    lossScale: number,
    into?: StageValues,
  ): Promise<StageValues | undefined> {
    const { device, inFlight, resident } = this.#parts;
    const { arriving, leaving, segments } = inFlight.backwardOf(microBatch);
    if (kind !== "W") {
      if (this.isLast) device.write(resident.lossScale, Float32Array.of(lossScale));
      writeValues(device, arriving, gradient);
    }
    for (const { again, overwrites, runs } of segments[kind]) {
      // Activations that F or I has just computed are not recomputed.
      const isFresh = inFlight.fresh === again;
      const missing = isFresh && kind === "W" ? [] : [...isFresh ? [] : again, ...overwrites];
      inFlight.fresh = undefined;
      for (const run of [...missing, ...runs]) await run();
      inFlight.fresh = again;
    }
    if (kind !== "I") this.drop(microBatch);
    if (kind === "W" || Object.keys(leaving).length === 0) return undefined;
    return await readValues(device, leaving, into);
  }

  /** Sets the gradients to zero, before the first B of a step. */
  zeroGradients(): void {
    const { device, resident: { store } } = this.#parts;
    for (const tensor of tensorsOf([store.gradients])) device.zero(tensor);
  }

  /** Drops the activations and gradients of a step that is not finished; keeps weights and moments. */
  reset(): void {
    this.inFlight.clear();
    this.zeroGradients();
  }

  /** Returns the sum of squares of each parameter's gradient as it is stored, by full name. */
  gradientSquares(): Promise<Map<string, number>> {
    return this.#parts.norms.squares();
  }

  /**
   * The vote of this stage before a step: whether every gradient is finite, and small enough that
   * neither a sum of `copies` such gradients overflows in the stored type, in any order, nor the
   * norm of the sum.
   */
  checkGradients(copies: number): Promise<boolean> {
    return this.#parts.norms.areSafe(copies);
  }

  /** Copies a range of the flat gradients to the host, in an array that owns its buffer. */
  async readGradients(offset: number, length: number): Promise<MessageArray> {
    const { dtype } = this.#parts.resident.store.gradients;
    const values = new (dtype === "f16" ? Float16Array : Float32Array)(length);
    await this.copyGradients(offset, values);
    return values;
  }

  /** Copies the flat gradients from `offset` into an array of the host. */
  copyGradients(offset: number, into: Float32Array | Float16Array): Promise<void> {
    return readFlat(this.#parts.device, this.#parts.resident.store.gradients, offset, into);
  }

  /** Sets a range of the flat gradients, such as the sum of all copies of the stage. */
  writeGradients(offset: number, values: Float32Array | Float16Array): void {
    writeFlat(this.#parts.device, this.#parts.resident.store.gradients, offset, values);
  }

  /**
   * Begins optimizer step `step`, counted from 1, before the first {@linkcode stepBucket}. With
   * several versions of the weights, the next F must come after the last bucket.
   *
   * @param gradientScale factor of every gradient: below 1 where the norm is clipped.
   * @throws {RangeError} when all of several versions of the weights are in use.
   */
  beginStep(step: number, learningRate: number, gradientScale: number): void {
    const { inFlight, optimizer } = this.#parts, from = this.#versions.newest;
    const to = this.#versions.advance(inFlight.versions);
    this.#isAveraged = false;
    optimizer.begin(step, learningRate, gradientScale, { from, to });
  }

  /** Runs a whole optimizer step: every bucket. */
  async optimize(step: number, learningRate: number, gradientScale = 1): Promise<void> {
    this.beginStep(step, learningRate, gradientScale);
    for (let i = 0; i < this.buckets.length; i++) await this.stepBucket(i);
  }

  /** Runs the optimizer on one bucket of {@linkcode buckets}. */
  stepBucket(index: number): Promise<void> {
    return this.#parts.optimizer.stepBucket(index);
  }

  /**
   * Sets weights and moments by name; moments that are not given keep their values.
   *
   * @throws {TypeError} when a weight is missing.
   * @throws {RangeError} when an array has a wrong length.
   */
  load({ weights, moments }: StageState): void {
    const { frozen, resident: { store } } = this.#parts;
    for (const name of [...frozen.tensors.keys(), ...store.ranges.keys()]) {
      if (weights.has(name)) continue;
      throw new TypeError(`Cannot load stage: the weight "${name}" must be given`);
    }
    for (const [name, values] of [...weights, ...moments]) {
      if (frozen.tensors.has(name) || this.#find(name)) this.write(name, values);
    }
  }

  #find(name: string) {
    return findTensor(this.#parts.resident.store, this.#parts.options.optimizer, name);
  }

  #tensor(name: string) {
    const found = this.#find(name);
    if (found) return found;
    throw new RangeError(`Cannot find "${name}": it must be a weight or a moment of the stage`);
  }

  /**
   * Sets one weight or moment, or a part of it, so that the host never needs to hold a whole state.
   *
   * @param from offset of the part in elements; by default the whole tensor is set.
   * @throws {RangeError} when the stage has no tensor of that name, or it has another length.
   */
  write(name: string, values: Float32Array, from?: number): void {
    const { device, resident: { store: { parameters, master } }, frozen } = this.#parts;
    this.#isAveraged = false;
    if (frozen.tensors.has(name)) return frozen.write(name, values, from);
    const { state, range: { offset, length } } = this.#tensor(name);
    if (state === undefined) {
      const { weights } = parameters.find((one) => one.name === name)!;
      const weight = weights[this.#versions.newest]!;
      device.write(partOf(device, weight, values, from), toStorage(weight.dtype, values));
    }
    const fits = from !== undefined || values.length === length, kept = state ?? master;
    assertInput(fits, "write a state", `it must have ${length} elements`, values.length);
    if (kept) writeFlat(device, kept, offset + (from ?? 0), values);
  }

  /**
   * Copies parts of FP32 weights and moments to the host, into one array that owns its buffer.
   *
   * @throws {RangeError} when the stage has no tensor of such a name.
   */
  async read(parts: readonly TensorPart[]): Promise<Float32Array<ArrayBuffer>> {
    const all = new Float32Array(parts.reduce((sum, { from, to }) => sum + to - from, 0));
    let at = 0;
    for (const { name, from, to } of parts) {
      await this.#read(name, from, all.subarray(at, at += to - from));
    }
    return all;
  }

  async #read(name: string, from: number, into: Float32Array): Promise<void> {
    const { device, resident: { store }, frozen } = this.#parts;
    if (frozen.tensors.has(name)) return await frozen.read(name, from, into);
    const { master = store.versions[this.#versions.newest]! } = store;
    const { state = master, range } = this.#tensor(name);
    await readFlat(device, state, range.offset + from, into);
  }

  /** Lists the weights and moments; frozen weights have no moments. */
  *#state(): Generator<{ readonly name: string; readonly length: number; isMoment?: boolean }> {
    const { resident: { store }, frozen, options } = this.#parts;
    for (const [name, { shape }] of frozen.tensors) yield { name, length: elementCount(shape) };
    for (const { name, shape } of store.parameters) {
      yield { name, length: elementCount(shape) };
      for (const moment of momentsOf(options.optimizer, shape)) {
        const length = elementCount(moment.shape);
        yield { name: `${name}.${moment.name}`, length, isMoment: true };
      }
    }
  }

  /** Copies FP32 weights and moments to the host. */
  async save(): Promise<StageState> {
    const weights = new Map<string, Float32Array>(), moments = new Map<string, Float32Array>();
    for (const { name, length, isMoment } of this.#state()) {
      const values = await this.read([{ name, from: 0, to: length }]);
      (isMoment ? moments : weights).set(name, values);
    }
    return { weights, moments };
  }

  /**
   * Calls `see` with all gradients, or with all weights and moments, piece by piece. The pieces share
   * one buffer, whose values change after the call: new arrays take five times as long.
   */
  async scan(
    what: "gradients" | "state",
    see: (piece: Float32Array | Float16Array) => void,
  ): Promise<void> {
    const { device, resident: { store: { gradients } } } = this.#parts, isState = what === "state";
    const Kind = HOST_ARRAYS[isState ? "f32" : gradients.dtype];
    const buffer = new Kind(SCANNED_ELEMENTS) as MessageArray;
    for (const one of isState ? this.#state() : gradients.parts) {
      for (let from = 0; from < one.length; from += SCANNED_ELEMENTS) {
        const piece = buffer.subarray(0, Math.min(SCANNED_ELEMENTS, one.length - from));
        if ("name" in one) await this.#read(one.name, from, piece as Float32Array);
        else await device.read(device.view(one.tensor, from, [piece.length]), piece);
        see(piece);
      }
    }
  }

  /**
   * Bytes that the stage holds, now and at its peak; equal to {@linkcode planMemory}. Shared memory
   * counts where it was allocated.
   */
  get memory(): StageMemory {
    const { resident, inFlight, first } = this.#parts;
    return countMemory(resident, first === 0 ? inFlight.bytes : 0);
  }
}

/**
 * Compiles a stage and allocates its parameters, all zero until {@linkcode Stage.load}.
 *
 * @param pool Memory that it shares with other stages of its device. Default: none.
 * @throws {RangeError} when the recompute interval or the bucket size is not a positive integer, or
 * the bucket is larger than the stage.
 * @throws {TypeError} when the precision is not that of the program.
 * @throws {Error} with the device's reason when it refuses a model.
 */
export async function openStage(
  device: Device,
  program: StageProgram,
  options: StageOptions,
  pool?: SlotPool,
): Promise<Stage> {
  const [parts] = await openParts(device, program, options, 1, { pool });
  return new Stage(parts!);
}

/**
 * Opens the parts of stages of one program that share frozen weights, kernels and activations. Each has
 * its own trained parameters.
 *
 * @param shared Frozen weights of a stage with the same ones, and a pool. Default: new ones, and none.
 */
export async function openParts(
  device: Device,
  program: StageProgram,
  options: StageOptions,
  count: number,
  shared: { readonly frozen?: FrozenWeights | undefined; readonly pool?: SlotPool | undefined } =
    {},
) {
  checkStageOptions(program, options);
  const slices = slicesOf(program), layers = slices[0]!, compile = layerCompiler(device, options);
  const lengthOf = program.lengths ? lengthFinder(program) : () => 0;
  const compiled = await compileSlices(program, compile);
  const residents = Array.from({ length: count }, () => allocateResident(device, layers, options));
  const [{ lossScale, frozen: fixed, precision }] = residents as [Resident];
  const frozen = shared.frozen ?? openFrozen(device, fixed, precision);
  const versions = (options.versions ?? 1) + (options.average ? 1 : 0);
  const inFlight = new InFlight(device, {
    ...program,
    slices,
    compiled,
    parameters: residents.flatMap(({ store }) =>
      Array.from({ length: versions }, (_, i) => parameterPorts(layers, store, frozen.tensors, i))
    ),
    lossScale,
    pool: shared.pool,
  }, options);
  /** Layers of each slice or length, also compiled: those of a length on first use. */
  const layout = { slices, compiled, compile, lengthOf };
  const open = async (own: Resident, i: number) => {
    const { store } = own;
    const optimizer = await openOptimizer(device, store, options.optimizer, own.optimizer);
    const norms = await openGradientNorms(device, store, own.norms);
    const sums = own.sums && openGradientSums(device, store, own.sums);
    // Frozen weights are counted once.
    const counted = shared.frozen || i > 0 ? { frozen: [] } : {};
    const resident: Resident = { ...own, lossScale, ...counted };
    /** The first of its versions of the weights among those of all stages that share activations. */
    const first = i * versions;
    const state = { device, resident, frozen, optimizer, norms, sums, inFlight, first, options };
    return { ...state, ...layout };
  };
  const all: Awaited<ReturnType<typeof open>>[] = [];
  for (const [i, own] of residents.entries()) all.push(await open(own, i));
  return all;
}

/** Compiles the kernels of a stage. On a device that keeps them, the stage is opened faster later. */
export async function compileStage(
  device: Device,
  program: StageProgram,
  options: StageOptions,
): Promise<void> {
  await compileSlices(program, layerCompiler(device, options));
}

async function compileSlices(program: StageProgram, compile: ReturnType<typeof layerCompiler>) {
  const compiled: StageLayer[][] = [];
  if (!program.lengths) { for (const one of slicesOf(program)) compiled.push(await compile(one)); }
  return compiled;
}

/**
 * Returns the models of a layer that a stage compiles, by the names of their kernels, and the models
 * that overwrite values saved by F, in order.
 */
function modelsToCompile(
  { models, overwrites = [] }: LayerProgram,
  { backward, recomputeInterval }: ActivationOptions,
) {
  const isSplit = backward === "split";
  return {
    forward: models.forward,
    ...backward !== "never" && models.backward && { B: models.backward },
    ...isSplit && models.input && { I: models.input },
    // With a recompute interval, W runs B again.
    ...isSplit && models.weight && !recomputeInterval && { W: models.weight },
    overwrites: backward === "never" ? [] : overwrites.map(({ model }) => model),
  };
}

/** Returns a function that finds the index of the length of a micro-batch. */
function lengthFinder(stage: StageProgram) {
  const lengths = slicesOf(stage).map((layers) => ({
    inputs: stageBorder(stage, layers).inputs,
    fields: layers.flatMap(({ program }) => program.fields),
  }));
  return (input: StageValues = {}, batch: Batch): number => {
    const own = lengths.findIndex(({ inputs, fields }) =>
      haveLengths(inputs, keyed(input)) && haveLengths(fields, batch)
    );
    return Math.max(0, own);
  };
}

/** Returns a function that compiles layers; equal programs are compiled once. */
function layerCompiler(device: Device, options: StageOptions) {
  const compiled = new Map<LayerProgram, Promise<StageLayer["kernels"]>>();
  const compile = async (program: LayerProgram) => {
    const { forward: first, overwrites: over, ...backward } = modelsToCompile(program, options);
    const kernels: Record<string, Kernel> = {}, overwrites: Kernel[] = [];
    const forward = await device.compile(first);
    for (const [kind, model] of Object.entries(backward)) {
      kernels[kind] = await device.compile(model);
    }
    for (const model of over) overwrites.push(await device.compile(model));
    return { forward, overwrites, ...kernels };
  };
  return async (layers: readonly NamedProgram[]) => {
    const opened: StageLayer[] = [];
    for (const layer of layers) {
      const kernels = await compiled.getOrInsertComputed(layer.program, compile);
      opened.push({ ...layer, kernels });
    }
    return opened;
  };
}

/** Bytes of a compiled model without constants, and the copies of its bytes, mainly constants. */
const SESSION_BYTES = 2 ** 18, SESSION_COPIES = 3;

/** Bytes of a bound bucket of the optimizer: a dozen tensors with their names. */
const BUCKET_BYTES = 10 * 2 ** 10;

/** Bytes of intermediate values of known models, by device. */
const known = new Map<DeviceName, WeakMap<Uint8Array, IntermediateBytes>>();

/**
 * Plans the memory that ONNX Runtime takes for the stages of one worker, which runs one model at a time.
 * Pure: nothing is compiled.
 *
 * @returns `transient`, the largest sums of intermediate values of one model, within the library and
 * between its parts; `sessions`, the compiled models and their bindings.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { ADAMW_DEFAULTS, compileModel, gpt2 } from "@troupe/troupe/kernels";
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
) {
  const { hasFreeViews, intermediate } = DEVICES[device];
  const models = known.getOrInsertComputed(device, () => new WeakMap());
  let library = 0, shared = 0, sessions = 0;
  const add = (model: Uint8Array) => {
    const one = models.getOrInsertComputed(model, () => intermediate(model));
    library = Math.max(library, one.library);
    shared = Math.max(shared, one.shared);
    sessions += SESSION_BYTES + SESSION_COPIES * model.byteLength;
  };
  for (const stage of stages.flatMap((one) => one.jobs?.variants ?? [one])) {
    for (const program of stage.programs) {
      const { overwrites, ...models } = modelsToCompile(program, options);
      for (const model of [...Object.values(models), ...overwrites]) add(model);
    }
    const described = allocateResident(describer(hasFreeViews), layersOf(stage), options);
    const { store, norms: { pieces } } = described;
    for (const shape of stepShapes(store, options.optimizer).values()) {
      add(stepModel(shape, options.optimizer, store.master !== undefined));
    }
    // These models have a few operations and no intermediate value except a piece in FP32.
    sessions += new Set(pieces.map(({ length }) => length)).size * SESSION_BYTES;
    sessions += store.buckets.length * BUCKET_BYTES;
  }
  return { transient: library + shared, sessions };
}
