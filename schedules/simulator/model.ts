/** What the simulation of a step gives. */

import type { Action } from "../action.ts";
import { KIND } from "../action_list.ts";
import type { MemoryCurve, StageMemory } from "../analysis/memory.ts";
import { type Costs, skipTimes, stageTimes } from "../costs.ts";
import type { Timeline } from "../execute.ts";
import type { ListedSchedule, Schedule } from "../schedule.ts";

/** For each stage, 1 where a list has an R of it. */
export function recomputedStages({ stages, lists = [] }: Schedule): Uint8Array {
  const found = new Uint8Array(stages);
  for (const list of lists) {
    for (let part = 0; part < list.partCount; part++) {
      if (list.kindAt(part) === KIND.R) found[list.stageAt(part)] = 1;
    }
  }
  return found;
}

/** A step of training as the simulator sees it. What is absent takes no time and no bytes. */
export interface StepModel {
  /** Who does what, by its own policies. */
  readonly schedule: Schedule;
  /** Data-parallel replicas of the whole schedule, W, all alike, jitter included; 1 unless given. */
  readonly replicas?: number | undefined;
  /** For each stage of the model, what it takes. */
  readonly stages: readonly StageModel[];
  /** What a forward and a backward take that overlap; the sum of both unless given. */
  readonly overlapMs?: number | undefined;
  /** What a worker needs before each action, to choose it and to take its input. */
  readonly dispatchMs?: number | undefined;
  /** The way of a message between the supervisor and a worker. */
  readonly controlMs?: number | undefined;
  /** For each worker of a replica, how many times as long its actions take; 1 unless given. */
  readonly slowdowns?: readonly number[] | undefined;
  /** The links between workers; messages take no time unless given, but for `sendMs`. */
  readonly network?: Network | undefined;
  /**
   * For each skip edge of the schedule, more time for its value and gradient beside their link's; none
   * unless given.
   */
  readonly skipMs?: readonly number[] | undefined;
  /** How durations vary; not at all unless given. */
  readonly jitter?: Jitter | undefined;
  /** How the step ends; with its last action unless given. */
  readonly closing?: Closing | undefined;
}

/** What one stage takes for one micro-batch, and once in a step. */
export interface StageModel {
  /** A forward. */
  readonly forwardMs: number;
  /** A full backward. */
  readonly backwardMs: number;
  /** The backward for the input; half of the full one unless given. */
  readonly inputMs?: number | undefined;
  /** The backward for the weights; what is left of the full one unless given. */
  readonly weightMs?: number | undefined;
  /**
   * To bring back what the forward did not keep: an R; of a stage of which the schedule has none, so
   * much more for its B or I.
   */
  readonly recomputeMs?: number | undefined;
  /** The activation that leaves the stage; the gradient that comes back for it has as many. */
  readonly outputBytes?: number | undefined;
  /** More time for a micro-batch's message between this stage and the next, beside its link's. */
  readonly sendMs?: number | undefined;
  /** The gradients of a copy of the stage, as they are added to those of other copies. */
  readonly gradientBytes?: number | undefined;
  /** To look whether the gradients of a copy are finite, before it votes. */
  readonly checkMs?: number | undefined;
  /** To step all buckets of a copy. */
  readonly optimizerMs?: number | undefined;
  /** What a copy of the stage holds. */
  readonly memory?: StageMemory | undefined;
}

/** A way for messages: each takes its bytes over the bandwidth, one after the other, and α. */
export interface Link {
  /** α: from the last byte sent to its arrival. */
  readonly latencyMs: number;
  /** 1/β; a message takes its latency only unless given. */
  readonly bytesPerMs?: number | undefined;
}

/** The links between the workers of a replica. */
export interface Network {
  /** Between workers of different nodes. */
  readonly link: Link;
  /** Between workers of one node; as between nodes unless given. */
  readonly local?: Link | undefined;
  /** Workers of a node, which are consecutive; 1 unless given. */
  readonly nodeSize?: number | undefined;
  /**
   * Which messages take turns: those from one worker to another (`pair`, unless given), all that a
   * worker sends (`worker`), or all that leaves a node (`node`, within a node as `worker`).
   */
  readonly sharing?: "pair" | "worker" | "node" | undefined;
  /** Whether a worker waits until its messages are sent; it computes meanwhile unless this is true. */
  readonly isBlocking?: boolean | undefined;
}

/**
 * How durations vary. Each is multiplied by a draw of its own, which depends on the seed and on what
 * is drawn for (such as `2F0`), never on when: two orders of the same actions see the same draws.
 */
export interface Jitter {
  /**
   * `around`: uniform from 1 − amount to 1 + amount; `above`: uniform from 1 to 1 + amount, so that
   * nothing is faster than without. Or measured factors, their quantiles at evenly spaced ranks, the
   * least first: 1 + amount · (factor − 1).
   */
  readonly law: "around" | "above" | readonly number[];
  /** Of the actions, a fraction such as 0.5; with measured factors 1 takes them as they are. */
  readonly amount: number;
  /** Of the latencies of messages; 0 unless given. */
  readonly latencyAmount?: number | undefined;
  /** A whole number. */
  readonly seed: number;
}

/**
 * The end of a step, as the training actors end it: each copy of a stage checks its gradients and
 * votes; when all have voted the supervisor has the workers add the gradients of all copies, chunk
 * by chunk, and commits; as a chunk has its sums, its k buckets are stepped while the next is on its
 * way; when every bucket is stepped, the step is done. Without flushes only the optimizer steps.
 */
export interface Closing {
  /**
   * `commit`, unless given, is the above. With `ranks` nobody votes, as in Chimera's and AxoNN's own
   * programs: a worker starts to add the gradients of its stages after its own last action (of an
   * eager stage after its own last backward of it), and steps a bucket as its sums come.
   */
  readonly protocol?: "commit" | "ranks" | undefined;
  /** How the copies of a stage add their gradients; `direct` unless given. */
  readonly algorithm?: "direct" | "ring" | "rabenseifner" | undefined;
  /** The links that gradients take; those of the network unless given. */
  readonly link?: Link | undefined;
  /** What a worker adds in a ms, itself; it is not kept busy unless given. */
  readonly addBytesPerMs?: number | undefined;
  /** What a worker needs to start a chunk. */
  readonly launchMs?: number | undefined;
  /** Gradients of a bucket of the optimizer; all of a stage unless given. */
  readonly bucketBytes?: number | undefined;
  /** k: buckets of a chunk; 1 unless given. */
  readonly coarsening?: number | undefined;
  /** Chunks of a copy under way at a time; 2 unless given, as the training actors have it. */
  readonly chunksUnderWay?: number | undefined;
  /** Stages whose gradients are added after their own last backward, in place of the step's. */
  readonly eagerStages?: readonly number[] | undefined;
  /** Whether the norm of all gradients is awaited before the first bucket is stepped. */
  readonly isClipped?: boolean | undefined;
  /** What the supervisor needs for each message that it takes. */
  readonly handleMs?: number | undefined;
  /** Where the states of the optimizer are kept in other memory: what each bucket fetches. */
  readonly offload?: Offload | undefined;
}

/** The states of the optimizer come from other memory for each bucket, and go back. */
export interface Offload {
  /** The way there and back. */
  readonly link: Link;
  /** Bytes that come for each byte of gradients. */
  readonly loadRatio: number;
  /** Bytes that go back for each byte of gradients. */
  readonly storeRatio: number;
}

/**
 * The model of a schedule whose costs are those of {@linkcode analyze}: nothing else takes time.
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
  const [forward, backward, input, weight, recompute] = durations,
    isAction = recomputedStages(schedule);
  const stages = Array.from({ length: schedule.stages }, (_, stage) => ({
    forwardMs: forward![stage]!,
    backwardMs: backward![stage]!,
    inputMs: input![stage]!,
    weightMs: weight![stage]!,
    ...(isAction[stage] && { recomputeMs: recompute![stage]! }),
    sendMs: send[stage]!,
  }));
  const skipMs = skipTimes(schedule, send, costs.skip);
  return { schedule, stages, overlapMs: overlap, ...skipMs.length > 0 && { skipMs } };
}

/** What a figure must be. */
interface Bound {
  readonly isMet: (value: number) => boolean;
  readonly inWords: string;
}

const TIME: Bound = {
  isMet: (value) => value >= 0 && Number.isFinite(value),
  inWords: "a finite number, at least 0",
};
const RATE: Bound = { isMet: (value) => value > 0, inWords: "a number above 0" };
const COUNT: Bound = {
  isMet: (value) => Number.isSafeInteger(value) && value >= 1,
  inWords: "a whole number, at least 1",
};
const WHOLE: Bound = { isMet: Number.isSafeInteger, inWords: "a whole number" };
const SHARE: Bound = { isMet: (value) => value >= 0 && value <= 1, inWords: "from 0 to 1" };

/** @throws {RangeError} if a figure of the model is not usable; the text says which. */
export function checkModel(model: StepModel): void {
  const { schedule, stages, replicas, network, jitter, closing, slowdowns = [], skipMs = [] } =
    model;
  requireLength("stages", stages.length, schedule.stages);
  if (slowdowns.length > 0) requireLength("slowdowns", slowdowns.length, schedule.workers);
  if (skipMs.length > 0) requireLength("skipMs", skipMs.length, schedule.edges?.length ?? 0);
  for (const [edge, ms] of skipMs.entries()) require(`skipMs[${edge}]`, ms, TIME);
  require("replicas", replicas, COUNT);
  for (const name of ["overlapMs", "dispatchMs", "controlMs"] as const) {
    require(name, model[name], TIME);
  }
  for (const [worker, factor] of slowdowns.entries()) require(`slowdowns[${worker}]`, factor, RATE);
  for (const [stage, one] of stages.entries()) checkStage(`stages[${stage}]`, one);
  checkLink("network.link", network?.link);
  checkLink("network.local", network?.local);
  require("network.nodeSize", network?.nodeSize, COUNT);
  checkJitter(jitter);
  checkLink("closing.link", closing?.link);
  require("closing.addBytesPerMs", closing?.addBytesPerMs, RATE);
  require("closing.bucketBytes", closing?.bucketBytes, RATE);
  for (const name of ["launchMs", "handleMs"] as const) {
    require(`closing.${name}`, closing?.[name], TIME);
  }
  for (const name of ["coarsening", "chunksUnderWay"] as const) {
    require(`closing.${name}`, closing?.[name], COUNT);
  }
  checkLink("closing.offload.link", closing?.offload?.link);
  for (const name of ["loadRatio", "storeRatio"] as const) {
    require(`closing.offload.${name}`, closing?.offload?.[name], TIME);
  }
}

function checkJitter(jitter: Jitter | undefined): void {
  if (jitter === undefined) return;
  const { law, amount, latencyAmount, seed } = jitter, most = law === "above" ? TIME : SHARE;
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

function require(what: string, value: number | undefined, { isMet, inWords }: Bound): void {
  if (value === undefined || isMet(value)) return;
  throw new RangeError(`Cannot simulate: ${what} must be ${inWords}, received ${value}`);
}

function requireLength(what: string, received: number, wanted: number): void {
  if (received === wanted) return;
  throw new RangeError(
    `Cannot simulate: ${what} must have ${wanted} entries, received ${received}`,
  );
}

/** A factor for what an action takes, and one for the message after it. */
export interface Draws {
  readonly duration: (action: Action) => number;
  readonly latency: (action: Action) => number;
}

/** The draws of a law; 1 where nothing varies. */
export function drawsOf(jitter: Jitter | undefined): Draws {
  const one = () => 1;
  if (jitter === undefined) return { duration: one, latency: one };
  const { law, amount, latencyAmount = 0, seed } = jitter;
  const factor = (stream: number, most: number) => {
    if (most === 0) return one;
    return (action: Action) => {
      const draw = uniform(seed, stream, action);
      if (typeof law !== "string") return 1 + most * (quantile(law, draw) - 1);
      return law === "above" ? 1 + most * draw : 1 + most * (2 * draw - 1);
    };
  };
  return { duration: factor(0, amount), latency: factor(1, latencyAmount) };
}

/** The factor at a rank from 0 to 1, between two that are known what lies between. */
function quantile(factors: readonly number[], rank: number): number {
  const place = rank * (factors.length - 1), low = Math.floor(place), share = place - low;
  return factors[low]! + share * (factors[Math.min(low + 1, factors.length - 1)]! - factors[low]!);
}

/** From 0 to 1, the same for the same seed, stream and action. */
function uniform(seed: number, stream: number, action: Action): number {
  const { kind, stage, microBatch, half, slice = 0 } = action;
  let hash = mix(seed ^ 0x9e3779b9);
  hash = mix(hash ^ (KIND[kind] * 8 + stream * 4 + (half === undefined ? 0 : half + 1)));
  hash = mix(hash ^ stage);
  hash = mix(hash ^ microBatch);
  if (slice > 0) hash = mix(hash ^ slice);
  return (hash >>> 0) / 2 ** 32;
}

/** Spreads 32 bits: each bit of the input changes about half of those of the output. */
function mix(bits: number): number {
  let hash = bits | 0;
  hash = Math.imul(hash ^ (hash >>> 16), 0x7feb352d);
  hash = Math.imul(hash ^ (hash >>> 15), 0x846ca68b);
  return (hash ^ (hash >>> 16)) + 0x9e3779b9 | 0;
}

/** A step as it was simulated; of equal data-parallel replicas the first. */
export interface SimulatedStep {
  /** The schedule with the orders that its workers took. */
  readonly schedule: ListedSchedule;
  /** The end of the step. */
  readonly makespanMs: number;
  /** The end of the last action. */
  readonly computedMs: number;
  /** When every action of every worker ran. */
  readonly timeline: Timeline;
  /** Where the time of each worker went. */
  readonly workers: readonly WorkerTimes[];
  /** For each worker, what it did to close the step, in order of time. */
  readonly closing: readonly (readonly ClosingSpan[])[];
  /** For each worker, the most bytes at a time. */
  readonly peakBytes: readonly number[];
  /** The bytes of a worker over time. */
  memoryOf(worker: number): MemoryCurve;
}

/** Where the time of a worker went: the parts add up to the makespan. */
export interface WorkerTimes {
  /** It ran actions. */
  readonly busyMs: number;
  /** It chose actions and took their inputs. */
  readonly dispatchMs: number;
  /** It waited while what it waited for was on its way. */
  readonly communicationMs: number;
  /** It waited for what was not there yet, or had nothing to do until the last action's end. */
  readonly bubbleMs: number;
  /** It closed the step, or waited for that after the last action of all workers. */
  readonly closingMs: number;
}

/** A part of the closing of a step, for one copy of a stage. */
export interface ClosingSpan {
  /**
   * `check`, `launch`, `add` and `optimizer` keep the worker busy; `reduce` is a chunk on its way.
   */
  readonly what: "check" | "launch" | "add" | "optimizer" | "reduce";
  /** The stage. */
  readonly stage: number;
  /** The chunk or bucket. */
  readonly part: number;
  /** When it began. */
  readonly startMs: number;
  /** When it ended. */
  readonly endMs: number;
}
