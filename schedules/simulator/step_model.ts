/** What a step is simulated from: a schedule, and what everything in it takes, in ms and bytes. */

import type { Costs } from "../execution/costs.ts";
import { skipTimes, stageTimes } from "../execution/stage_times.ts";
import type { StageMemory } from "../memory/stage_memory.ts";
import type { Schedule } from "../schedule.ts";
import { recomputedStages } from "./recomputed_stages.ts";

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
