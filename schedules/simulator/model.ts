/** The input of a simulated step, with its checks and random draws, and its result. */

import type { Action } from "../action.ts";
import { KIND } from "../action_list.ts";
import type { MemoryCurve, StageMemory } from "../analysis/memory.ts";
import { recomputedStages } from "../analysis/recomputation.ts";
import { type Costs, skipTimes, stageTimes } from "../costs.ts";
import { assertInput } from "../errors.ts";
import type { Timeline } from "../execute.ts";
import type { ListedSchedule, Schedule } from "../schedule.ts";

/** A step of training for the simulator. Absent fields take no time and no bytes. */
export interface StepModel {
  /** The schedule, with its policies. */
  readonly schedule: Schedule;
  /** Data-parallel replicas of the whole schedule, W, all alike, jitter included. Default 1. */
  readonly replicas?: number | undefined;
  /** For each stage of the model, its times and bytes. */
  readonly stages: readonly StageModel[];
  /** The time of a forward and a backward that overlap. Default: the sum of both. */
  readonly overlapMs?: number | undefined;
  /** The time of a worker before each action, to choose it and to take its input. */
  readonly dispatchMs?: number | undefined;
  /** The time of a message between the supervisor and a worker. */
  readonly controlMs?: number | undefined;
  /** For each worker of a data-parallel replica, a factor of its actions' times. Default 1. */
  readonly slowdowns?: readonly number[] | undefined;
  /** For each micro-batch, factors of its times and bytes in all stages. Default 1. */
  readonly loads?: readonly MicroBatchLoad[] | undefined;
  /** The links between workers; unless given, messages take only `sendMs`. */
  readonly network?: Network | undefined;
  /**
   * For each skip edge of the schedule, time of its value and gradient in addition to their link's;
   * none unless given.
   */
  readonly skipMs?: readonly number[] | undefined;
  /** Variation of durations. Default: none. */
  readonly jitter?: Jitter | undefined;
  /** The end of the step. Default: it ends with its last action. */
  readonly closing?: StepEndModel | undefined;
}

/** Factors of a micro-batch, for unequal ones: others have more pictures, or longer sequences. */
export interface MicroBatchLoad {
  /** Factor of the time of F. */
  readonly F: number;
  /** Factor of the time of I. */
  readonly I: number;
  /** Factor of the time of W. A whole backward is the sum of its I and W. */
  readonly W: number;
  /** Factor of the time and bytes of messages. */
  readonly send: number;
  /** Factor of the bytes of activations. */
  readonly bytes: number;
}

/** Times and bytes of one stage, for one micro-batch unless noted. */
export interface StageModel {
  /** A forward. */
  readonly forwardMs: number;
  /** A full backward. */
  readonly backwardMs: number;
  /** The backward for the input. Default: half of the full one. */
  readonly inputMs?: number | undefined;
  /** The backward for the weights. Default: the rest of the full backward. */
  readonly weightMs?: number | undefined;
  /**
   * The recomputation of dropped activations: the time of an R, or, if the schedule has none for the
   * stage, additional time of its B or I.
   */
  readonly recomputeMs?: number | undefined;
  /** The output of the stage; its gradient has the same size. */
  readonly outputBytes?: number | undefined;
  /** Time of a message between this stage and the next in addition to its link's. */
  readonly sendMs?: number | undefined;
  /** The gradients of a copy of the stage, which are added to those of other copies. */
  readonly gradientBytes?: number | undefined;
  /** The time to check that the gradients of a copy are finite, before it votes. */
  readonly checkMs?: number | undefined;
  /** The time to step all buckets of a copy. */
  readonly optimizerMs?: number | undefined;
  /** The memory of a copy of the stage. */
  readonly memory?: StageMemory | undefined;
}

/** A link: each message takes its bytes over the bandwidth, one message after the other, and α. */
export interface Link {
  /** α: from the last byte sent to its arrival. */
  readonly latencyMs: number;
  /** 1/β. Default: a message takes only its latency. */
  readonly bytesPerMs?: number | undefined;
}

/** The links between the workers of a data-parallel replica. */
export interface Network {
  /** Between workers of different nodes. */
  readonly link: Link;
  /** Between workers of one node. Default: as between nodes. */
  readonly local?: Link | undefined;
  /** Workers of a node, which are consecutive. Default 1. */
  readonly nodeSize?: number | undefined;
  /**
   * The messages that share a channel: those from one worker to another (`pair`, the default), all
   * that a worker sends (`worker`), or all that leave a node (`node`; within a node as `worker`).
   */
  readonly sharing?: "pair" | "worker" | "node" | undefined;
  /** True if a worker waits until its messages are sent; otherwise it computes meanwhile. */
  readonly isBlocking?: boolean | undefined;
}

/**
 * Variation of durations. Each is multiplied by its own draw, which depends on the seed, the worker,
 * the kind and the micro-batch, never on time: two orders of the same actions see the same draws, and
 * a whole backward has those of its I and W.
 */
export interface Jitter {
  /**
   * `around`: uniform from 1 − amount to 1 + amount; `above`: uniform from 1 to 1 + amount, so that
   * every duration is at least its base; `lognormal`: e to the power of amount · z, with z from the
   * standard normal distribution. Or measured factors, as quantiles at evenly spaced ranks, ascending:
   * 1 + amount · (factor − 1).
   */
  readonly law: "around" | "above" | "lognormal" | readonly number[];
  /** The amount for actions, a fraction such as 0.5; 1 takes measured factors as they are. */
  readonly amount: number;
  /** The amount for latencies of messages. Default 0. */
  readonly latencyAmount?: number | undefined;
  /** A whole number. */
  readonly seed: number;
}

/**
 * The end of a step, as the training actors run it: each copy of a stage checks its gradients and
 * votes; when all have voted, the supervisor has the workers add the gradients of all copies, chunk
 * by chunk, and commits; when a chunk has its sums, its k buckets are stepped while the next chunk is in
 * transit; when every bucket is stepped, the step is done. Without flushes only the optimizer steps.
 */
export interface StepEndModel {
  /**
   * `commit`, the default, is the above. With `ranks` there is no vote, as in the programs of Chimera
   * and AxoNN: a worker starts to add the gradients of its stages after its own last action (of an
   * eager stage after its own last backward of it), and steps a bucket when its sums arrive.
   */
  readonly protocol?: "commit" | "ranks" | undefined;
  /** The algorithm that adds the gradients of the copies of a stage. Default `direct`. */
  readonly algorithm?: "direct" | "ring" | "rabenseifner" | undefined;
  /** The links for gradients. Default: those of the network. */
  readonly link?: Link | undefined;
  /** Bytes that a worker adds in a ms. Default: adding takes no time. */
  readonly addBytesPerMs?: number | undefined;
  /** The time of a worker to start a chunk. */
  readonly launchMs?: number | undefined;
  /** Gradients of a bucket of the optimizer. Default: all of a stage. */
  readonly bucketBytes?: number | undefined;
  /** k: buckets of a chunk. Default 1. */
  readonly coarsening?: number | undefined;
  /** The most chunks of a copy in transit at a time; 2 unless given, as in the training actors. */
  readonly chunksUnderWay?: number | undefined;
  /** Stages whose gradients are added after their last backward, instead of the step's. */
  readonly eagerStages?: readonly number[] | undefined;
  /** True if the first bucket waits for the norm of all gradients. */
  readonly isClipped?: boolean | undefined;
  /** The time of the supervisor for each message. */
  readonly handleMs?: number | undefined;
  /** Other memory for the states of the optimizer, if each bucket fetches them from there. */
  readonly offload?: Offload | undefined;
}

/** Transfers of the states of the optimizer from other memory and back, for each bucket. */
export interface Offload {
  /** The link in both directions. */
  readonly link: Link;
  /** Bytes to fetch for each byte of gradients. */
  readonly loadRatio: number;
  /** Bytes to put back for each byte of gradients. */
  readonly storeRatio: number;
}

/**
 * The model of a schedule with the costs of {@linkcode analyze}: nothing else takes time.
 *
 * @throws {RangeError} if a cost is not usable.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { createSchedule, modelOfCosts, simulateStep } from "@troupe/troupe/schedules";
 *
 * const schedule = createSchedule("1f1b", { workers: 4, microBatches: 8 });
 * strictEqual(simulateStep(modelOfCosts(schedule, { backward: 2 })).makespanMs, 33);
 * ```
 */
export function modelOfCosts(schedule: Schedule, costs: Costs = {}): StepModel {
  const { durations, overlap, send } = stageTimes(schedule, costs);
  const [forward, backward, input, weight, recompute] = durations;
  const recomputed = recomputedStages(schedule);
  const stages = Array.from({ length: schedule.stages }, (_, stage) => ({
    forwardMs: forward![stage]!,
    backwardMs: backward![stage]!,
    inputMs: input![stage]!,
    weightMs: weight![stage]!,
    ...recomputed.has(stage) && { recomputeMs: recompute![stage]! },
    sendMs: send[stage]!,
  }));
  const skipMs = skipTimes(schedule, send, costs.skip);
  return { schedule, stages, overlapMs: overlap, ...skipMs.length > 0 && { skipMs } };
}

/** A condition of a figure, as a function and as text. */
type Bound = typeof TIME;

const TIME = {
  isMet: (value: number): boolean => value >= 0 && Number.isFinite(value),
  must: "a finite number, at least 0",
};
const RATE: Bound = { isMet: (value) => value > 0, must: "a number above 0" };
const COUNT: Bound = {
  isMet: (value) => Number.isSafeInteger(value) && value >= 1,
  must: "a whole number, at least 1",
};
const WHOLE: Bound = { isMet: Number.isSafeInteger, must: "a whole number" };
const SHARE: Bound = { isMet: (value) => value >= 0 && value <= 1, must: "from 0 to 1" };

/** Checks a model. @throws {RangeError} if a figure is not usable; the text names it. */
export function checkModel(model: StepModel): void {
  const { schedule, stages, replicas, network, jitter, closing, slowdowns = [], skipMs = [] } =
    model;
  if (model.loads) requireLength("loads", model.loads.length, schedule.microBatches);
  for (const [microBatch, load] of (model.loads ?? []).entries()) {
    for (const [name, value] of Object.entries(load)) {
      require(`loads[${microBatch}].${name}`, value, RATE);
    }
  }
  requireLength("stages", stages.length, schedule.stages);
  if (slowdowns.length > 0) requireLength("slowdowns", slowdowns.length, schedule.workers);
  if (skipMs.length > 0) requireLength("skipMs", skipMs.length, schedule.edges?.length ?? 0);
  for (const [edge, ms] of skipMs.entries()) require(`skipMs[${edge}]`, ms, TIME);
  require("replicas", replicas, COUNT);
  requireAll("", model, TIME, ["overlapMs", "dispatchMs", "controlMs"]);
  for (const [worker, factor] of slowdowns.entries()) require(`slowdowns[${worker}]`, factor, RATE);
  for (const [stage, one] of stages.entries()) checkStage(`stages[${stage}]`, one);
  checkLink("network.link", network?.link);
  checkLink("network.local", network?.local);
  require("network.nodeSize", network?.nodeSize, COUNT);
  checkJitter(jitter);
  checkLink("closing.link", closing?.link);
  requireAll("closing.", closing, RATE, ["addBytesPerMs", "bucketBytes"]);
  requireAll("closing.", closing, TIME, ["launchMs", "handleMs"]);
  requireAll("closing.", closing, COUNT, ["coarsening", "chunksUnderWay"]);
  checkLink("closing.offload.link", closing?.offload?.link);
  requireAll("closing.offload.", closing?.offload, TIME, ["loadRatio", "storeRatio"]);
}

function requireAll<K extends string>(
  where: string,
  figures: { readonly [name in K]?: number | undefined } | undefined,
  bound: Bound,
  names: readonly K[],
): void {
  for (const name of names) require(where + name, figures?.[name], bound);
}

function checkJitter(jitter: Jitter | undefined): void {
  if (jitter === undefined) return;
  const { law, amount, latencyAmount, seed } = jitter;
  const most = law === "above" || law === "lognormal" ? TIME : SHARE;
  if (typeof law !== "string") {
    require("jitter.law's factors", law.length, COUNT);
    for (const [rank, factor] of law.entries()) require(`jitter.law[${rank}]`, factor, RATE);
  }
  require("jitter.amount", amount, most);
  require("jitter.latencyAmount", latencyAmount, most);
  require("jitter.seed", seed, WHOLE);
}

function checkStage(where: string, { memory, ...figures }: StageModel): void {
  for (const [name, value] of Object.entries(figures)) require(`${where}.${name}`, value, TIME);
  for (const [name, value] of Object.entries(memory ?? {})) {
    require(`${where}.memory.${name}`, value, TIME);
  }
}

function checkLink(where: string, link: Link | undefined): void {
  require(`${where}.latencyMs`, link?.latencyMs, TIME);
  require(`${where}.bytesPerMs`, link?.bytesPerMs, RATE);
}

function require(name: string, value: number | undefined, { isMet, must }: Bound): void {
  assertInput(value === undefined || isMet(value), "simulate", `${name} must be ${must}`, value);
}

function requireLength(name: string, received: number, wanted: number): void {
  const must = `${name} must have ${wanted} entries`;
  assertInput(received === wanted, "simulate", must, received);
}

/** Random factors of an action of a worker: of its duration, and of the message after it. */
export interface Draws {
  readonly duration: (action: Action, worker: number) => number;
  readonly latency: (action: Action, worker: number) => number;
}

/** The draws of a variation; 1 without variation. */
export function drawsOf(jitter: Jitter | undefined): Draws {
  const one = () => 1;
  if (jitter === undefined) return { duration: one, latency: one };
  const { law, amount, latencyAmount = 0, seed } = jitter;
  const factor = (stream: number, most: number) => {
    if (most === 0) return one;
    return (action: Action, worker: number) => {
      const draw = uniform(seed, stream, action, worker);
      if (typeof law !== "string") return 1 + most * (quantile(law, draw) - 1);
      if (law === "lognormal") {
        const angle = 2 * Math.PI * uniform(mix(seed), stream, action, worker);
        return Math.exp(most * Math.sqrt(-2 * Math.log(1 - draw)) * Math.cos(angle));
      }
      return law === "above" ? 1 + most * draw : 1 + most * (2 * draw - 1);
    };
  };
  return { duration: factor(0, amount), latency: factor(1, latencyAmount) };
}

/** The factor at a rank from 0 to 1, interpolated between two known factors. */
function quantile(factors: readonly number[], rank: number): number {
  const place = rank * (factors.length - 1), low = Math.floor(place), share = place - low;
  return factors[low]! + share * (factors[Math.min(low + 1, factors.length - 1)]! - factors[low]!);
}

/** A number from 0 to 1, the same for the same seed, stream, worker, kind and micro-batch. */
export function uniform(
  seed: number,
  stream: number,
  { kind, microBatch, part }: Omit<Action, "stage">,
  worker: number,
): number {
  let hash = mix(seed ^ 0x9e3779b9);
  hash = mix(hash ^ (KIND[kind] * 8 + stream * 4));
  hash = mix(hash ^ worker);
  hash = mix(hash ^ microBatch);
  if (part && part.index > 0) hash = mix(hash ^ part.index);
  return (hash >>> 0) / 2 ** 32;
}

/** Spreads 32 bits: each bit of the input changes about half of those of the output. */
function mix(bits: number): number {
  let hash = bits | 0;
  hash = Math.imul(hash ^ (hash >>> 16), 0x7feb352d);
  hash = Math.imul(hash ^ (hash >>> 15), 0x846ca68b);
  return (hash ^ (hash >>> 16)) + 0x9e3779b9 | 0;
}

/** The result of a simulated step; of equal data-parallel replicas, that of the first. */
export interface SimulatedStep {
  /** The schedule with the orders that its workers took. */
  readonly schedule: ListedSchedule;
  /** The end of the step. */
  readonly makespanMs: number;
  /** The end of the last action. */
  readonly computedMs: number;
  /** Start and end of every action of every worker. */
  readonly timeline: Timeline;
  /** The time of each worker by activity. */
  readonly workers: readonly WorkerTimes[];
  /** For each worker, its spans at the end of the step, in order of time. */
  readonly closing: readonly (readonly StepEndSpan[])[];
  /** For each worker, the most bytes at a time. */
  readonly peakBytes: readonly number[];
  /** The bytes of a worker over time. */
  memoryOf(worker: number): MemoryCurve;
}

/** The time of a worker by activity; the sum is the makespan. */
export interface WorkerTimes {
  /** Running actions. */
  readonly busyMs: number;
  /** Choosing actions and taking their inputs. */
  readonly dispatchMs: number;
  /** Waiting for messages in transit. */
  readonly communicationMs: number;
  /** Waiting for inputs that did not exist yet, or idle until the last action's end. */
  readonly bubbleMs: number;
  /** Closing the step, or waiting for that after the last action of all workers. */
  readonly closingMs: number;
}

/** A span of the end of a step, for one copy of a stage. */
export interface StepEndSpan {
  /**
   * `check`, `launch`, `add` and `optimizer` keep the worker busy; `reduce` is a chunk in transit.
   */
  readonly what: "check" | "launch" | "add" | "optimizer" | "reduce";
  /** The stage. */
  readonly stage: number;
  /** The chunk or bucket. */
  readonly part: number;
  /** Its start. */
  readonly startMs: number;
  /** Its end. */
  readonly endMs: number;
}
