/**
 * Candidates of a plan and their forecasts: lower bounds, memory and predicted steps.
 *
 * @module
 */

import {
  compileModel,
  DEVICE_NAMES,
  type Model,
  type ModelProgram,
  type OptimizerOptions,
  type Precision,
  type Recompute,
} from "../../kernels/mod.ts";
import { formatLayout, refusal, startsOf, stateCount } from "../../kernels/internal.ts";
import { heldBytes } from "../../schedules/analysis/memory.ts";
import {
  findSchedule,
  type Schedule,
  type ScheduleOptions,
  type SimulatedStep,
  type StageModel,
  type StepModel,
  type WorkerTimes,
} from "../../schedules/mod.ts";
import { halvesOf, splitsBackward } from "../../schedules/internal.ts";
import { reduceHalf } from "../../schedules/simulator/step_end.ts";
import type { RunOptions } from "../options/train_options.ts";
import { pipelineCount } from "../pipeline/layout.ts";
import { compileRun } from "../run/compile.ts";
import { type CompiledRun, limitedBytes } from "../run/memory.ts";
import { assertServable } from "../run/prepare.ts";
import {
  type FoundCost,
  mapFields,
  meansOfFields,
  openCosts,
  optimizerMs,
  recommendLayout,
} from "./costs.ts";
import { type Prediction, predictRun, predictWithin } from "./predict.ts";
import { type LayerFacts, type LoadCost, type Profile, slicedFacts } from "./profile.ts";

/**
 * Returns a lower bound of the step's milliseconds. Each worker waits for its first input, runs all
 * its actions, and its last gradient travels back to the first stage; then the step ends. So the
 * bound depends on the placement, but not on the order.
 *
 * @param model of a schedule with the same placement, for any number of micro-batches.
 * @param microBatches of the bounded step.
 */
export function leastStepMs(model: StepModel, microBatches: number): number {
  const { schedule, stages, slowdowns, jitter, overlapMs } = model;
  const forward = stages.map(({ forwardMs }) => forwardMs);
  const backward = stages.map(({ backwardMs, inputMs, weightMs }) =>
    inputMs === undefined || weightMs === undefined
      ? backwardMs
      : Math.min(backwardMs, inputMs + weightMs)
  );
  const each = Math.floor(microBatches / pipelineCount(schedule));
  const work = stages.map(({ recomputeMs = 0 }, stage) => {
    const [one, other] = [forward[stage]!, backward[stage]! + recomputeMs];
    return each * (overlapMs === undefined ? one + other : Math.max(one, other));
  });
  // The time of a first input to the stage, and of its gradient back. Backwards for the weights may
  // come later. Slices are shorter, and half a backward takes half as long.
  const { isSplit, isHalved } = backwardsOf(schedule), part = isHalved ? 0.5 : 1;
  const heads = sumsBefore(forward);
  const tails = isSplit ? undefined : sumsBefore(backward.map((time) => part * time));
  const least = (times: readonly number[], worker: number) =>
    Math.min(...schedule.placement[worker]!.map(({ stage }) => times[stage]!));
  const fastest = Math.min(1, ...slowdowns ?? []);
  const bounds = schedule.placement.map((held, worker) => {
    const own = held.reduce((sum, { stage }) => sum + work[stage]!, 0);
    const travel = schedule.slices === undefined
      ? least(heads, worker) + (tails ? least(tails, worker) : 0)
      : 0;
    return fastest * travel + (slowdowns?.[worker] ?? 1) * own;
  });
  const shortest = jitter?.law === "around" ? 1 - jitter.amount : 1;
  return shortest * Math.max(...bounds) + leastStepEndMs(model);
}

/** Returns for each number the sum of the previous ones. */
function sumsBefore(numbers: readonly number[]): number[] {
  let sum = 0;
  return numbers.map((one) => (sum += one) - one);
}

/** Returns the longer of the optimizer of the fullest worker and the all-reduce of one stage. */
function leastStepEndMs({ schedule, stages, closing, network, replicas = 1 }: StepModel): number {
  const { algorithm = "direct", eagerStages = [], protocol = "commit" } = closing ?? {};
  if (closing === undefined || protocol !== "commit" || schedule.updates !== "flush") return 0;
  const link = closing.link ?? network?.link ?? { latencyMs: 0 };
  const optimizers = schedule.placement.map((held) =>
    held.reduce((sum, { stage }) => sum + (stages[stage]!.optimizerMs ?? 0), 0)
  );
  const copies = replicas * pipelineCount(schedule);
  const reduces = stages.map(({ gradientBytes = 0 }, stage) =>
    eagerStages.includes(stage)
      ? 0
      : 2 * reduceHalf(algorithm, copies, gradientBytes, link).transferMs
  );
  return Math.max(0, ...optimizers, ...reduces);
}

/**
 * Returns a lower bound of the fullest worker's bytes for any order: weights, gradients, optimizer
 * state, and the activations of one micro-batch of one stage.
 */
export function leastBytes({ schedule, stages }: StepModel): number {
  return Math.max(...schedule.placement.map((held, worker) => {
    const memory = held.map(({ stage }) => stages[stage]!.memory);
    const known = memory.map((one) => one ?? { keptBytes: 0 });
    const fixed = heldBytes(known, schedule.weightVersions[worker] ?? 1);
    const kept = memory.map((one) => (one?.keptBytes ?? 0) + (one?.workBytes ?? 0));
    // Each half of a micro-batch keeps one half.
    return fixed + Math.max(...kept) / 2;
  }));
}

const known = new WeakMap<Schedule, { readonly isSplit: boolean; readonly isHalved: boolean }>();

/**
 * Returns whether backwards are split into I and W, and whether they run in halves. Results are kept,
 * since many candidates share a schedule.
 */
function backwardsOf(schedule: Schedule) {
  return known.getOrInsertComputed(schedule, () => ({
    isSplit: splitsBackward(schedule),
    isHalved: halvesOf(schedule) > 1,
  }));
}

/** Options of schedules that the planner varies. */
type VariedOptions = Omit<
  ScheduleOptions,
  "workers" | "microBatches" | "found" | "sizes" | "costs" | "edges"
>;

/** A configuration of a run. A missing layout has stages of similar work. */
export interface Candidate
  extends
    Required<Pick<RunOptions, "workers" | "replicas" | "microBatches" | "recompute" | "precision">>,
    Pick<RunOptions, "bucketSize" | "coarsening" | "layout"> {
  /** Name of the schedule. */
  readonly schedule: string;
  /** Options of the schedule, apart from its size. */
  readonly options: VariedOptions;
  /** Samples of a micro-batch, B. */
  readonly microBatch: number;
}

/** Search space of a plan. */
export interface PlanSpace {
  /** Workers of all replicas together, P. */
  readonly devices: number;
  /** True to try fewer of them, too. Default false. */
  readonly takesFewer?: boolean | undefined;
  /** Samples of a step of all replicas together. */
  readonly batch: number;
  /** Layers of the model; each stage has at least one. */
  readonly layers: number;
  /** Names of the schedules. */
  readonly schedules: readonly string[];
  /** Allowed depths D. Default: all. */
  readonly workers?: readonly number[] | undefined;
  /** Allowed micro-batch sizes B. Default: all. */
  readonly microBatch?: readonly number[] | undefined;
  /** Allowed recomputation policies. */
  readonly recompute: readonly Recompute[];
  /** Allowed precisions. */
  readonly precision: readonly Precision[];
  /** Sizes of a bucket to try, besides that of the device. */
  readonly bucketSizes?: readonly number[] | undefined;
  /** Values of k to try, besides that of `train`. */
  readonly coarsenings?: readonly number[] | undefined;
}

/** Limits of chunks, waves, and pipelines in one direction. */
const CHUNKS_MAX = 4, WAVES_MAX = 4, PIPELINES_MAX = 4;

/** Depth, replicas, micro-batch size and number of micro-batches. */
type Sizes = Pick<Candidate, "workers" | "replicas" | "microBatch" | "microBatches">;

/** Returns the divisors of a number in ascending order. */
export function divisorsOf(number: number): number[] {
  const low: number[] = [], high: number[] = [];
  for (let one = 1; one * one <= number; one++) {
    if (number % one !== 0) continue;
    low.push(one);
    if (one * one < number) high.unshift(number / one);
  }
  return [...low, ...high];
}

/** Maximum number of devices up to which every smaller number is tried. */
const EVERY_COUNT_MAX = 16;

/** Returns the numbers of devices to try, the most first. */
function countsOf({ devices, takesFewer = false }: Pick<PlanSpace, "devices" | "takesFewer">) {
  if (!takesFewer) return [devices];
  return devices <= EVERY_COUNT_MAX
    ? Array.from({ length: devices }, (_, i) => devices - i)
    : [1, 7 / 8, 3 / 4, 1 / 2].map((share) => Math.floor(share * devices));
}

/**
 * Returns all sizes with D·W devices and W·B·N samples.
 *
 * @throws {RangeError} when no allowed depth leaves replicas that divide the batch.
 */
export function sizesOf(space: Omit<PlanSpace, "recompute" | "precision">): Sizes[] {
  const { devices, batch } = space, depths = depthsOf(space, devices);
  const sizes = countsOf(space).flatMap((count) => sizesOn(space, count));
  if (sizes.length > 0) return sizes;
  if (depths.length === 0) {
    const must = "the workers of a pipeline must divide them and be at most the " +
      `${space.layers} layers of the model`;
    throw refusal(`plan for ${devices} devices`, must, space.workers?.join(", ") ?? "none");
  }
  const least = Math.min(...depths.map((depth) => devices / depth));
  const fixed = space.microBatch === undefined
    ? ""
    : ` times the micro-batch ${space.microBatch.join(" or ")}`;
  const most = `since a pipeline has at most ${depths.at(-1)} workers`;
  const must =
    `it must be a multiple of the replicas${fixed}, of which there are at least ${least}`;
  throw refusal(`plan a batch of ${batch} for ${devices} devices`, `${must} ${most}`, batch);
}

type SizedSpace = Omit<PlanSpace, "recompute" | "precision">;

const depthsOf = ({ layers, workers }: SizedSpace, devices: number): number[] =>
  divisorsOf(devices).filter((depth) => depth <= layers && (workers?.includes(depth) ?? true));

/** Returns all sizes with this number of devices. */
function sizesOn(space: SizedSpace, devices: number): Sizes[] {
  return depthsOf(space, devices).flatMap((workers) => {
    const replicas = devices / workers, samples = space.batch / replicas;
    if (!Number.isInteger(samples)) return [];
    return divisorsOf(samples)
      .filter((microBatch) => space.microBatch?.includes(microBatch) ?? true)
      .map((microBatch) => ({ workers, replicas, microBatch, microBatches: samples / microBatch }));
  });
}

/** Values of K of BFW: with more, a step is less than 1 % shorter. */
const BACKLOGS = [1, 2] as const;

/** Returns the limits to try of micro-batches in flight, or of activations. */
function limitsOf(workers: number, microBatches: number): number[] {
  const limits = [workers, Math.ceil(1.5 * workers), 2 * workers - 1];
  return [...new Set(limits.map((limit) => Math.min(limit, microBatches)))];
}

/** Returns the options to try with message-driven. */
function messageDrivenVariants(workers: number, microBatches: number): VariedOptions[] {
  const limits = limitsOf(workers, microBatches);
  const ofReady = limits.flatMap((activationLimit) =>
    [1, 2].flatMap((chunks): VariedOptions[] => [
      { order: "bf", chunks, activationLimit },
      ...BACKLOGS.map((weightBacklog) =>
        ({ order: "bfw", chunks, activationLimit, weightBacklog }) as const
      ),
    ])
  );
  return [
    ...limits.map((pipelineLimit) => ({ order: "fifo", pipelineLimit }) as const),
    ...ofReady,
  ];
}

/** Returns the options to try with a schedule. */
function variantsOf(name: string, workers: number, microBatches: number): VariedOptions[] {
  if (name === "message-driven") return messageDrivenVariants(workers, microBatches);
  const { reads = [] } = findSchedule(name);
  const upTo = (most: number, from = 1) =>
    Array.from({ length: most - from + 1 }, (_, i) => i + from);
  const choices: { readonly [Name in keyof VariedOptions]?: readonly VariedOptions[Name][] } = {
    chunks: upTo(CHUNKS_MAX, 2),
    waves: upTo(WAVES_MAX),
    slices: [2, 4],
    pipelines: upTo(PIPELINES_MAX).filter((f) => (workers / 2) % f === 0),
    scale: microBatches > workers ? ["direct", "doubling", "halving"] : ["direct"],
    pipelineLimit: limitsOf(workers, microBatches),
  };
  let variants: VariedOptions[] = [{}];
  for (const [option, values] of Object.entries(choices)) {
    if (!reads.includes(option)) continue;
    variants = variants.flatMap((one) => values.map((value) => ({ ...one, [option]: value })));
  }
  return variants;
}

/** Returns all candidates, in an order that depends only on the space. */
export function candidatesOf({ recompute, precision, ...space }: PlanSpace): Candidate[] {
  const how = recompute.flatMap((recompute) =>
    precision.map((precision) => ({ recompute, precision }))
  );
  return sizesOf(space).flatMap((sizes) => {
    const { workers, microBatches } = sizes;
    return (workers === 1 ? ofOneWorker(space.schedules) : space.schedules).flatMap((schedule) =>
      variantsOf(schedule, workers, microBatches).flatMap((options) =>
        how.map((one) => ({ schedule, options, ...sizes, ...one }))
      )
    );
  });
}

/** On one worker all schedules are equal, except for memory: 1F1B needs least. */
const ofOneWorker = (schedules: readonly string[]) =>
  schedules.includes("1f1b") ? ["1f1b"] : schedules.slice(0, 1);

/** Prediction of a candidate's step. */
interface ForecastStep {
  /** Milliseconds from the request of the step to its answer. */
  readonly stepMs: number;
  /** The simulated step, with the use of each worker's time. */
  readonly simulated: Pick<SimulatedStep, "workers" | "makespanMs">;
  /** Lower bound of the step's milliseconds with any buckets and chunks. Default 0. */
  readonly leastTunedMs?: number;
  /** Additional milliseconds due to varied durations. Default 0. */
  readonly variedMs?: number;
  /** Reasons for a larger error. */
  readonly notes?: readonly string[];
}

/** Predicts candidates. Each method throws a RangeError with the reason if a candidate cannot run. */
export interface Forecast {
  /**
   * Returns the least milliseconds of a step that share the work of a replica evenly among its workers: a
   * lower bound for any schedule. Without it, candidates are bounded by their schedules only.
   */
  leastWorkMs?(candidate: Candidate): number;
  /**
   * Returns a model whose costs are at most those of {@linkcode Forecast.step}. The schedule may have
   * another number of micro-batches.
   */
  least(candidate: Candidate, schedule: Schedule): StepModel;
  /** Returns the bytes of each worker that count for the memory limit. */
  bytes(candidate: Candidate, schedule: Schedule): readonly number[];
  /** Predicts the step with mean durations; undefined only if it takes more than `mostMs`. */
  step(candidate: Candidate, schedule: Schedule, mostMs?: number): ForecastStep | undefined;
  /** Predicts the step with varied durations, if these are known; called for the best candidates. */
  varied?(candidate: Candidate, schedule: Schedule): ForecastStep;
  /**
   * Returns a better layout than that of equal work, if one is found quickly; called for the best
   * candidates.
   */
  layout?(candidate: Candidate, schedule: Schedule): string | undefined;
}

/** Options of all candidates. */
interface ForecastOptions {
  /** The model, which is built again for other micro-batch sizes. */
  readonly model: Model;
  /** The optimizer. */
  readonly optimizer: OptimizerOptions;
  /** Name of the device in the profile. */
  readonly device: string;
  /** Name of the transport in the profile. */
  readonly transport: string;
  /** Maximum norm of the gradients. Default: no clipping. */
  readonly clip?: number | undefined;
  /** True to refuse schedules without a flush, which cannot clip; else they run without clipping. */
  readonly mustClip?: boolean | undefined;
}

/** Minimum cost of a layer for a micro-batch, over all loads. */
type LeastLayer = Omit<FoundCost, "recomputeMs"> & Pick<LayerFacts, "parameters">;

/** A compiled model with the minimum cost of each layer. */
interface LeastModel {
  readonly program: ModelProgram;
  readonly layers: readonly LeastLayer[];
  /** Minimum milliseconds of all layers, forward and backward. */
  readonly workMs: number;
  /** Stages by their number and the workers of all replicas. */
  readonly stages: Map<string, readonly StageModel[]>;
}

/**
 * Opens a forecast from a profile.
 *
 * Its methods throw a RangeError if the profile has no cost of a layer or transport.
 */
export function openForecast(profile: Profile, options: ForecastOptions): Forecast {
  const { optimizer, device, transport, clip } = options, models = openModels(options);
  const { compile, sampled } = models, leastModel = openLeast(profile, options, models);
  const costs = openCosts(profile, device), link = profile.links[transport];
  const network = link && { link };
  // A stated profile may name a device that this package does not support.
  const name = DEVICE_NAMES.find((known) => known === device);
  const compiled = new WeakMap<Schedule, Map<string, CompiledRun>>();
  const compiledRun = (candidate: Candidate, schedule: Schedule): CompiledRun => {
    const ofSchedule = compiled.getOrInsertComputed(schedule, () => new Map());
    const { microBatch, recompute, precision, replicas, bucketSize, layout } = candidate;
    const how = { recompute, precision, replicas, optimizer, bucketSize, layout };
    const key = `${bucketSize} ${layout}`;
    return ofSchedule.getOrInsertComputed(
      key,
      () => compileRun({ model: sampled(microBatch), ...how }, schedule, name, compile),
    );
  };
  const runOf = (candidate: Candidate, schedule: Schedule) => {
    const { replicas, coarsening, microBatch } = candidate;
    const how = { device, transport, replicas, coarsening, clip, microBatch };
    return { schedule, compiled: compiledRun(candidate, schedule), ...how };
  };
  const leastOf = (candidate: Candidate) => {
    const { microBatch, options: { scale } } = candidate, halves = scale === "halving" ? 2 : 1;
    return { halves, model: leastModel({ ...candidate, microBatch: microBatch / halves }) };
  };
  return {
    leastWorkMs(candidate) {
      const { microBatches, workers } = candidate, { halves, model } = leastOf(candidate);
      return microBatches * halves * model.workMs / workers;
    },
    least(candidate, schedule) {
      const { replicas, precision } = candidate, { model: { ties = [] }, mustClip } = options;
      const needs = { replicas, precision, ties: ties.length, ...mustClip && { clip } };
      assertServable(schedule, { ...needs, sync: "end" });
      const { halves, model } = leastOf(candidate);
      const atOnce = replicas * schedule.workers, key = `${schedule.stages} ${halves} ${atOnce}`;
      const how = { halves, precision, optimizer, once: costs.once(atOnce) };
      const make = () => leastStages(model, schedule.stages, how);
      const stages = model.stages.getOrInsertComputed(key, make);
      return { schedule, replicas, stages, network, closing: {} };
    },
    bytes: (candidate, schedule) =>
      compiledRun(candidate, schedule).memory.map((one) => limitedBytes(one, name ?? "webgpu")),
    step(candidate, schedule, mostMs = Infinity) {
      const mostComputedMs = (model: StepModel) =>
        mostMs - profile.closing.stepMs - leastStepEndMs(model);
      const run = { ...runOf(candidate, schedule), draws: 0 };
      const predicted = predictWithin(profile, run, mostComputedMs);
      return predicted && withLeastTuned(predicted);
    },
    layout(candidate, schedule) {
      const run = compiledRun(candidate, schedule), { replicas } = candidate;
      // A trace has no costs of layers.
      if (profile.source === "trace" || !hasQuickSearch(run, schedule)) return undefined;
      const cut = { schedule, compiled: run, device, link, replicas, work: LAYOUT_WORK };
      const { layout } = recommendLayout(profile, cut);
      return layout === layoutOf(run) ? undefined : layout;
    },
    ...(profile.variation ?? []).length > 0 && {
      varied(candidate: Candidate, schedule: Schedule) {
        const varied = predictRun(profile, runOf(candidate, schedule));
        const { stepMs, simulated } = varied;
        const variedMs = stepMs - simulated.makespanMs - profile.closing.stepMs;
        return { ...varied, variedMs };
      },
    },
  };
}

/** Adds the bound of a step with other buckets and chunks, which only change its end. */
function withLeastTuned({ stepMs, simulated, model, notes }: Prediction): ForecastStep {
  const endMs = simulated.makespanMs - simulated.computedMs;
  const leastTunedMs = stepMs - Math.max(0, endMs - leastStepEndMs(model));
  return { stepMs, simulated, leastTunedMs, notes };
}

/** Limits of a search for a layout, which takes at most a second, and usually 0.1 seconds. */
const LAYOUT_STAGES_MAX = 16, LAYOUT_LAYERS_MAX = 128, LAYOUT_FORWARDS_MAX = 1024;
const LAYOUT_WORK = 1e6;

/** Returns whether there are several cuts, within the limits of a search. */
const hasQuickSearch = ({ model }: CompiledRun, { stages, microBatches, slices = 1 }: Schedule) =>
  stages > 1 && stages <= LAYOUT_STAGES_MAX && model.layers.length <= LAYOUT_LAYERS_MAX &&
  stages * microBatches * slices <= LAYOUT_FORWARDS_MAX;

/** Returns the current layout. */
function layoutOf({ model, programs }: CompiledRun): string {
  return formatLayout(model.layers, sumsBefore(programs.map(({ layers }) => layers.length)));
}

/** Keeps compiled models, by their options. */
function openModels({ model }: ForecastOptions) {
  const programs = new Map<string, ModelProgram>();
  const compile: typeof compileModel = (source, recompute, how) => {
    if ((how?.slices ?? 1) > 1 && source.withSlices === undefined) {
      throw refusal("plan with slices", "the model must have sequences", source.name);
    }
    const key = `${source.samples} ${recompute} ${how?.precision} ${how?.slices ?? 1}`;
    return programs.getOrInsertComputed(key, () => compileModel(source, recompute, how));
  };
  const sampled = (samples: number): Model => {
    const made = model.samples === samples ? model : model.withSamples?.(samples);
    if (made) return made;
    const cannot = `plan with micro-batches of ${samples}`;
    throw refusal(cannot, "the model must have withSamples", `${model.name} without it`);
  };
  return { compile, sampled };
}

const NO_TIME = { forwardMs: 0, backwardMs: 0, inputMs: 0, weightMs: 0 };

/** Finds the minimum costs of layers. */
function openLeast(
  profile: Profile,
  { device }: ForecastOptions,
  { compile, sampled }: ReturnType<typeof openModels>,
) {
  const costs = openCosts(profile, device), known = new Map<string, LeastModel>();
  const ofLayer = (facts: LayerFacts): LeastLayer => {
    const { parameters } = facts;
    // A trace has costs of whole stages only.
    if (profile.source === "trace") return { ...NO_TIME, parameters };
    const found = costs.measured(facts);
    return {
      ...mapFields(NO_TIME, (_, name) => Math.min(...found.map((one) => one[name]))),
      parameters,
    };
  };
  return ({ microBatch, recompute, precision, options: { slices } }: Candidate): LeastModel =>
    known.getOrInsertComputed(`${microBatch} ${recompute} ${precision} ${slices}`, () => {
      const program = compile(sampled(microBatch), recompute, { precision, slices });
      const layers = slicedFacts(program).map((slice) => slice.map(ofLayer))
        .reduce((all, slice) =>
          all.map((one, i) => ({ ...sumOf(one, slice[i]!), parameters: one.parameters }))
        );
      const workMs = layers.reduce(
        (ms, { forwardMs, backwardMs, inputMs, weightMs }) =>
          ms + forwardMs + Math.min(backwardMs, inputMs + weightMs),
        0,
      );
      return { program, layers, workMs, stages: new Map() };
    });
}

/** Returns stages with the minimum cost of their layers. */
function leastStages(
  { program, layers }: LeastModel,
  count: number,
  { halves, precision, optimizer, once }: Pick<Candidate, "precision"> & {
    readonly halves: number;
    readonly optimizer: OptimizerOptions;
    readonly once: LoadCost;
  },
): StageModel[] {
  const starts = startsOf(program, count);
  return starts.map((start, stage) => {
    const { parameters, ...ms } = layers.slice(start, starts[stage + 1]).reduce(sumOf);
    return {
      ...mapFields(ms, (one) => halves * one),
      gradientBytes: (precision === "fp16" ? 2 : 4) * parameters,
      optimizerMs: optimizerMs(once, parameters),
      memory: { keptBytes: 0, weightBytes: bytesOfParameter(optimizer) * parameters },
    };
  });
}

const sumOf = (a: LeastLayer, b: LeastLayer): LeastLayer =>
  mapFields(a, (value, name) => value + b[name]);

/**
 * Returns the minimum bytes of each trained element: its value and gradient (in fp16 also the fp32
 * copy), and the optimizer's state.
 */
const bytesOfParameter = ({ kind, ema }: OptimizerOptions): number =>
  // The moments of rows and columns are far smaller than the weights.
  8 + 4 * (kind === "adafactor" ? Number(ema !== undefined) : stateCount({ kind, ema }));

/** A predicted candidate. */
export interface CandidateRun extends ReturnType<typeof candidateRun> {
  /** Reason why it is not the best; absent for the best. */
  readonly reason?: string;
}

/** Combines a candidate with its prediction. */
export function candidateRun(
  candidate: Candidate,
  { stepMs, simulated, variedMs = 0, notes = [], leastTunedMs = 0 }: ForecastStep,
  memoryBytes: readonly number[],
  batch: number,
) {
  // Varied durations lengthen the bubble; drawn steps without a wait may be slightly shorter. The rest
  // is the request of the step.
  const means = meansOfFields(simulated.workers), evenMs = means.bubbleMs;
  const bubbleMs = Math.max(0, evenMs + variedMs);
  const closingMs = means.closingMs + stepMs - simulated.makespanMs - (bubbleMs - evenMs);
  const parts: WorkerTimes = { ...means, bubbleMs, closingMs };
  return {
    ...candidate,
    /** Milliseconds of a step. */
    stepMs,
    /** Samples per second of all replicas together. */
    samplesPerSecond: 1000 * batch / stepMs,
    /** Use of the time, as the mean of the workers; the parts add up to the step. */
    parts,
    /** Share of the time in which workers wait for each other. */
    bubble: parts.bubbleMs / stepMs,
    /** Bytes of each worker of a replica. */
    memoryBytes,
    /** Bytes of the fullest worker. */
    peakBytes: Math.max(...memoryBytes),
    /** Other schedules with the same step, memory and cut. */
    alike: [] as readonly string[],
    /** Reasons for a larger error. */
    notes,
    /** Lower bound of its milliseconds with any buckets and chunks. */
    leastTunedMs,
  };
}

/** Largest relative difference of equal times, due to rounding of sums. */
export const SAME = 1e-9;

export function byTime(a: CandidateRun, b: CandidateRun): number {
  const apart = a.stepMs - b.stepMs;
  return Math.abs(apart) > SAME * a.stepMs ? apart : a.peakBytes - b.peakBytes;
}

/** Returns whether two runs have equal predictions and cuts. */
export const isAlike = (a: CandidateRun, b: CandidateRun): boolean =>
  byTime(a, b) === 0 && KEYS.every((key) => a[key] === b[key]);

const KEYS = ["workers", "microBatch", "recompute", "precision"] as const;
