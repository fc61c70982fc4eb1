/** The runs that a planner chooses from. */

import type { Precision, Recompute } from "../../../kernels/mod.ts";
import { findSchedule, type ScheduleOptions } from "../../../schedules/mod.ts";

/** Options of a schedule that a planner varies. */
export type VariedOptions = Pick<
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
