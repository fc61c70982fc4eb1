/**
 * A stage: a contiguous slice of a model's layers, compiled and bound on one device.
 *
 * Activations live in *slots*, one for each micro-batch in flight: F fills a slot, B empties it.
 * Slots are made when first needed and used again, so a run in a steady state allocates nothing.
 *
 * @module
 */

import type { Device, Tensor } from "./device.ts";
import { elementCount } from "./graph.ts";
import type { Batch, TensorSpec } from "./layer.ts";
import {
  openGradientSquares,
  openOptimizer,
  type Optimizer,
  type OptimizerOptions,
} from "./optimizer.ts";
import { type Bucket, createParameters, type ParameterStore } from "./parameters.ts";
import { type LayerProgram, PORTS } from "./program.ts";
import {
  allocateGradients,
  type BackwardKind,
  type BoundaryGradients,
  createSlot,
  type Slot,
  type StageLayer,
} from "./slot.ts";

export type { BackwardKind, StageLayer };

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
  /** The activations, or the losses. */
  readonly output: Float32Array<ArrayBuffer>;
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

/** Options of {@linkcode openStage}. */
export interface StageOptions {
  /** Which optimizer, with its settings. */
  readonly optimizer: OptimizerOptions;
  /** Whether the backward will be asked for whole, also split into I and W, or never. */
  readonly backward: "whole" | "split" | "never";
  /** Elements of an optimizer bucket. */
  readonly bucketSize?: number;
}

/**
 * Compiles a stage and allocates its parameters, all zero until {@linkcode Stage.load}.
 *
 * @throws {Error} with the device's reason when it refuses a model.
 */
export async function openStage(
  device: Device,
  program: StageProgram,
  options: StageOptions,
): Promise<Stage> {
  const compiled: Pick<StageLayer, "program" | "kernels">[] = [];
  for (const one of program.programs) {
    const { models } = one;
    const kernels: StageLayer["kernels"] = {
      forward: await device.compile(models.forward),
      ...options.backward !== "never" && { B: await device.compile(models.backward) },
      ...options.backward === "split" && models.input &&
        { I: await device.compile(models.input) },
      ...options.backward === "split" && { W: await device.compile(models.weight) },
    };
    compiled.push({ program: one, kernels });
  }
  const layers = program.layers.map(({ prefix, program: index }) => {
    const one = compiled[index];
    if (!one) throw new RangeError(`Cannot open stage: program ${index} must exist`);
    return { prefix, ...one };
  });
  const specs = layers.flatMap(({ prefix, program: { parameters } }) =>
    parameters.map(({ name, shape }) => ({ name: prefix + name, shape }))
  );
  const moments = options.optimizer.kind === "adamw" ? 2 : 1;
  const { bucketSize } = options;
  const store = createParameters(device, specs, { moments, ...bucketSize && { bucketSize } });
  const optimizer = await openOptimizer(device, store, options.optimizer);
  const squares = await openGradientSquares(device, store);
  return new Stage(device, layers, store, optimizer, squares, options);
}

/** A stage on a device. Made by {@linkcode openStage}; calls must be awaited one after the other. */
export class Stage {
  readonly #device: Device;
  readonly #layers: readonly StageLayer[];
  readonly #store: ParameterStore;
  readonly #optimizer: Optimizer;
  readonly #squares: () => Promise<Map<string, number>>;
  readonly #moments: readonly string[];
  readonly #parameterTensors: Readonly<Record<string, Tensor>>[];
  readonly #lossScale: Tensor;
  /** Shared by all slots unless W runs later than I: then each slot has its own. */
  readonly #gradients: BoundaryGradients | undefined;
  readonly #free: Slot[] = [];
  readonly #live = new Map<number, Slot>();

  /** Use {@linkcode openStage}. */
  constructor(
    device: Device,
    layers: readonly StageLayer[],
    store: ParameterStore,
    optimizer: Optimizer,
    squares: () => Promise<Map<string, number>>,
    options: StageOptions,
  ) {
    this.#device = device;
    this.#layers = layers;
    this.#store = store;
    this.#optimizer = optimizer;
    this.#squares = squares;
    this.#moments = options.optimizer.kind === "adamw"
      ? ["exp_avg", "exp_avg_sq"]
      : ["momentum_buffer"];
    this.#lossScale = device.alloc("f32", []);
    const byName = new Map(store.parameters.map((parameter) => [parameter.name, parameter]));
    this.#parameterTensors = layers.map(({ prefix, program }) =>
      Object.fromEntries(program.parameters.flatMap(({ name }) => {
        const { weight, gradient } = byName.get(prefix + name)!;
        return [
          [PORTS.parameter(name), weight],
          [PORTS.accumulator(name), gradient],
          [PORTS.gradient(name), gradient],
        ];
      }))
    );
    this.#gradients = options.backward === "split"
      ? undefined
      : allocateGradients(device, layers, false);
  }

  /** Whether the stage ends with the loss. */
  get isLast(): boolean {
    return this.#layers.at(-1)!.program.isLoss;
  }

  /** Micro-batches whose activations are held now. */
  get liveActivations(): number {
    return this.#live.size;
  }

  /** The buckets of the optimizer: ranges of the flat gradients, in elements. */
  get buckets(): readonly Bucket[] {
    return this.#store.buckets;
  }

  /** Where the gradient of a parameter lies in the flat gradients, in elements. */
  rangeOf(parameter: string): { readonly offset: number; readonly length: number } {
    const range = this.#store.ranges.get(parameter);
    if (range) return range;
    throw new RangeError(`Cannot find "${parameter}": it must be a parameter of the stage`);
  }

  /**
   * F: runs the layers for one micro-batch and keeps its activations until B (or W).
   *
   * @param input output of the stage before; absent on the first stage.
   * @param fields the micro-batch; fields that no layer of the stage reads are ignored.
   * @param into an array for the output, such as one that came back empty.
   * @throws {TypeError} when a field is missing.
   * @throws {RangeError} when the micro-batch is in flight already, or an array has a wrong length.
   */
  async forward(
    microBatch: number,
    input: Float32Array | undefined,
    fields: Batch,
    into?: Float32Array<ArrayBuffer>,
  ): Promise<ForwardResult> {
    if (this.#live.has(microBatch)) {
      throw new RangeError(`Cannot run F: micro-batch ${microBatch} must not be in flight already`);
    }
    for (const { name } of this.#layers.flatMap(({ program }) => program.fields)) {
      if (fields[name]) continue;
      throw new TypeError(`Cannot run F: the micro-batch must have the field "${name}"`);
    }
    const slot = this.#free.pop() ?? this.#createSlot();
    this.#live.set(microBatch, slot);
    if (slot.input) this.#device.write(slot.input, input!);
    for (const [name, tensor] of Object.entries(slot.fields)) {
      this.#device.write(tensor, fields[name]!);
    }
    for (const run of slot.forward) await run();
    const output = await this.#device.read<Float32Array<ArrayBuffer>>(slot.output, into);
    return { output, isLoss: this.isLast };
  }

  /** Drops the activations of a micro-batch that gets no backward, as in an evaluation. */
  drop(microBatch: number): void {
    this.#free.push(this.#slotOf(microBatch));
    this.#live.delete(microBatch);
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
    gradient: Float32Array | undefined,
    lossScale: number,
    into?: Float32Array<ArrayBuffer>,
  ): Promise<Float32Array<ArrayBuffer> | undefined> {
    const slot = this.#slotOf(microBatch);
    if (kind !== "W") {
      if (this.isLast) this.#device.write(this.#lossScale, Float32Array.of(lossScale));
      else this.#device.write(slot.gradients.at(-1)!, gradient!);
    }
    for (const run of slot.backward[kind]) await run();
    if (kind !== "I") this.drop(microBatch);
    const inputGradient = slot.gradients[0];
    if (kind === "W" || !inputGradient) return undefined;
    return await this.#device.read<Float32Array<ArrayBuffer>>(inputGradient, into);
  }

  #slotOf(microBatch: number): Slot {
    const slot = this.#live.get(microBatch);
    if (!slot) {
      throw new RangeError(
        `Cannot run backward: micro-batch ${microBatch} must have had its F here`,
      );
    }
    return slot;
  }

  #createSlot(): Slot {
    return createSlot(this.#device, this.#layers, {
      parameters: this.#parameterTensors,
      lossScale: this.#lossScale,
      gradients: this.#gradients ?? allocateGradients(this.#device, this.#layers, true),
    });
  }

  /** Sets the gradients to zero, before the first B of a step. */
  zeroGradients(): void {
    this.#device.zero(this.#store.gradients);
  }

  /** The sum of squares of each parameter's gradient, by full name. */
  gradientSquares(): Promise<Map<string, number>> {
    return this.#squares();
  }

  /** Copies a range of the flat gradients to the host, in an array that owns its buffer. */
  readGradients(offset: number, length: number): Promise<Float32Array<ArrayBuffer>> {
    return this.#device.read(this.#device.view(this.#store.gradients, offset, [length]));
  }

  /** Sets a range of the flat gradients, such as the sum of all copies of the stage. */
  writeGradients(offset: number, values: Float32Array): void {
    this.#device.write(this.#device.view(this.#store.gradients, offset, [values.length]), values);
  }

  /**
   * Begins optimizer step `step`, counted from 1, before the first {@linkcode stepBucket}.
   *
   * @param gradientScale factor of every gradient: below 1 where the norm is clipped.
   */
  beginStep(step: number, learningRate: number, gradientScale: number): void {
    this.#optimizer.begin(step, learningRate, gradientScale);
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
    for (const { name, weight, moments } of this.#store.parameters) {
      const values = state.weights.get(name);
      if (!values) throw new TypeError(`Cannot load stage: the weight "${name}" must be given`);
      this.#device.write(weight, values);
      moments.forEach((moment, i) => {
        const kept = state.moments.get(`${name}.${this.#moments[i]}`);
        if (kept) this.#device.write(moment, kept);
      });
    }
  }

  /** Copies weights and moments to the host. */
  async save(): Promise<StageState> {
    const state = {
      weights: new Map<string, Float32Array>(),
      moments: new Map<string, Float32Array>(),
    };
    for (const { name, weight, moments } of this.#store.parameters) {
      state.weights.set(name, await this.#device.read<Float32Array>(weight));
      for (const [i, moment] of moments.entries()) {
        const values = await this.#device.read<Float32Array>(moment);
        state.moments.set(`${name}.${this.#moments[i]}`, values);
      }
    }
    return state;
  }

  /** Copies the accumulated gradients to the host, by full name. */
  async gradients(): Promise<Map<string, Float32Array>> {
    const gradients = new Map<string, Float32Array>();
    for (const { name, gradient } of this.#store.parameters) {
      gradients.set(name, await this.#device.read<Float32Array>(gradient));
    }
    return gradients;
  }
}

/** Bytes of the activations that one micro-batch keeps from F to B. */
export function activationBytes({ programs, layers }: StageProgram): number {
  const bytes = ({ shape }: TensorSpec) => 4 * elementCount(shape);
  return layers.reduce((sum, { program }) => {
    const { saved, output } = programs[program]!;
    return sum + bytes(output) + saved.reduce((total, spec) => total + bytes(spec), 0);
  }, 0);
}
