/** What a planner asks of whoever predicts. */

import {
  compileModel,
  DEVICE_NAMES,
  formatLayout,
  type Model,
  type ModelProgram,
  type OptimizerOptions,
  partition,
  type Precision,
  type Recompute,
} from "../../kernels/mod.ts";
import { heldBytes } from "../../schedules/analysis/memory.ts";
import {
  findSchedule,
  parts,
  type Schedule,
  type ScheduleOptions,
  type SimulatedStep,
  type StageModel,
  type StepModel,
  type WorkerTimes,
} from "../../schedules/mod.ts";
import { reduceHalf } from "../../schedules/simulator/network.ts";
import { pipesOf } from "../pipeline/layout.ts";
import { compileRun } from "../run/compile.ts";
import { type CompiledRun, limitedBytes } from "../run/memory.ts";
import { type FoundCost, mapNumbers, openCosts, optimizerMs, recommendLayout } from "./costs.ts";
import { predictRun } from "./predict.ts";
import { type LayerFacts, type Profile, slicedFacts } from "./profile.ts";

/**
 * A lower bound of the step's time, in ms. Each worker waits until its first input can have come,
 * runs all its actions, and what follows its last backward takes as long as the way back; then the
 * step is closed. So it needs the placement, but no order.
 *
 * @param model of a schedule with the same placement, for any number of micro-batches.
 * @param microBatches of the step that is bounded.
 */
export function leastStepMs(model: StepModel, microBatches: number): number {
  const { schedule, stages, slowdowns, jitter, overlapMs } = model;
  const forward = stages.map(({ forwardMs }) => forwardMs);
  const backward = stages.map(({ backwardMs, inputMs, weightMs }) =>
    inputMs === undefined || weightMs === undefined
      ? backwardMs
      : Math.min(backwardMs, inputMs + weightMs)
  );
  const each = Math.floor(microBatches / pipesOf(schedule));
  const work = stages.map(({ recomputeMs = 0 }, stage) => {
    const [one, other] = [forward[stage]!, backward[stage]! + recomputeMs];
    return each * (overlapMs === undefined ? one + other : Math.max(one, other));
  });
  // The way of a first input, and that back; a backward for the weights may come after it. Of a slice
  // it is shorter, and of a half backward half as long.
  const { isSplit, isHalved } = backwardsOf(schedule), part = isHalved ? 0.5 : 1;
  const heads = sumsBefore(forward);
  const tails = isSplit ? undefined : sumsBefore(backward.map((time) => part * time));
  const least = (times: readonly number[], worker: number) =>
    Math.min(...schedule.placement[worker]!.map(({ stage }) => times[stage]!));
  const fastest = Math.min(1, ...slowdowns ?? []);
  const bounds = schedule.placement.map((held, worker) => {
    const own = held.reduce((sum, { stage }) => sum + work[stage]!, 0);
    const way = schedule.slices === undefined
      ? least(heads, worker) + (tails ? least(tails, worker) : 0)
      : 0;
    return fastest * way + (slowdowns?.[worker] ?? 1) * own;
  });
  const shortest = jitter?.law === "around" ? 1 - jitter.amount : 1;
  return shortest * Math.max(...bounds) + leastClosingMs(model);
}

/** For each of some numbers, the sum of those before it. */
function sumsBefore(numbers: readonly number[]): number[] {
  let sum = 0;
  return numbers.map((one) => (sum += one) - one);
}

/** The optimizer of the fullest worker, or the all-reduce of one stage, whichever takes longer. */
function leastClosingMs({ schedule, stages, closing, network, replicas = 1 }: StepModel): number {
  const { algorithm = "direct", eagerStages = [], protocol = "commit" } = closing ?? {};
  if (closing === undefined || protocol !== "commit" || schedule.updates !== "flush") return 0;
  const link = closing.link ?? network?.link ?? { latencyMs: 0 };
  const optimizers = schedule.placement.map((held) =>
    held.reduce((sum, { stage }) => sum + (stages[stage]!.optimizerMs ?? 0), 0)
  );
  const copies = replicas * pipesOf(schedule);
  const reduces = stages.map(({ gradientBytes = 0 }, stage) =>
    eagerStages.includes(stage)
      ? 0
      : 2 * reduceHalf(algorithm, copies, gradientBytes, link).transferMs
  );
  return Math.max(0, ...optimizers, ...reduces);
}

/**
 * Bytes that the fullest worker holds at least, whatever its order: weights, gradients, states, and
 * the activations of one micro-batch of one of its stages.
 */
export function leastBytes({ schedule, stages }: StepModel): number {
  return Math.max(...schedule.placement.map((held, worker) => {
    const memory = held.map(({ stage }) => stages[stage]!.memory);
    const fixed = heldBytes(
      memory.map((one) => one ?? { keptBytes: 0 }),
      schedule.weightVersions[worker] ?? 1,
    );
    const kept = memory.map((one) => (one?.keptBytes ?? 0) + (one?.workBytes ?? 0));
    // Halves of a micro-batch keep a half each.
    return fixed + Math.max(...kept) / 2;
  }));
}

const known = new WeakMap<Schedule, { readonly isSplit: boolean; readonly isHalved: boolean }>();

/**
 * Returns whether backwards run as I and W, and whether in halves. Reads the lists once for each
 * schedule, which many candidates share.
 */
function backwardsOf(schedule: Schedule) {
  const { lists = [] } = schedule;
  const found = known.get(schedule) ?? {
    isSplit: lists.some((list) =>
      [...list].some((action) => parts(action).some(({ kind }) => kind === "W"))
    ),
    isHalved: lists.some(({ hasHalves }) => hasHalves),
  };
  known.set(schedule, found);
  return found;
}

/** Options of a schedule that a planner varies. */
type VariedOptions = Pick<
  ScheduleOptions,
  "chunks" | "waves" | "slices" | "pipelines" | "scale" | "pipelineLimit" | "order"
>;

/** One way to run a model on all devices. */
export interface Candidate {
  /** The schedule's name. */
  readonly schedule: string;
  /** What the schedule reads beside its size. */
  readonly options: VariedOptions;
  /** Workers of a pipeline, D. */
  readonly workers: number;
  /** Data-parallel replicas, W. */
  readonly replicas: number;
  /** Samples of a micro-batch, B. */
  readonly microBatch: number;
  /** Micro-batches of a step and a replica, N. */
  readonly microBatches: number;
  /** Which activations the backward computes again. */
  readonly recompute: Recompute;
  /** How numbers are stored. */
  readonly precision: Precision;
  /** Numbers of a bucket of the optimizer; those of the device unless given. */
  readonly bucketSize?: number | undefined;
  /** Buckets of a chunk of the all-reduce, k; what `train` takes unless given. */
  readonly coarsening?: number | undefined;
  /** Which layers each stage has, as `--layout` takes it; stages of nearly equal work unless given. */
  readonly layout?: string | undefined;
}

/** What may be chosen. */
export interface PlanSpace {
  /** Workers of all replicas together, P. */
  readonly devices: number;
  /** Samples of a step of all replicas together. */
  readonly batch: number;
  /** Layers of the model, of which each stage has at least one. */
  readonly layers: number;
  /** Names of the schedules. */
  readonly schedules: readonly string[];
  /** The depths D that may be; any unless given. */
  readonly workers?: readonly number[] | undefined;
  /** The micro-batch sizes B that may be; any unless given. */
  readonly microBatch?: readonly number[] | undefined;
  /** The ways to recompute. */
  readonly recompute: readonly Recompute[];
  /** The ways to store numbers. */
  readonly precision: readonly Precision[];
  /** Sizes of a bucket to try beside that of the device. */
  readonly bucketSizes?: readonly number[] | undefined;
  /** Values of k to try beside that of `train`. */
  readonly coarsenings?: readonly number[] | undefined;
}

/** The most chunks, waves and pipelines in one direction that are tried. */
const CHUNKS_MAX = 4, WAVES_MAX = 4, PIPELINES_MAX = 4;

/** How a replica is cut: depth, replicas, micro-batch and their number. */
type Sizes = Pick<Candidate, "workers" | "replicas" | "microBatch" | "microBatches">;

/** The divisors of a number, ascending. */
export function divisorsOf(number: number): number[] {
  const low: number[] = [], high: number[] = [];
  for (let one = 1; one * one <= number; one++) {
    if (number % one !== 0) continue;
    low.push(one);
    if (one * one < number) high.unshift(number / one);
  }
  return [...low, ...high];
}

/**
 * All ways to cut devices and batch: D·W devices, W·B·N samples.
 *
 * @throws {RangeError} when no depth that the model allows leaves replicas that divide the batch.
 */
export function sizesOf(space: Omit<PlanSpace, "recompute" | "precision">): Sizes[] {
  const { devices, batch, layers } = space;
  const depths = divisorsOf(devices)
    .filter((depth) => depth <= layers && (space.workers?.includes(depth) ?? true));
  if (depths.length === 0) {
    throw new RangeError(
      `Cannot plan for ${devices} devices: the workers of a pipeline must divide them and be at most the ${layers} layers of the model, received ${
        space.workers?.join(", ") ?? "no such number"
      }`,
    );
  }
  const sizes = depths.flatMap((workers) => {
    const replicas = devices / workers, samples = batch / replicas;
    if (!Number.isInteger(samples)) return [];
    return divisorsOf(samples)
      .filter((microBatch) => space.microBatch?.includes(microBatch) ?? true)
      .map((microBatch) => ({
        workers,
        replicas,
        microBatch,
        microBatches: samples / microBatch,
      }));
  });
  if (sizes.length > 0) return sizes;
  const least = Math.min(...depths.map((depth) => devices / depth));
  const fixed = space.microBatch === undefined
    ? ""
    : ` times the micro-batch ${space.microBatch.join(" or ")}`;
  throw new RangeError(
    `Cannot plan a batch of ${batch} for ${devices} devices: it must be a multiple of the replicas${fixed}, which are ${least} or more where a pipeline has at most ${
      depths.at(-1)
    } workers, received ${batch}`,
  );
}

/** The options that a schedule may be tried with, for so many workers and micro-batches. */
function variantsOf(name: string, workers: number, microBatches: number): VariedOptions[] {
  const { reads = [] } = findSchedule(name);
  const upTo = (most: number, from = 1) =>
    Array.from({ length: most - from + 1 }, (_, i) => i + from);
  const limits = [workers, Math.ceil(1.5 * workers), 2 * workers - 1]
    .map((limit) => Math.min(limit, microBatches));
  const choices: { readonly [Name in keyof VariedOptions]: readonly VariedOptions[Name][] } = {
    chunks: upTo(CHUNKS_MAX, 2),
    waves: upTo(WAVES_MAX),
    slices: [2, 4],
    pipelines: upTo(PIPELINES_MAX).filter((f) => (workers / 2) % f === 0),
    scale: microBatches > workers ? ["direct", "doubling", "halving"] : ["direct"],
    pipelineLimit: [...new Set(limits)],
    order: ["fifo", "backward-first"],
  };
  let variants: VariedOptions[] = [{}];
  for (const [option, values] of Object.entries(choices)) {
    if (!reads.includes(option)) continue;
    variants = variants.flatMap((one) => values.map((value) => ({ ...one, [option]: value })));
  }
  return variants;
}

/** Returns every candidate, in an order that depends on the space alone. */
export function candidatesOf({ recompute, precision, ...space }: PlanSpace): Candidate[] {
  const how = recompute.flatMap((recompute) =>
    precision.map((precision) => ({ recompute, precision }))
  );
  return sizesOf(space).flatMap((sizes) => {
    const { workers, microBatches } = sizes;
    return (workers === 1 ? alone(space.schedules) : space.schedules).flatMap((schedule) =>
      variantsOf(schedule, workers, microBatches).flatMap((options) =>
        how.map((one) => ({ schedule, options, ...sizes, ...one }))
      )
    );
  });
}

/** On one worker the order that holds least does; others are the same with another name. */
const alone = (schedules: readonly string[]) =>
  schedules.includes("1f1b") ? ["1f1b"] : schedules.slice(0, 1);

/** A step that has not been run. */
interface ForecastStep {
  /** Milliseconds from its request to its answer. */
  readonly stepMs: number;
  /** The step as it was simulated, and where the time of each worker goes. */
  readonly simulated: Pick<SimulatedStep, "workers" | "makespanMs">;
  /** By how much it is longer than the simulated one as durations vary; 0 unless given. */
  readonly variedMs?: number;
  /** What makes it less certain. */
  readonly notes?: readonly string[];
}

/**
 * Predicts candidates. Each function throws a RangeError where a candidate cannot be run: that says
 * why, and the planner goes on without it.
 */
export interface Forecast {
  /**
   * What a step is simulated from, with no cost higher than those of {@linkcode Forecast.step}. The
   * schedule may be of other micro-batches.
   */
  least(candidate: Candidate, schedule: Schedule): StepModel;
  /** Bytes of each worker that a limit counts. */
  bytes(candidate: Candidate, schedule: Schedule): readonly number[];
  /** The step, with the means of all durations. */
  step(candidate: Candidate, schedule: Schedule): ForecastStep;
  /** The step with durations that vary, where that is known; asked for the best alone. */
  varied?(candidate: Candidate, schedule: Schedule): ForecastStep;
  /**
   * The layout that suits the schedule, where there is another one than that of equal work and it is
   * found soon; asked for the best alone.
   */
  layout?(candidate: Candidate, schedule: Schedule): string | undefined;
}

/** What all candidates have in common. */
interface ForecastOptions {
  /** The model; candidates ask for other micro-batches of it. */
  readonly model: Model;
  /** The optimizer. */
  readonly optimizer: OptimizerOptions;
  /** What computes, as the profile names it. */
  readonly device: string;
  /** How messages travel, as the profile names it. */
  readonly transport: string;
  /** The most that the norm of all gradients may be; any unless given. */
  readonly clip?: number | undefined;
}

/** The least that a layer costs for a micro-batch, whatever computes at the same time. */
type LeastLayer = Omit<FoundCost, "recomputeMs"> & Pick<LayerFacts, "parameters">;

/** A compiled model with the least that each layer costs. */
interface LeastModel {
  readonly costs: readonly number[];
  readonly layers: readonly LeastLayer[];
  /** Where each stage begins, by their number. */
  readonly starts: Map<number, readonly number[]>;
}

/**
 * Opens what predicts candidates.
 *
 * @throws {RangeError} when asked, where the profile has no costs of a layer or a transport.
 */
export function openForecast(profile: Profile, options: ForecastOptions): Forecast {
  const { optimizer, device, transport, clip } = options, models = opened(options);
  const { compile, sampled } = models, leastModel = openLeast(profile, options, models);
  const costs = openCosts(profile, device), link = profile.links[transport];
  const network = link && { link };
  // A stated profile may be of devices that this package does not have.
  const name = DEVICE_NAMES.find((known) => known === device);
  const compiled = new WeakMap<Schedule, Map<string, CompiledRun>>();
  const compiledRun = (candidate: Candidate, schedule: Schedule): CompiledRun => {
    const ofSchedule = compiled.get(schedule) ?? new Map<string, CompiledRun>();
    compiled.set(schedule, ofSchedule);
    const { microBatch, recompute, precision, replicas, bucketSize, layout } = candidate;
    const asked = { recompute, precision, replicas, optimizer, bucketSize, layout };
    const key = `${bucketSize} ${layout}`;
    const run = ofSchedule.get(key) ??
      compileRun({ model: sampled(microBatch), ...asked }, schedule, name, compile);
    ofSchedule.set(key, run);
    return run;
  };
  const predicted = (candidate: Candidate, schedule: Schedule, draws?: number) => {
    const { replicas, coarsening, microBatch } = candidate;
    const how = { device, transport, replicas, coarsening, clip, microBatch, draws };
    return predictRun(profile, { schedule, compiled: compiledRun(candidate, schedule), ...how });
  };
  return {
    least(candidate, schedule) {
      const { microBatch, options: { scale }, replicas } = candidate;
      const halves = scale === "halving" ? 2 : 1;
      const model = leastModel({ ...candidate, microBatch: microBatch / halves });
      const starts = model.starts.get(schedule.stages) ?? partition(model.costs, schedule.stages);
      model.starts.set(schedule.stages, starts);
      const once = costs.once(replicas * schedule.workers);
      const stages = starts.map((start, stage): StageModel => {
        const { parameters, ...ms } = model.layers.slice(start, starts[stage + 1]).reduce(sumOf);
        return {
          ...mapNumbers(ms, (one) => halves * one),
          gradientBytes: (candidate.precision === "fp16" ? 2 : 4) * parameters,
          optimizerMs: optimizerMs(once, parameters),
          memory: { keptBytes: 0, weightBytes: bytesOfParameter(optimizer) * parameters },
        };
      });
      return { schedule, replicas, stages, network, closing: {} };
    },
    bytes: (candidate, schedule) =>
      compiledRun(candidate, schedule).memory.map((one) => limitedBytes(one, name ?? "webgpu")),
    step: (candidate, schedule) => predicted(candidate, schedule, 0),
    layout(candidate, schedule) {
      const run = compiledRun(candidate, schedule), { replicas } = candidate;
      // A trace has costs of whole stages, not of layers.
      if (profile.source === "trace" || !isCutSoon(run, schedule)) return undefined;
      const work = LAYOUT_WORK;
      const { layout } = recommendLayout(profile, {
        ...{ schedule, compiled: run, device, link, replicas, work },
      });
      return layout === layoutOf(run) ? undefined : layout;
    },
    ...(profile.variation ?? []).length > 0 && {
      varied(candidate: Candidate, schedule: Schedule) {
        const varied = predicted(candidate, schedule), { stepMs, simulated } = varied;
        const variedMs = stepMs - simulated.makespanMs - profile.closing.stepMs;
        return { ...varied, variedMs };
      },
    },
  };
}

/**
 * A layout is sought for stages, layers and forwards of a step up to these, with so much work: within
 * a second, most within a tenth of it.
 */
const LAYOUT_STAGES_MAX = 16, LAYOUT_LAYERS_MAX = 128, LAYOUT_FORWARDS_MAX = 1024;
const LAYOUT_WORK = 1e6;

/** Whether there is a choice of cuts that takes no long search. */
const isCutSoon = ({ model }: CompiledRun, { stages, microBatches, slices = 1 }: Schedule) =>
  stages > 1 && stages <= LAYOUT_STAGES_MAX && model.layers.length <= LAYOUT_LAYERS_MAX &&
  stages * microBatches * slices <= LAYOUT_FORWARDS_MAX;

/** How a model is cut now. */
function layoutOf({ model, programs }: CompiledRun): string {
  let start = 0;
  return formatLayout(
    model.layers,
    programs.map(({ layers }) => (start += layers.length) - layers.length),
  );
}

/** Models by their samples, compiled once for each way. */
function opened({ model }: ForecastOptions) {
  const programs = new Map<string, ModelProgram>();
  const compile: typeof compileModel = (source, recompute, how) => {
    if ((how?.slices ?? 1) > 1 && source.withSlices === undefined) {
      throw new RangeError(
        `Cannot plan with slices: the model must have sequences, received ${source.name}`,
      );
    }
    const key = `${source.samples} ${recompute} ${how?.precision} ${how?.slices ?? 1}`;
    const known = programs.get(key) ?? compileModel(source, recompute, how);
    programs.set(key, known);
    return known;
  };
  const sampled = (samples: number): Model => {
    const made = model.samples === samples ? model : model.withSamples?.(samples);
    if (made) return made;
    throw new RangeError(
      `Cannot plan with micro-batches of ${samples}: the model must have withSamples, received ${model.name} without it`,
    );
  };
  return { compile, sampled };
}

const NO_TIME = { forwardMs: 0, backwardMs: 0, inputMs: 0, weightMs: 0 };

/** Finds the least that each layer costs. */
function openLeast(
  profile: Profile,
  { device, optimizer }: ForecastOptions,
  { compile, sampled }: ReturnType<typeof opened>,
) {
  const costs = openCosts(profile, device), known = new Map<string, LeastModel>();
  const loads = [...new Set(profile.layers.map(({ atOnce }) => atOnce))];
  const ofLayer = (facts: LayerFacts): LeastLayer => {
    const { parameters } = facts;
    // Those of a trace are of whole stages.
    if (profile.source === "trace") return { ...NO_TIME, parameters };
    const found = loads.map((atOnce) => costs.layer(facts, atOnce));
    return {
      ...mapNumbers(NO_TIME, (_, name) => Math.min(...found.map((one) => one[name]))),
      parameters,
    };
  };
  return ({ microBatch, recompute, precision, options: { slices } }: Candidate): LeastModel => {
    const key = `${microBatch} ${recompute} ${precision} ${slices}`, before = known.get(key);
    if (before) return before;
    const program = compile(sampled(microBatch), recompute, { precision, slices });
    const layers = slicedFacts(program, { optimizer }).map((slice) => slice.map(ofLayer))
      .reduce((all, slice) =>
        all.map((one, i) => ({ ...sumOf(one, slice[i]!), parameters: one.parameters }))
      );
    const made = { costs: program.costs, layers, starts: new Map() };
    known.set(key, made);
    return made;
  };
}

const sumOf = (a: LeastLayer, b: LeastLayer): LeastLayer =>
  mapNumbers(a, (value, name) => value + b[name]);

/**
 * Bytes that each trained number takes at least: itself and its gradient, with fp16 and a copy of the
 * weight in fp32, and what the optimizer keeps.
 */
const bytesOfParameter = ({ kind }: OptimizerOptions): number => 8 + (kind === "adamw" ? 8 : 4);

/** A candidate as it is predicted. */
export interface PlannedRun extends Candidate {
  /** Milliseconds of a step. */
  readonly stepMs: number;
  /** Samples of a second, all replicas together. */
  readonly samplesPerSecond: number;
  /** Where the time goes, the mean of the workers: the parts add up to the step. */
  readonly parts: WorkerTimes;
  /** Share of the workers' time in which they wait for one another. */
  readonly bubble: number;
  /** Bytes of each worker of a replica. */
  readonly memoryBytes: readonly number[];
  /** Those of the fullest. */
  readonly peakBytes: number;
  /** Schedules with the same step and memory, cut in the same way. */
  readonly alike: readonly string[];
  /** Why it is behind the best one; absent of that. */
  readonly reason?: string;
  /** What makes the figures less certain. */
  readonly notes: readonly string[];
}

/** A candidate with its prediction. */
export function plannedRun(
  candidate: Candidate,
  { stepMs, simulated, variedMs = 0, notes = [] }: ForecastStep,
  memoryBytes: readonly number[],
  batch: number,
): PlannedRun {
  const { workers } = simulated;
  const mean = (name: keyof WorkerTimes) =>
    workers.reduce((sum, one) => sum + one[name], 0) / workers.length;
  // Who waits longer as durations vary, waits for others; the rest is what asks for a step. Drawn steps
  // of which none waits may come out shorter by a trifle.
  const evenMs = mean("bubbleMs"), bubbleMs = Math.max(0, evenMs + variedMs);
  const parts: WorkerTimes = {
    busyMs: mean("busyMs"),
    dispatchMs: mean("dispatchMs"),
    communicationMs: mean("communicationMs"),
    bubbleMs,
    closingMs: mean("closingMs") + stepMs - simulated.makespanMs - (bubbleMs - evenMs),
  };
  return {
    ...candidate,
    stepMs,
    samplesPerSecond: 1000 * batch / stepMs,
    parts,
    bubble: parts.bubbleMs / stepMs,
    memoryBytes,
    peakBytes: Math.max(...memoryBytes),
    alike: [],
    notes,
  };
}

/** The choice of a planned run alone. */
export function candidateOf(run: PlannedRun): Candidate {
  const { schedule, options, workers, replicas, microBatch, microBatches } = run;
  const { recompute, precision, bucketSize, coarsening, layout } = run;
  return {
    ...{ schedule, options, workers, replicas, microBatch, microBatches },
    ...{ recompute, precision, bucketSize, coarsening, layout },
  };
}

/** Times that differ by less are the same, but for how their parts were added. */
export const SAME = 1e-9;

export function byTime(a: PlannedRun, b: PlannedRun): number {
  const apart = a.stepMs - b.stepMs;
  return Math.abs(apart) > SAME * a.stepMs ? apart : a.peakBytes - b.peakBytes;
}

/** Whether two schedules are the same in all that is predicted, such as two orders of one action. */
export const isAlike = (a: PlannedRun, b: PlannedRun): boolean =>
  byTime(a, b) === 0 && KEYS.every((key) => a[key] === b[key]);

const KEYS = ["workers", "microBatch", "recompute", "precision"] as const;
