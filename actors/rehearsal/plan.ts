/**
 * What is rehearsed: a training run so small that its stand-ins for kernels cost next to nothing.
 *
 * @module
 */

import type {
  Batch,
  InputSpec,
  LayerProgram,
  ModelProgram,
  OutputSpec,
  StageState,
  TensorSpec,
} from "../../kernels/mod.ts";
import { ADAMW_DEFAULTS, valuesForm } from "../../kernels/mod.ts";
import {
  createSchedule,
  parts,
  type Schedule,
  type ScheduleOptions,
  type SkipEdge,
  withEdges,
} from "../../schedules/mod.ts";
import type { EngineOptions } from "../run/engines/engine.ts";
import type { SyncStrategy } from "../commit/eager_stages.ts";
import type { StepRequest } from "../pipeline/step.ts";
import { UPDATE_POLICIES } from "../pipeline/update_policy.ts";
import { assertServable, assertTrainable } from "../run/options/trainable.ts";

/** A rehearsal as plain data. */
export interface RehearsalPlan {
  /** Name of the schedule. */
  readonly schedule: string;
  /** Workers of the pipeline, D. Default 4. */
  readonly workers?: number;
  /** Micro-batches of a step and a replica, N. Default 8. */
  readonly microBatches?: number;
  /** Data-parallel replicas, W. Default 2; 1 without flushes, which have no others. */
  readonly replicas?: number;
  /** Optimizer steps. Default 1. */
  readonly steps?: number;
  /**
   * Steps from one pause to the next, in which the pipe runs empty and a micro-batch is evaluated.
   * Default: none.
   */
  readonly pauseEvery?: number;
  /** Options of the schedule. */
  readonly options?: Partial<ScheduleOptions>;
  /**
   * Values that stages give to later ones by name; a mask, of type bool, where one has no gradient.
   * Default: none, the stages are a chain.
   */
  readonly edges?: readonly SkipEdge[];
  /** When the all-reduce of a stage starts. Default `end`. */
  readonly sync?: SyncStrategy;
  /** The most that the norm of all gradients may be. */
  readonly clip?: number;
  /** Whether a worker may be lost, as where faults are injected. Default false. */
  readonly mayLose?: boolean;
}

/** Values of a sample between layers, which is also how many weights a layer has. */
const WIDTH = 12;

/** Elements of a bucket: three of them a layer, so that the second chunk waits for the first. */
const BUCKET_SIZE = 4;

/** Samples of a micro-batch; two, as some schedules halve it. */
const SAMPLES = 2;

/** So high that the last bit of a gradient shows in the weights. */
const LEARNING_RATE = 1;

/** A step in which nobody says anything for so long, in virtual time, has stalled. */
const STALL_MS = 60_000;

/** What its engines are made from: values that a test may change. */
interface RehearsalOptions extends EngineOptions {
  readonly state: StageState;
}

/** A plan, ready to be rehearsed any number of times. */
export interface PreparedRehearsal {
  readonly options: RehearsalOptions;
  readonly requests: readonly StepRequest[];
}

/** Prepares a plan. @throws {RangeError} when the plan cannot train. */
export function prepareRehearsal(plan: RehearsalPlan): PreparedRehearsal {
  const options = optionsOf(plan);
  return { options, requests: requestsOf(plan, options) };
}

/** Checks that the weights are those of the serial loop. */
export function assertSerial(weightsHash: string, expected: string): void {
  if (weightsHash === expected) return;
  throw new Error(
    `Cannot end: the weights must be the serial ${expected}, received ${weightsHash}`,
  );
}

function optionsOf(plan: RehearsalPlan): RehearsalOptions {
  const { workers = 4, microBatches = 8, sync = "end", clip } = plan;
  const scheduleOptions: ScheduleOptions = { ...plan.options, workers, microBatches };
  const chain = createSchedule(plan.schedule, scheduleOptions);
  const schedule = plan.edges ? withEdges(chain, plan.edges) : chain;
  assertTrainable(schedule);
  const { replicas = UPDATE_POLICIES[schedule.updates].isFlushed ? 2 : 1 } = plan;
  assertServable(schedule, { replicas, sync, clip, precision: "fp32", ties: 0 });
  const all = (schedule.lists ?? []).flatMap((list) => [...list]).flatMap(parts);
  const halves = all.some(({ half }) => half !== undefined) ? 2 : 1;
  const model = modelOf(schedule, SAMPLES / halves);
  if (schedule.slices && WIDTH % schedule.slices !== 0) {
    throw new RangeError(
      `Cannot rehearse: slices must divide the ${WIDTH} values of a sample, received ${schedule.slices}`,
    );
  }
  return {
    model,
    state: {
      weights: new Map(model.parameters.map(({ name }, n) => [name, valuesOf(WIDTH, n)])),
      moments: new Map(),
    },
    schedule,
    scheduleOptions,
    replicas,
    halves,
    predictionsOf: () => SAMPLES,
    devices: [{ name: "reference" }],
    isRehearsed: true,
    stage: {
      optimizer: ADAMW_DEFAULTS,
      backward: all.some(({ kind }) => kind === "W") ? "split" : "whole",
      bucketSize: BUCKET_SIZE,
    },
    sync,
    reduce: "deterministic",
    coarsening: 1,
    clip,
    stallMs: STALL_MS,
    isTraced: false,
    seed: 0,
  };
}

function requestsOf(
  { steps = 1 }: RehearsalPlan,
  { schedule, replicas }: EngineOptions,
): StepRequest[] {
  const count = replicas * schedule.microBatches;
  return Array.from({ length: steps }, (_, t): StepRequest => ({
    step: t + 1,
    update: t + 1,
    microBatches: Array.from({ length: count }, (_, g): Batch => ({
      rows: valuesOf(SAMPLES * WIDTH, t * count + g),
    })),
    predictions: count * SAMPLES,
    learningRate: LEARNING_RATE,
    lossScale: 1,
  }));
}

/** Values from −1 to 1 with so many bits that f32 sums of them depend on their order. */
function valuesOf(length: number, nth: number): Float32Array {
  return Float32Array.from(
    { length },
    (_, i) => 2 * ((i * 7919 + nth * 104_729 + 1) % 10_007) / 10_007 - 1,
  );
}

/** What each layer gives by name and takes, a layer for each stage. */
function skipsOf({ stages, edges = [] }: Schedule, shape: readonly number[]) {
  const values = edges.map(({ from, to, hasGradient = true }, i) => {
    const dtype = hasGradient ? "f32" as const : "bool" as const;
    const spec: TensorSpec = { name: `skip.${i}`, dtype, shape };
    return { from, to, last: Math.max(...to), spec, hasGradient };
  });
  return Array.from({ length: stages }, (_, layer) => ({
    outputs: values.filter(({ from }) => from === layer)
      .map(({ spec, hasGradient }): OutputSpec => ({ ...spec, hasGradient })),
    inputs: values.filter(({ to }) => to.includes(layer))
      .map(({ spec, last, hasGradient }): InputSpec => ({
        ...spec,
        ...hasGradient && { gradient: layer === last ? "written" : "added" },
      })),
  }));
}

/** A layer for each stage. */
function modelOf(schedule: Schedule, samples: number): ModelProgram {
  const { stages, slices = 1 } = schedule, width = WIDTH / slices;
  const tensor = (name: string, ...shape: number[]): TensorSpec => ({ name, dtype: "f32", shape });
  const skips = skipsOf(schedule, [samples, width]);
  const weight = {
    name: "weight",
    shape: [WIDTH],
    initializer: { kind: "constant", value: 0 },
  } as const;
  const programs = Array.from({ length: stages }, (_, layer): LayerProgram => ({
    parameters: [weight],
    fields: layer === 0 ? [tensor("rows", samples, width)] : [],
    ...valuesForm([
      ...layer > 0 ? [{ ...tensor("x", samples, width), gradient: "written" as const }] : [],
      ...skips[layer]!.inputs,
    ], [{
      ...layer < stages - 1 ? tensor("x", samples, width) : tensor("x", samples),
      hasGradient: true,
    }, ...skips[layer]!.outputs]),
    isLoss: layer === stages - 1,
    precision: "fp32",
    saved: [],
    carried: [],
    models: { forward: new Uint8Array() },
    cost: { forward: 1, backward: 2 },
  }));
  const layers = programs.map((_, layer) => {
    const name = `layer.${layer}`;
    return { name, prefix: `${name}.`, program: layer };
  });
  return {
    name: "rehearsal",
    predictions: SAMPLES,
    programs,
    layers,
    parameters: layers.map(({ prefix }) => ({
      name: `${prefix}weight`,
      shape: weight.shape,
      spec: weight,
      isFrozen: false,
    })),
    ties: [],
    costs: programs.map(({ cost }) => cost.forward + cost.backward),
    ...slices > 1 && { slicing: { slices, samples } },
  };
}
