/**
 * Profiles from traces. Stages cost as much as in the traced run if the cut is the same; otherwise
 * they share its time by estimated work.
 *
 * @module
 */

import { refusal } from "../../kernels/internal.ts";
import type { StepOutcome } from "../pipeline/step.ts";
import { computes, readStep, type StepTimeline } from "../run/timeline.ts";
import { type FoundCost, foundOf, mapFields } from "./costs.ts";
import {
  type LayerCost,
  type LayerFacts,
  type LinearCost,
  median,
  type Profile,
  PROFILE_FORMAT,
  PROFILE_VERSION,
  variationOf,
} from "./profile.ts";

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
 * Makes a profile of a traced run. The first of several steps is skipped, as it includes the warmup.
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
  const spans = workers.flatMap((one) => one.spans), last = lastEnd(workers);
  for (const { actions, stages, kind, start, end, worker } of spans) {
    if (actions.length === 0) continue;
    for (const stage of stages) {
      sums.workersOf.set(stage, (sums.workersOf.get(stage) ?? new Set()).add(worker));
    }
    const key = `${stages[0]}${kind}`, known = sums.actions.get(key);
    if (known) known.push(end - start);
    else sums.actions.set(key, [end - start]);
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
const lastEnd = (workers: StepTimeline["workers"]): number =>
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
  const meanOf = (kind: string) => {
    const all = actions.get(`${stage}${kind}`);
    return all && all.reduce((sum, one) => sum + one, 0) / all.length;
  };
  const forwardMs = meanOf("F"), inputMs = meanOf("I"), weightMs = meanOf("W");
  const isSplit = inputMs !== undefined && weightMs !== undefined;
  const backwardMs = meanOf("B") ?? (isSplit ? inputMs + weightMs : undefined);
  if (forwardMs === undefined || backwardMs === undefined) {
    throw new RangeError(
      `Cannot take costs: the trace must have a forward and a backward of stage ${stage}, received ${
        [...actions.keys()].join(", ") || "no action"
      }`,
    );
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
export function tracedCosts(
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
