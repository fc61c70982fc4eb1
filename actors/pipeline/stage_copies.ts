/**
 * The stage copies of one worker, and the kernels of their actions.
 *
 * [Note: halves] If a schedule runs backwards in halves (Chimera, section 3.5), everything is
 * compiled for half a micro-batch: a forward is two runs, a backward one or two. So a half backward
 * runs the same kernel as a whole one, and its bits do not depend on the choice.
 *
 * [Note: slices] If a schedule cuts sequences into slices, everything is compiled for a slice of
 * each sample's tokens, and an action runs one slice: forwards in order, backwards in reverse. The
 * gradients of weights are added in that order, micro-batch by micro-batch: another sum of the same
 * terms than that of the whole sequence. A loss is a sum in f32 for each sample of a slice; they are
 * added in f64 by micro-batch, slice and sample. An evaluation runs all slices of a micro-batch at
 * once.
 *
 * @module
 */

import type {
  Batch,
  Device,
  DropoutKey,
  Slicing,
  StageOptions,
  StageProgram,
  StageSkip,
  StageValues,
  StateOf,
} from "../../kernels/mod.ts";
import {
  type BackwardKind,
  commonSizes,
  type ForwardResult,
  type JobStage,
  joinSlices,
  openJobs,
  openPool,
  openStage,
  sliceBatch,
  sliceOf,
  type SlotPool,
  splitBatch,
  type Stage,
  type StageState,
} from "../../kernels/internal.ts";
import type { Action, Part } from "../../schedules/mod.ts";
import { eachTensor, PIECE_ELEMENTS, type TensorSource } from "../checkpoints/tensors.ts";
import type { StageCopy } from "./layout.ts";
import { cut, join, joinPassed, mapValues } from "./links.ts";

/** The kernels of a stage, as the actors use them. */
export type StageKernels =
  & Omit<Stage, "inFlight" | "gradients">
  & Partial<Pick<JobStage, "beginJobs" | "scaleJobs">>;

/** Opens the kernels of a stage on a device. */
type OpenStage = (
  device: Device,
  program: StageProgram,
  options: StageOptions,
  pool?: SlotPool,
) => Promise<StageKernels> | StageKernels;

/** The module whose kernels run the stages, as plain data: each isolate imports it. */
export interface KernelModule {
  /** URL of the module. */
  readonly module: string;
  /** Its function that opens a stage on a device. */
  readonly export: string;
  /** Names of the moments that its optimizer keeps of each parameter. */
  readonly moments: readonly string[];
}

/** Returns the function that opens stages: that of a module, or by default the device's. */
export async function stageOpener(kernels: KernelModule | undefined): Promise<OpenStage> {
  if (!kernels) return openStage;
  const exports: Record<string, OpenStage> = await import(kernels.module);
  return exports[kernels.export]!;
}

/** A copy of a stage that is open on this worker. */
export interface OpenCopy extends StageCopy {
  readonly kernels: StageKernels;
  /** The values that cross the border of the stage by name; absent if there are none. */
  readonly skips?: readonly StageSkip[];
  /** See {@linkcode CopyInit.laterFields}. */
  readonly laterFields: readonly string[];
}

/** A micro-batch, or a part of it. */
export type MicroBatchPart = Pick<Action, "microBatch" | "part">;

/** The input of a forward. */
interface ForwardInput {
  /** The output of the stage before; absent for the first stage. */
  readonly input?: StageValues | undefined;
  readonly fields: Batch;
  /** Arrays for the output. */
  readonly into?: StageValues | undefined;
  /** The age of the weights in updates; -1 for their average. Default 0. */
  readonly age?: number;
  /** The key of dropout; without it no element is dropped. */
  readonly dropout?: DropoutKey | undefined;
}

/** The input of a backward. */
interface BackwardInput {
  /** The gradient of the output; absent for the last stage, and for W. */
  readonly gradient?: StageValues | undefined;
  readonly lossScale: number;
  /** Arrays for the gradient of the input. */
  readonly into?: StageValues | undefined;
}

/** A copy of a stage before it is opened. */
export interface CopyInit {
  /** Its stage and its place. */
  readonly copy: StageCopy;
  /** Its program. */
  readonly program: StageProgram;
  /** Fields of the micro-batch that later stages read. */
  readonly laterFields: readonly string[];
  /** True if the schedule has an R for it: then F keeps only the input of the stage. */
  readonly isRecomputed?: true;
  /** Its initial weights and moments, or their sources. */
  readonly state: StateOf<TensorSource>;
}

/** The stages of a run. */
export interface CompiledStages {
  /** In order. */
  readonly programs: readonly StageProgram[];
  /** Storage and optimizer of their weights. */
  readonly stage: StageOptions;
  /** The stages that the schedule recomputes by R actions. */
  readonly recomputed: ReadonlySet<number>;
}

/** The options of one stage. */
export const optionsOf = (
  { programs, stage, recomputed }: CompiledStages,
  index: number,
): StageOptions => recomputed.has(index) ? withRecomputation(stage, programs[index]!) : stage;

/** The options of a stage with an R: all its layers are recomputed together. */
const withRecomputation = (options: StageOptions, { layers }: StageProgram): StageOptions => ({
  ...options,
  recomputeInterval: layers.length,
});

/**
 * Compiles and loads the copies of a worker. They share memory for micro-batches in flight, which
 * they take and give back.
 */
export async function openCopies(
  device: Device,
  inits: readonly CopyInit[],
  options: StageOptions,
  halves: 1 | 2,
  open: OpenStage = openStage,
): Promise<StageCopies> {
  const all: OpenCopy[] = [];
  const optionsOf = ({ program, isRecomputed }: CopyInit) =>
    isRecomputed ? withRecomputation(options, program) : options;
  const stages = inits.map((init) => ({ program: init.program, options: optionsOf(init) }));
  const pool = openPool(commonSizes(stages, device.hasFreeViews));
  for (const [i, { copy, program, laterFields, state }] of inits.entries()) {
    const { jobs } = program, own = stages[i]!.options;
    const kernels =
      await (jobs ? openJobs(device, { ...program, jobs }, own) : open(device, program, own, pool));
    // On a device without free views, writing a piece of a tensor copies all of it.
    const most = device.hasFreeViews ? PIECE_ELEMENTS : Infinity;
    eachTensor(state, (name, values, from) => kernels.write(name, values, from), most);
    all.push({ ...copy, kernels, laterFields, ...program.skips && { skips: program.skips } });
  }
  return new StageCopies(all, halves, inits[0]?.program.slicing);
}

/** The stage copies of a worker; runs the kernels of their actions. */
export class StageCopies {
  /** Runs of the kernels for each micro-batch. */
  readonly #runs: number;

  constructor(
    readonly all: readonly OpenCopy[],
    private readonly halves: 1 | 2,
    private readonly slicing: Slicing | undefined,
  ) {
    this.#runs = slicing?.slices ?? halves;
  }

  /** Returns the copy of a stage in a pipeline. */
  of(stage: number, pipe: number): OpenCopy {
    const copy = this.all.find((one) => one.stage === stage && one.pipe === pipe);
    if (copy) return copy;
    throw new RangeError(`Cannot run stage ${stage} of pipe ${pipe}: it must be held here`);
  }

  /** The number of (stage, micro-batch) activations held. */
  get live(): number {
    return this.all.reduce((sum, { kernels }) => sum + kernels.liveActivations, 0) / this.#runs;
  }

  /** Runs F of a micro-batch or of one slice. Losses of several slices are in their order. */
  async forward(
    { kernels }: OpenCopy,
    { microBatch, part }: MicroBatchPart,
    { input, fields, into, age = 0, dropout }: ForwardInput,
  ): Promise<ForwardResult> {
    const keys = this.#keysOf(microBatch, part), isOne = keys.length === 1;
    const outputs: StageValues[] = [], isLoss = kernels.isLast, halves = this.halves;
    for (const [i, key] of keys.entries()) {
      const { output } = await kernels.forward(
        key,
        input && (isOne ? input : this.#cut(input, i)),
        isOne ? fields : this.#cutFields(fields, i),
        isOne ? into : undefined,
        age,
        halves === 1 ? dropout : dropout && { ...dropout, half: i as 0 | 1 },
      );
      outputs.push(output);
    }
    const isAppended = isOne || isLoss;
    return { output: isAppended ? joinPassed(outputs, join) : this.#join(outputs), isLoss };
  }

  /** Runs R of a micro-batch or of a part of it. */
  async recompute({ kernels }: OpenCopy, { microBatch, part }: MicroBatchPart): Promise<void> {
    for (const key of this.#keysOf(microBatch, part)) await kernels.recompute(key);
  }

  /** Drops the activations of a forward without backward. */
  drop({ kernels }: OpenCopy, microBatch: number): void {
    for (const key of this.#keysOf(microBatch)) kernels.drop(key);
  }

  /** Runs B, I or W of a micro-batch, or of a part of it. */
  async backward(
    { kernels }: OpenCopy,
    { kind, microBatch, part }: Action,
    { gradient, lossScale, into }: BackwardInput,
  ): Promise<StageValues | undefined> {
    const keys = this.#keysOf(microBatch, part), isOne = keys.length === 1;
    const outputs: StageValues[] = [], inOrder = [...keys.entries()];
    for (const [i, key] of this.slicing ? inOrder.reverse() : inOrder) {
      const dx = await kernels.backward(
        key,
        kind as BackwardKind,
        gradient && (isOne ? gradient : this.#cut(gradient, i)),
        lossScale,
        isOne ? into : undefined,
      );
      if (dx) outputs[i] = dx;
    }
    if (outputs.length === 0) return undefined;
    return isOne ? outputs[0] : this.#join(outputs);
  }

  /** The keys by which kernels know the parts of a micro-batch, or a part of it. */
  #keysOf(microBatch: number, part?: Part): number[] {
    const first = this.#runs * microBatch;
    if (part !== undefined) return [first + part.index];
    return Array.from({ length: this.#runs }, (_, index) => first + index);
  }

  #cut(passed: StageValues, index: number): StageValues {
    const slicing = this.slicing;
    return mapValues(
      passed,
      (array) => slicing ? sliceOf(array, slicing, index) : cut(array, index, this.halves),
    );
  }

  #cutFields(fields: Batch, index: number): Batch {
    const slicing = this.slicing;
    return slicing ? sliceBatch(fields, slicing, index) : splitBatch(fields, this.halves)[index]!;
  }

  #join(parts: readonly StageValues[]): StageValues {
    const slicing = this.slicing;
    return joinPassed(parts, (arrays) => slicing ? joinSlices(arrays, slicing) : join(arrays));
  }
}

/** Joins the states of several stages; a later stage wins if names are equal. */
export function joinStates(parts: readonly StageState[]): StageState {
  return {
    weights: new Map(parts.flatMap(({ weights }) => [...weights])),
    moments: new Map(parts.flatMap(({ moments }) => [...moments])),
  };
}

/** The send options of a state: its arrays are transferred. */
export function moved({ weights, moments }: StageState): { transfer: ArrayBuffer[] } {
  const arrays = [...weights.values(), ...moments.values()];
  return { transfer: arrays.map(({ buffer }) => buffer as ArrayBuffer) };
}
