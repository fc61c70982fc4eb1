/**
 * Predicts the time and the memory of a step from the costs in a profile and the schedule.
 *
 * [Note: load] Kernels are slower when more workers compute at the same time, and the number of
 * these workers depends on the duration of kernels. So a step is simulated, each stage gets the
 * costs of its load in that simulation, and the step is simulated again.
 *
 * @module
 */

import { BUCKET_SIZE, refusal } from "../../kernels/internal.ts";
import { simulateWithin } from "../../schedules/internal.ts";
import {
  type Schedule,
  type SimulatedStep,
  simulateStep,
  type StageModel,
  type StepEndModel,
  type StepModel,
} from "../../schedules/mod.ts";
import { eagerStages } from "../gradients/sync.ts";
import { linkedSchedule } from "../pipeline/layout.ts";
import type { StepOutcome } from "../pipeline/step.ts";
import { type CompileOptions, compileRun } from "../run/compile.ts";
import type { CompiledRun } from "../run/memory.ts";
import { chooseSchedule } from "../run/prepare.ts";
import { computes, readStep, type StepTimeline } from "../run/timeline.ts";
import {
  costedStages,
  type FoundCost,
  foundOf,
  mapFields,
  openCosts,
  stageModel,
} from "./costs.ts";
import {
  firstWhere,
  type LayerCost,
  type LayerFacts,
  type LinearCost,
  type LinkCost,
  meanOf,
  median,
  parametersOf,
  type Profile,
  PROFILE_FORMAT,
  PROFILE_VERSION,
  variationOf,
} from "./profile.ts";

type Timed = Pick<SimulatedStep, "schedule" | "timeline">;

/** Yields the actions of all workers with their times. */
export function* timedActions({ schedule, timeline: { starts, ends } }: Timed) {
  for (const [worker, list] of schedule.lists.entries()) {
    let index = 0;
    for (const action of list) {
      yield { action, start: starts[worker]![index]!, end: ends[worker]![index]! };
      index++;
    }
  }
}

/**
 * Returns the load of each stage: the mean number of workers that compute while an action of the
 * stage runs, including its own worker.
 *
 * @param replicas number of data-parallel replicas, which compute at the same times.
 */
export function concurrencyOf(
  { schedule: { stages, lists }, timeline: { starts, ends } }: Timed,
  replicas = 1,
): number[] {
  const busyUntil = busyIntegral(starts, ends);
  const ms = new Float64Array(stages), busy = new Float64Array(stages);
  for (const [worker, list] of lists.entries()) {
    for (let i = 0; i < list.length; i++) {
      const start = starts[worker]![i]!, end = ends[worker]![i]!, first = list.startOf(i);
      const busyMs = busyUntil(end) - busyUntil(start), own = list.stageAt(first);
      for (let part = first; part < list.startOf(i + 1); part++) {
        const stage = list.stageAt(part);
        // Two overlapped actions run on one worker at the same times.
        if (part > first && stage === own) continue;
        ms[stage]! += end - start;
        busy[stage]! += busyMs;
      }
    }
  }
  return Array.from(ms, (own, stage) => replicas * (own === 0 ? 1 : busy[stage]! / own));
}

/** Returns a function for the milliseconds that all workers together have computed until a time. */
export function busyIntegral(
  starts: readonly Float64Array[],
  ends: readonly Float64Array[],
): (time: number) => number {
  const begun = msSince(starts), ended = msSince(ends);
  // Each started action counts from its start, minus the time after its end.
  return (time) => begun(time) - ended(time);
}

/** Returns a function of a time t: the sum of the milliseconds from each earlier listed time to t. */
function msSince(lists: readonly Float64Array[]): (time: number) => number {
  const times = new Float64Array(lists.reduce((sum, { length }) => sum + length, 0));
  lists.reduce((at, list) => (times.set(list, at), at + list.length), 0);
  times.sort();
  const sums = new Float64Array(times.length + 1);
  for (let i = 0; i < times.length; i++) sums[i + 1] = sums[i]! + times[i]!;
  return (time) => {
    const count = firstWhere(times.length, (index) => times[index]! > time);
    return count * time - sums[count]!;
  };
}

/** Options of a prediction: those of {@linkcode train} that affect time, and names in the profile. */
export interface PredictOptions extends CompileOptions {
  /** Name of the device in the profile. */
  readonly device: string;
  /** Name of the transport in the profile. Default `worker`. */
  readonly transport?: string | undefined;
  /** Number of simulations with varied durations; 0 uses mean durations only. Default 16. */
  readonly draws?: number | undefined;
}

/** A compiled run. */
interface PredictedRun extends Omit<PredictOptions, "model" | "schedule"> {
  readonly schedule: Schedule;
  readonly compiled: CompiledRun;
  /** Samples of a micro-batch, if known. */
  readonly microBatch?: number | undefined;
}

/** Prediction of a step. */
export type Prediction = NonNullable<ReturnType<typeof predictWithin>>;

/** Number of simulations, each with the loads of the previous one; more have no visible effect. */
const PASSES = 3;

/** Default number of simulations with varied durations. */
const DRAWS = 16;

/** Default number of buckets in a chunk. */
const COARSENING = 4;

/**
 * Predicts a step of a run.
 *
 * @throws {Error} when the profile has no costs of a layer's kind or of the transport; as
 * {@linkcode train} when the options are invalid.
 */
export function predictStep(profile: Profile, options: PredictOptions): Prediction {
  const { schedule } = chooseSchedule({
    ...options,
    schedule: options.schedule ?? "1f1b",
    workers: options.workers ?? 1,
    microBatches: options.microBatches ?? 4,
  });
  const compiled = compileRun(options, schedule);
  return predictRun(profile, { ...options, schedule, compiled, microBatch: options.model.samples });
}

/**
 * Predicts a step of a compiled run.
 *
 * @throws {Error} when the profile has no costs of a layer's kind or of the transport.
 */
export const predictRun = (profile: Profile, run: PredictedRun): Prediction =>
  predictWithin(profile, run, () => Infinity)!;

/**
 * Predicts a step of a compiled run; undefined if its actions take longer than `mostComputedMs` of its
 * model.
 *
 * @throws {RangeError} as {@linkcode predictRun}.
 */
export function predictWithin(
  profile: Profile,
  predicted: PredictedRun,
  mostComputedMs: (model: StepModel) => number,
) {
  const run = { ...predicted, schedule: linkedSchedule(predicted.schedule, predicted.compiled) };
  const { schedule, compiled, device, transport = "worker", replicas = 1, microBatch } = run;
  const costs = openCosts(profile, device), link = linkOf(profile, transport);
  const stages = costedStages(compiled, schedule), workers = replicas * schedule.workers;
  const traced = profile.source === "trace"
    ? tracedCosts(profile, stages.map(({ slices }) => slices.flat()), microBatch)
    : undefined;
  const once = costs.once(workers), held = heldWith(schedule, stages);
  // While an action runs, so does that of its stage in each replica.
  const isKnown = costs.measuredLoad(replicas) === costs.measuredLoad(workers);
  const passes = isKnown ? 1 : PASSES;
  const simulate = (atOnce: readonly number[], pass: number) => {
    const models = stages.map((stage, i) =>
      stageModel(
        stage,
        traced
          ? [[traced.stages[i]!]]
          : stage.slices.map((facts) => facts.map((one) => costs.layer(one, atOnce[i]!, held[i]!))),
        once,
      )
    );
    const model = modelOf(profile, run, models, link);
    const simulated = simulateWithin(model, pass < passes ? Infinity : mostComputedMs(model));
    return simulated && {
      /** Load of each stage that the simulation assumes: see {@linkcode concurrencyOf}. */
      atOnce,
      /** The model of the simulation. */
      model,
      /** The simulated step, with the use of each worker's time. */
      simulated,
    };
  };
  let step = simulate(stages.map(() => workers), 1);
  for (let pass = 2; step && pass <= passes; pass++) {
    const atOnce = concurrencyOf(step.simulated, replicas);
    const before = step.atOnce.map(costs.measuredLoad);
    if (atOnce.every((load, i) => costs.measuredLoad(load) === before[i])) break;
    step = simulate(atOnce, pass);
  }
  if (!step) return undefined;
  const { cores } = profile.machine;
  const crowded = `${workers} workers share ${cores} cores, which was not measured`;
  const variationMs = waitedMs(profile, step.model, step.simulated, run.draws ?? DRAWS);
  return {
    ...step,
    /** Milliseconds from the request of the step to its answer. */
    stepMs: step.simulated.makespanMs + variationMs + profile.closing.stepMs,
    /** Milliseconds of the step that are due to varied durations. */
    variationMs,
    /** Memory of each worker of a data-parallel replica. */
    get memory() {
      return compiled.memory;
    },
    /** Reasons for a larger error, such as costs scaled from other sizes. */
    notes: [
      ...[...costs.scaled, ...traced?.scaled ?? []].map((what) => `scaled: ${what}`),
      ...workers > cores ? [crowded] : [],
    ],
  };
}

/** Returns the number of trained elements that the worker of each stage holds, at most. */
function heldWith({ placement }: Schedule, stages: ReturnType<typeof costedStages>): number[] {
  const own = stages.map(({ slices: [facts] }) => parametersOf(facts!));
  const held = own.map(() => 0);
  for (const placed of placement) {
    const all = placed.reduce((sum, { stage }) => sum + own[stage]!, 0);
    for (const { stage } of placed) held[stage] = Math.max(held[stage]!, all);
  }
  return held;
}

/**
 * [Note: varied durations] A worker that waits for two inputs waits for the later one, so a step takes
 * longer than with mean durations. Each simulation draws the durations of actions from the measured
 * distribution, and is scaled to the total work of the simulation with means, so that a few large
 * draws do not dominate.
 *
 * @returns the mean additional milliseconds of a step.
 */
function waitedMs(
  { variation = [] }: Profile,
  model: StepModel,
  simulated: SimulatedStep,
  draws: number,
): number {
  if (variation.length === 0 || draws === 0) return 0;
  const work = busyOf(simulated);
  let sum = 0;
  for (let seed = 1; seed <= draws; seed++) {
    const jitter = { law: variation, amount: 1, seed };
    const drawn = simulateStep({ ...model, jitter }), drawnWork = busyOf(drawn);
    const scale = drawnWork > 0 ? work / drawnWork : 1; // all costs of a profile may be 0
    sum += drawn.computedMs * scale - simulated.computedMs;
  }
  return sum / draws;
}

const busyOf = ({ workers }: SimulatedStep): number =>
  workers.reduce((sum, { busyMs }) => sum + busyMs, 0);

function modelOf(
  { dispatchMs, reduce }: Profile,
  run: PredictedRun,
  stages: readonly StageModel[],
  link: LinkCost,
): StepModel {
  const { schedule, compiled, replicas = 1, sync = "end", coarsening = COARSENING, clip } = run;
  const { bucketSize = BUCKET_SIZE, precision } = compiled.stage;
  const elementBytes = precision === "fp16" ? 2 : 4;
  const closing: StepEndModel = {
    bucketBytes: bucketSize * elementBytes,
    coarsening,
    launchMs: reduce.ms,
    ...reduce.msPerMillion > 0 && { addBytesPerMs: elementBytes * 1e6 / reduce.msPerMillion },
    eagerStages: eagerStages(schedule, sync),
    isClipped: clip !== undefined && clip > 0,
  };
  const network = { link };
  return { schedule, replicas, stages, dispatchMs, controlMs: link.latencyMs, network, closing };
}

function linkOf({ links }: Profile, transport: string): LinkCost {
  if (Object.hasOwn(links, transport)) return links[transport]!;
  const must = `the profile must have the transport ${transport}`;
  throw refusal("predict", must, Object.keys(links).join(", ") || "none", Error);
}

/** A traced run. */
export interface TracedRun {
  /** Device of the run. */
  readonly device: string;
  /** Name of the transport in profiles. */
  readonly transport: string;
  /** Data-parallel replicas. */
  readonly replicas: number;
  /** Samples of a micro-batch, B. */
  readonly microBatch: number;
  /** Trained elements of each stage. */
  readonly parameters: readonly number[];
  /** Share of each stage in the estimated work. */
  readonly shares: readonly number[];
  /** Bytes that a micro-batch keeps from F to B, for each stage. */
  readonly activationBytes: readonly number[];
}

/** Durations in the traced steps. */
class Sums {
  /** Milliseconds of each action, by stage and kind, such as `0F`. */
  readonly actions = new Map<string, number[]>();
  /** Workers with a copy of each stage. */
  readonly workersOf = new Map<number, Set<number>>();
  readonly pauses: number[] = [];
  readonly latencies: number[] = [];
  /** Milliseconds of the optimizer and of the all-reduces, for all workers. */
  optimizerMs = 0;
  reduceMs = 0;
  /** Other milliseconds of the end of each step. */
  readonly ends: number[] = [];
}

/**
 * Makes a profile of a traced run. The first of several steps is skipped because it includes the
 * warmup.
 *
 * @throws {RangeError} when the trace has no step, or a stage has no forward or backward.
 */
export function profileOfTrace(
  run: TracedRun,
  steps: Iterable<{ readonly traces: StepOutcome["traces"] }>,
): Profile {
  let first: StepTimeline | undefined, workers = 0;
  const sums = new Sums();
  for (const { traces } of steps) {
    workers = traces.length;
    const timeline = readStep(traces, run.replicas);
    if (first) addStep(sums, timeline);
    first ??= timeline;
  }
  if (first && sums.ends.length === 0) addStep(sums, first);
  if (sums.ends.length === 0) throw new RangeError("Cannot take costs: the trace must have a step");
  return profileFrom(sums, run, workers);
}

function addStep(sums: Sums, { end, workers, flows }: StepTimeline): void {
  const last = lastEnd(workers), spans = workers.flatMap((one) => one.spans).filter(computes);
  for (const { stages, kind, start, end, worker } of spans) {
    for (const stage of stages) {
      sums.workersOf.set(stage, (sums.workersOf.get(stage) ?? new Set()).add(worker));
    }
    sums.actions.getOrInsertComputed(`${stages[0]}${kind}`, () => []).push(end - start);
  }
  sums.pauses.push(...pausesOf(workers));
  for (const { from, to } of flows) {
    if (to.arrived !== undefined) sums.latencies.push(to.arrived - (from.sent ?? from.end));
  }
  for (const { optimizerMs, reduceMs } of workers) {
    sums.optimizerMs += optimizerMs;
    sums.reduceMs += reduceMs;
  }
  const work = Math.max(...workers.map((one) => one.optimizerMs + one.reduceMs));
  sums.ends.push(Math.max(0, end - last - work));
}

/** Returns when the last action ended. */
export const lastEnd = (workers: StepTimeline["workers"]): number =>
  Math.max(...workers.flatMap(({ spans }) => spans).filter(computes).map(({ end }) => end));

/** Returns the milliseconds of each pause between two actions whose inputs had arrived. */
export function pausesOf(workers: StepTimeline["workers"]): number[] {
  const last = lastEnd(workers);
  return workers.flatMap(({ gaps }) => gaps)
    .filter(({ kind, end }) => kind === "pause" && end <= last)
    .map(({ start, end }) => end - start);
}

const FREE: LinearCost = { ms: 0, msPerMillion: 0 };

function profileFrom(sums: Sums, run: TracedRun, workers: number): Profile {
  const parameters = run.parameters.reduce((sum, one) => sum + one, 0);
  const copies = Math.max(1, ...[...sums.workersOf.values()].map((held) => held.size));
  const perMillion = (ms: number): LinearCost => ({
    ms: 0,
    msPerMillion: parameters === 0 ? 0 : ms / sums.ends.length / copies / (parameters / 1e6),
  });
  const reduce = perMillion(sums.reduceMs);
  return {
    format: PROFILE_FORMAT,
    version: PROFILE_VERSION,
    source: "trace",
    machine: { name: "that of the trace", cores: workers },
    layers: run.shares.map((_, stage) => stageCost(sums, run, stage, workers)),
    variation: variationOf(sums.actions.values()),
    optimizer: perMillion(sums.optimizerMs),
    // Each of c copies adds 1/c of the gradients of the c − 1 others; a single copy only takes norms.
    reduce: copies === 1
      ? FREE
      : { ms: 0, msPerMillion: reduce.msPerMillion * copies / (copies - 1) },
    links: { [run.transport]: { latencyMs: Math.max(0, lowOf(sums.latencies)) } },
    dispatchMs: sums.pauses.length === 0 ? 0 : median(sums.pauses),
    closing: {
      vote: FREE, // included in the last backward
      norm: copies === 1 ? reduce : FREE,
      end: FREE,
      stepMs: median(sums.ends),
    },
    notes: ["costs are those of stages; layers share the time of their stage by estimated work"],
  };
}

/** Returns the 10th percentile, since messages to busy workers wait longer. */
function lowOf(latencies: readonly number[]): number {
  if (latencies.length === 0) return 0;
  return latencies.toSorted((a, b) => a - b)[Math.floor(latencies.length / 10)]!;
}

function stageCost(
  { actions }: Sums,
  { device, microBatch, ...stages }: TracedRun,
  stage: number,
  workers: number,
): LayerCost {
  const mean = (kind: string) => {
    const all = actions.get(`${stage}${kind}`);
    return all && meanOf(all);
  };
  const forwardMs = mean("F"), inputMs = mean("I"), weightMs = mean("W");
  const isSplit = inputMs !== undefined && weightMs !== undefined;
  const backwardMs = mean("B") ?? (isSplit ? inputMs + weightMs : undefined);
  if (forwardMs === undefined || backwardMs === undefined) {
    const must = `the trace must have a forward and a backward of stage ${stage}`;
    throw refusal("take costs", must, [...actions.keys()].join(", ") || "no action");
  }
  const parameters = stages.parameters[stage]!, share = stages.shares[stage]!;
  return {
    kind: STAGE_KIND,
    sizes: { stage, stages: stages.shares.length },
    ...{ microBatch, device, precision: "fp32", recompute: "none", atOnce: workers },
    ...{ forwardMs, backwardMs, ...isSplit && { inputMs, weightMs } },
    recomputeMs: 0,
    ...{ parameters, activationBytes: stages.activationBytes[stage]!, outputBytes: 0 },
    // Only ratios of operations are compared, so shares of the work suffice.
    ...{ forwardFlops: share, backwardFlops: 2 * share },
  };
}

/** Kind of the cost of a whole stage. */
const STAGE_KIND = "stage";

/** Largest difference between equal shares of the work. */
const SAME_SHARE = 1e-6;

/**
 * Returns the costs of stages, with descriptions of scaled costs.
 *
 * @param stages facts of the layers of each stage.
 * @param microBatch samples of a micro-batch, if known.
 * @throws {RangeError} when the profile has no stages.
 */
function tracedCosts(
  { layers }: Profile,
  stages: readonly (readonly LayerFacts[])[],
  microBatch: number | undefined,
): { readonly stages: readonly FoundCost[]; readonly scaled: readonly string[] } {
  const traced = layers.filter(({ kind }) => kind === STAGE_KIND), [first] = traced;
  if (!first) throw refusal("predict", "the profile of a trace must have stages", "none");
  const works = stages.map((facts) =>
    facts.reduce((sum, one) => sum + one.forwardFlops + one.backwardFlops, 0)
  );
  const work = works.reduce((sum, one) => sum + one, 0), shares = works.map((one) => one / work);
  const samples = microBatch === undefined ? 1 : microBatch / first.microBatch;
  const isSame = traced.length === stages.length &&
    traced.every((one, i) => Math.abs(one.forwardFlops - shares[i]!) < SAME_SHARE);
  const all = sumOf(traced);
  return {
    stages: shares.map((share, i) =>
      isSame ? times(foundOf(traced[i]!), samples) : times(all, samples * share)
    ),
    scaled: [
      ...isSame ? [] : [`${stages.length} stages by their work, from ${traced.length} of a trace`],
      ...samples === 1 ? [] : [`${microBatch} samples from ${first.microBatch} of a trace`],
    ],
  };
}

const sumOf = (costs: readonly LayerCost[]): FoundCost =>
  costs.map(foundOf).reduce((a, b) => mapFields(a, (ms, name) => ms + b[name]));

const times = (cost: FoundCost, factor: number): FoundCost => mapFields(cost, (ms) => factor * ms);
