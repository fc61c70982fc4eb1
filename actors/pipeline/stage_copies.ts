/**
 * The stage copies of one worker, and the kernels of their actions.
 *
 * [Note: halves] Where a schedule runs backwards in halves (Chimera, section 3.5), everything is
 * compiled for half a micro-batch: a forward is two runs, a backward one or two. So a half backward
 * is no other kernel than a whole one, and its bits do not depend on which of them is asked for.
 *
 * [Note: slices] Where a schedule cuts sequences into slices, everything is compiled for a slice of
 * each sample's tokens, and an action runs one of them: forwards in order, backwards in reverse. The
 * gradients of weights add up in that order, micro-batch by micro-batch: another sum of the same terms
 * than that of the whole sequence. A loss is a sum in f32 for each sample of a slice; they are added
 * in f64 by micro-batch, slice and sample. An evaluation runs all slices of a micro-batch at once.
 *
 * @module
 */

import {
  type BackwardKind,
  type DropoutKey,
  type ForwardResult,
  joinSlices,
  openStage,
  type Passed,
  sliceBatch,
  sliceOf,
  splitBatch,
  type Stage,
  type StageMemory,
  type StageOptions,
  type StageState,
  type StateOf,
} from "../../kernels/internal.ts";
import type { Batch, Device, Slicing, StageProgram, StageSkip } from "../../kernels/mod.ts";
import type { Action } from "../../schedules/mod.ts";
import { eachTensor, PIECE_ELEMENTS, type TensorSource } from "../checkpoints/tensors.ts";
import type { StageCopy } from "./layout.ts";
import { cut, join, joinPassed, mapPassed } from "./links.ts";

/** The kernels of a stage, as the actors use them. */
export type StageKernels = Pick<
  Stage,
  | "isLast"
  | "liveActivations"
  | "weightVersions"
  | "buckets"
  | "memory"
  | "forward"
  | "backward"
  | "recompute"
  | "drop"
  | "rangeOf"
  | "zeroGradients"
  | "sums"
  | "checkGradients"
  | "gradientSquares"
  | "readGradients"
  | "writeGradients"
  | "beginStep"
  | "stepBucket"
  | "optimize"
  | "load"
  | "write"
  | "read"
  | "save"
>;

/** Opens the kernels of a stage on a device. */
type OpenStage = (
  device: Device,
  program: StageProgram,
  options: StageOptions,
) => Promise<StageKernels> | StageKernels;

/** The module whose kernels run the stages, as plain data: each isolate imports it. */
export interface KernelModule {
  /** URL of the module. */
  readonly module: string;
  /** Its function that opens a stage, with the parameters of {@linkcode openStage}. */
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
  /** What crosses the border of the stage by name, if anything does. */
  readonly skips?: readonly StageSkip[];
}

/** A micro-batch, or the slice of it that is computed. */
export type MicroBatchPart = Pick<Action, "microBatch" | "slice">;

/** The kernels of a worker's actions. */
export interface StageCopies {
  /** The copies that the worker holds. */
  readonly all: readonly OpenCopy[];
  /** The copy of a stage in a replica of the pipeline. */
  of(stage: number, pipe: number): OpenCopy;
  /** (stage, micro-batch) activations held now. */
  readonly live: number;
  /**
   * F of one micro-batch, or of one slice of its sequences, with the weights as they were `age`
   * updates ago. Losses of all slices come slice by slice.
   *
   * @param dropout keys what is left out; without it nothing is.
   */
  forward(
    copy: OpenCopy,
    part: MicroBatchPart,
    input: Passed | undefined,
    fields: Batch,
    into: Passed | undefined,
    age: number,
    dropout?: DropoutKey,
  ): Promise<ForwardResult>;
  /** R of one micro-batch, or of one slice of its sequences. */
  recompute(copy: OpenCopy, part: MicroBatchPart): Promise<void>;
  /** Drops what a forward without backward has left. */
  drop(copy: OpenCopy, microBatch: number): void;
  /** B, I or W of one micro-batch or of one half or slice of it. */
  backward(
    copy: OpenCopy,
    action: Action,
    gradient: Passed | undefined,
    lossScale: number,
    into: Passed | undefined,
  ): Promise<Passed | undefined>;
}

/** What a worker's copies are made from. */
export interface CopyInit {
  /** Which copy of which stage. */
  readonly copy: StageCopy;
  /** What it computes. */
  readonly program: StageProgram;
  /** Whether the schedule has an R for it: then F keeps the input of the stage only. */
  readonly isRecomputed?: true;
  /** Its first weights and moments, or where they come from. */
  readonly state: StateOf<TensorSource>;
}

/** The stages of a run. */
export interface CompiledStages {
  /** In order. */
  readonly programs: readonly StageProgram[];
  /** How they store and step their weights. */
  readonly stage: StageOptions;
  /** Those that the schedule computes again by actions of its own, R. */
  readonly recomputed: ReadonlySet<number>;
}

/** How one stage is opened. */
export const optionsOf = (
  { programs, stage, recomputed }: CompiledStages,
  index: number,
): StageOptions => recomputed.has(index) ? withRecomputation(stage, programs[index]!) : stage;

/** The options of a stage that has an R: all its layers are computed again together. */
const withRecomputation = (options: StageOptions, { layers }: StageProgram): StageOptions => ({
  ...options,
  recomputeInterval: layers.length,
});

/** Compiles and loads the copies of a worker. Copies of equal programs share no memory. */
export async function openCopies(
  device: Device,
  inits: readonly CopyInit[],
  options: StageOptions,
  halves: 1 | 2,
  open: OpenStage = openStage,
): Promise<StageCopies> {
  const all: OpenCopy[] = [];
  for (const { copy, program, isRecomputed, state } of inits) {
    const own = isRecomputed ? withRecomputation(options, program) : options;
    const kernels = await open(device, program, own);
    // Where views are not free, a piece of a tensor would take all of it to and fro.
    const most = device.hasFreeViews ? PIECE_ELEMENTS : Infinity;
    eachTensor(state, (name, values, from) => kernels.write(name, values, from), most);
    all.push({ ...copy, kernels, ...program.skips && { skips: program.skips } });
  }
  const slicing = inits[0]?.program.slicing, parts = slicing?.slices ?? halves;
  const { cutPart, cutFields, joinAll } = cutting(halves, slicing);
  return {
    all,
    of(stage, pipe) {
      const copy = all.find((one) => one.stage === stage && one.pipe === pipe);
      if (copy) return copy;
      throw new RangeError(`Cannot run stage ${stage} of pipe ${pipe}: it must be held here`);
    },
    get live() {
      return all.reduce((sum, { kernels }) => sum + kernels.liveActivations, 0) / parts;
    },
    async forward({ kernels }, { microBatch, slice }, input, fields, into, age, dropout) {
      const keys = keysOf(parts, microBatch, slice), isOne = keys.length === 1;
      const batches = isOne ? [fields] : cutFields(fields);
      const outputs: Passed[] = [], isLoss = kernels.isLast;
      for (const [i, key] of keys.entries()) {
        const { output } = await kernels.forward(
          key,
          input && (isOne ? input : cutPart(input, i)),
          batches[i]!,
          isOne ? into : undefined,
          age,
          halves === 1 ? dropout : dropout && { ...dropout, half: i as 0 | 1 },
        );
        outputs.push(output);
      }
      return { output: isOne || isLoss ? joinPassed(outputs, join) : joinAll(outputs), isLoss };
    },
    async recompute({ kernels }, { microBatch, slice }) {
      for (const key of keysOf(parts, microBatch, slice)) await kernels.recompute(key);
    },
    drop({ kernels }, microBatch) {
      for (const key of keysOf(parts, microBatch)) kernels.drop(key);
    },
    async backward({ kernels }, { kind, microBatch, half, slice }, gradient, lossScale, into) {
      const keys = keysOf(parts, microBatch, slice ?? half), isOne = keys.length === 1;
      const outputs: Passed[] = [], inOrder = [...keys.entries()];
      for (const [i, key] of slicing ? inOrder.reverse() : inOrder) {
        const dx = await kernels.backward(
          key,
          kind as BackwardKind,
          gradient && (isOne ? gradient : cutPart(gradient, i)),
          lossScale,
          isOne ? into : undefined,
        );
        if (dx) outputs[i] = dx;
      }
      if (outputs.length === 0) return undefined;
      return isOne ? outputs[0] : joinAll(outputs);
    },
  };
}

/** The keys under which kernels know a micro-batch in some parts, or one of its halves or slices. */
const keysOf = (parts: number, microBatch: number, part?: number): number[] =>
  part === undefined
    ? Array.from({ length: parts }, (_, index) => parts * microBatch + index)
    : [parts * microBatch + part];

/** How arrays and fields of a micro-batch are cut into halves or slices, and put together again. */
function cutting(halves: 1 | 2, slicing: Slicing | undefined) {
  if (!slicing) {
    return {
      cutPart: (passed: Passed, index: number) =>
        mapPassed(passed, (array) => cut(array, index, halves)),
      cutFields: (fields: Batch) => splitBatch(fields, halves),
      joinAll: (parts: readonly Passed[]) => joinPassed(parts, join),
    };
  }
  return {
    cutPart: (passed: Passed, index: number) =>
      mapPassed(passed, (array) => sliceOf(array, slicing, index)),
    cutFields: (fields: Batch) =>
      Array.from({ length: slicing.slices }, (_, index) => sliceBatch(fields, slicing, index)),
    joinAll: (parts: readonly Passed[]) =>
      joinPassed(parts, (arrays) => joinSlices(arrays, slicing)),
  };
}

/** All that some stages hold; of a name that several have, the last one's. */
export function joinStates(parts: readonly StageState[]): StageState {
  return {
    weights: new Map(parts.flatMap(({ weights }) => [...weights])),
    moments: new Map(parts.flatMap(({ moments }) => [...moments])),
  };
}

/** How a state travels: its arrays move. */
export function moved({ weights, moments }: StageState): { transfer: ArrayBuffer[] } {
  const arrays = [...weights.values(), ...moments.values()];
  return { transfer: arrays.map(({ buffer }) => buffer as ArrayBuffer) };
}

/** The sum of several stages. */
export function sumMemory(stages: readonly StageMemory[]): StageMemory {
  const add = <T extends object>(parts: readonly T[]): T =>
    Object.fromEntries(
      Object.keys(parts[0]!).map((key) => [
        key,
        parts.reduce((sum, part) => sum + (part as Record<string, number>)[key]!, 0),
      ]),
    ) as T;
  return {
    device: add(stages.map(({ device }) => device)),
    host: add(stages.map(({ host }) => host)),
  };
}
