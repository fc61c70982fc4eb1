/**
 * What `train()` is asked to do, checked at the door.
 *
 * @module
 */

import {
  ADAMW_DEFAULTS,
  type Batch,
  compileModel,
  cutIntoStages,
  type DeviceName,
  elementCount,
  initialValues,
  type LearningRate,
  type Model,
  type ModelProgram,
  type OptimizerOptions,
  type Recompute,
  resolveDevice,
  type StageState,
} from "../kernels/mod.ts";
import { createSchedule, type Schedule, type ScheduleOptions } from "../schedules/mod.ts";
import { checkWritable } from "./checkpoint.ts";
import type { EngineOptions } from "./engine.ts";
import { describePlan, type Plan } from "./plan.ts";
import { assertTrainable } from "./trainable.ts";
import { readWeights } from "./weights.ts";

/** Where actors run: a Deno worker for each, one isolate for all, or no actors at all. */
export type RuntimeName = "workers" | "local" | "serial";

/** What `train()` is asked to do. */
export interface TrainOptions {
  /** What trains. */
  readonly model: Model;
  /**
   * Micro-batches in global order: the first `microBatches` are those of step 1. After a resume the
   * micro-batches of the steps already done are skipped.
   */
  readonly data: Iterable<Batch> | AsyncIterable<Batch>;
  /** Optimizer steps of the whole run, those before a resume included. */
  readonly steps: number;
  /** Micro-batches of one step, N. Default 4. */
  readonly microBatches?: number;
  /** Workers of the pipeline, D. Default 1. */
  readonly workers?: number;
  /** A schedule's name, or a schedule of one's own for the same workers and micro-batches. */
  readonly schedule?: string | Schedule;
  /** Options of a schedule that is given by name: `pipelineLimit`, `order` and the like. */
  readonly scheduleOptions?: Partial<ScheduleOptions>;
  /** Default `auto`: native where it loads, else wasm. */
  readonly device?: DeviceName | "auto";
  /** Default `workers`. */
  readonly runtime?: RuntimeName;
  /** Default `none`. */
  readonly recompute?: Recompute;
  /** Default AdamW with betas 0.9 and 0.999, ε 1e-8, weight decay 0.01. */
  readonly optimizer?: OptimizerOptions;
  /** A constant rate, or a schedule of it. Default 1e-3. */
  readonly learningRate?: number | Omit<LearningRate, "steps">;
  /** Seed of the first weights. Default 1. */
  readonly seed?: number;
  /** First weights in place of drawn ones: by name, or a safetensors file ({@linkcode readWeights}). */
  readonly weights?: ReadonlyMap<string, Float32Array> | string | undefined;
  /** Where a run goes on: the steps done, weights and moments, as a checkpoint gives them. */
  readonly resume?: { readonly step: number; readonly state: StageState } | undefined;
  /** Held-out micro-batches and after how many steps they are evaluated. */
  readonly evaluation?: {
    readonly every: number;
    readonly batches: readonly Batch[];
    /** Whether to evaluate before the first step too. */
    readonly atStart?: boolean;
  } | undefined;
  /** Where checkpoints go, after how many steps, and what their `config.json` says. */
  readonly checkpoint?: {
    readonly directory: string;
    /** Default: at the end only. */
    readonly every?: number | undefined;
    readonly config: Readonly<Record<string, unknown>>;
  } | undefined;
  /** Ends the run after the step under way, with a checkpoint. */
  readonly signal?: AbortSignal;
  /** Told in words: which device is used and why, and what is fetched. */
  readonly announce?: (line: string) => void;
}

/** Everything that a run is made from: options checked, defaults filled in. */
export interface PreparedRun extends EngineOptions {
  /** Optimizer steps of the whole run. */
  readonly steps: number;
  /** Micro-batches of one step. */
  readonly microBatches: number;
  /** Where actors run. */
  readonly runtime: RuntimeName;
  /** The learning rate of each step. */
  readonly rate: LearningRate;
  /** What is about to run. */
  readonly plan: Plan;
}

/**
 * Checks the options of a run and fills in its defaults; fetches the device where needed.
 *
 * @throws {RangeError} {@linkcode TypeError} {@linkcode SyntaxError} in one sentence for the user.
 */
export async function prepareRun(options: TrainOptions): Promise<PreparedRun> {
  const { steps, microBatches = 4, workers = 1, runtime = "workers" } = options;
  for (const [name, value] of Object.entries({ steps, microBatches, workers })) {
    if (!Number.isSafeInteger(value) || value < 1) {
      throw new RangeError(`Cannot train: ${name} must be a positive integer, received ${value}`);
    }
  }
  const { schedule: named = "1f1b" } = options;
  const scheduleOptions: ScheduleOptions = { ...options.scheduleOptions, workers, microBatches };
  const schedule = typeof named === "string" ? createSchedule(named, scheduleOptions) : named;
  if (schedule.microBatches !== microBatches) {
    throw new RangeError(
      `Cannot train: the schedule must be for ${microBatches} micro-batches, received ${schedule.microBatches}`,
    );
  }
  assertTrainable(schedule);
  const model = compileModel(options.model, options.recompute ?? "none");
  const state = await firstState(model, options);
  const { learningRate = 1e-3 } = options;
  const rate: LearningRate = typeof learningRate === "number"
    ? { rate: learningRate, schedule: "constant", warmup: 0, steps }
    : { ...learningRate, steps };
  cutIntoStages(model, schedule.stages); // refuses too many stages before a device is fetched
  if (options.checkpoint) await checkWritable(options.checkpoint.directory);
  const device = await resolveDevice(options.device ?? "auto", options.announce);
  const plan = describePlan(model, schedule, { runtime, device: device.name });
  const optimizer = options.optimizer ?? ADAMW_DEFAULTS;
  return {
    steps,
    microBatches,
    runtime,
    schedule,
    scheduleOptions,
    model,
    state,
    rate,
    plan,
    device,
    optimizer,
  };
}

/** Weights and moments before the first step: resumed, given or drawn. */
async function firstState(
  { parameters }: ModelProgram,
  { resume, weights, seed = 1 }: TrainOptions,
): Promise<StageState> {
  if (resume) {
    checkWeights(parameters, resume.state.weights);
    return resume.state;
  }
  const moments = new Map();
  if (typeof weights === "string") {
    return { weights: await readWeights(weights, parameters), moments };
  }
  if (weights) {
    checkWeights(parameters, weights);
    return { weights, moments };
  }
  const drawn = parameters.map(({ name, spec }) =>
    [name, initialValues(spec, name, seed)] as const
  );
  return { weights: new Map(drawn), moments };
}

/** The weights must be those of the model, no fewer and no more. */
function checkWeights(
  parameters: ModelProgram["parameters"],
  weights: ReadonlyMap<string, Float32Array>,
): void {
  for (const { name, shape } of parameters) {
    const received = weights.get(name)?.length ?? "none";
    if (received === elementCount(shape)) continue;
    throw new RangeError(
      `Cannot train from these weights: "${name}" must have ${
        elementCount(shape)
      } values, received ${received}; are they of another model?`,
    );
  }
  const known = new Set(parameters.map(({ name }) => name));
  const unknown = [...weights.keys()].find((name) => !known.has(name));
  if (unknown !== undefined) {
    throw new RangeError(
      `Cannot train from these weights: each must be a parameter of the model, received "${unknown}"; are they of another model?`,
    );
  }
}
