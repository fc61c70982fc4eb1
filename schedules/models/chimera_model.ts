/** Chimera's performance model (section 3.4): Eq. 1, from the schedule at hand. */

import { type Analysis, analyze } from "../execution/analyze.ts";
import type { Schedule } from "../schedule.ts";
import { checkModel } from "./link_model.ts";

/** How many of each are on the critical path of one step: C_f and C_b of the paper. */
export interface CriticalPath {
  /** Forwards of one micro-batch by 1/D of the model. */
  readonly forwards: number;
  /** Full backwards of one micro-batch by 1/D of the model. */
  readonly backwards: number;
}

/** All actions of this many units longer leave the order of paths of different length as it is. */
const LONGER = 2 ** -24;

/**
 * C_f and C_b: forwards and backwards on the critical path, all stages alike and messages free, a
 * backward as long as `backward` forwards: the paper takes 2, or 3 with recomputation.
 *
 * The length of the path is C_f + C_b·backward; what it grows by when every action takes a little
 * more is C_f + C_b. Of paths of the same length that finds the one with the most actions, which is
 * the one that messages lengthen most. Chimera with K whole units of D micro-batches and f = 1 has
 * C_f = N - (K-1)(D-2) and C_b = N + K(D-2).
 *
 * @throws {RangeError} if the schedule deadlocks, or `backward` is no whole number from 1 to 100.
 *
 * @example The path of the paper's Figure 6
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { createSchedule, criticalPath } from "@troupe/troupe/schedules";
 *
 * const chimera = createSchedule("chimera", { workers: 6, microBatches: 6 });
 * deepStrictEqual(criticalPath(chimera), { forwards: 6, backwards: 10 });
 * ```
 */
export function criticalPath(schedule: Schedule, backward = 2): CriticalPath {
  const isServed = Number.isInteger(backward) && backward >= 1 && backward <= 100;
  checkModel("a backward in forwards", backward, isServed, "a whole number from 1 to 100");
  const length = analyze(schedule, { forward: 1, backward }).makespan;
  const longer = { forward: 1 + LONGER, backward: backward + LONGER };
  const actions = (analyze(schedule, longer).makespan - length) / LONGER;
  if (backward === 1) return { forwards: actions / 2, backwards: actions / 2 };
  const backwards = (length - actions) / (backward - 1);
  return { forwards: actions - backwards, backwards };
}

/** What Eq. 1 is about. */
export interface ChimeraStep {
  /** The schedule: Chimera's, or another whose backwards are not split. */
  readonly schedule: Schedule;
  /** F_t: milliseconds of a forward of one micro-batch by 1/D of the model. */
  readonly forwardMs: number;
  /** B_t as a number of F_t: 2, or 3 with recomputation. */
  readonly backward?: 2 | 3;
  /** Comm_p2p: milliseconds of a message from stage to stage. */
  readonly messageMs: number;
  /** Comm_allreduce: milliseconds of the all-reduce of one stage. */
  readonly allReduceMs: number;
}

/** The parts of Eq. 1, in milliseconds. */
export interface ChimeraStepTime {
  /** T: all of it. */
  readonly totalMs: number;
  /** F_t·C_f + B_t·C_b. */
  readonly computeMs: number;
  /** Comm_p2p·(C_f + C_b). */
  readonly messagesMs: number;
  /** max of Comm_unoverlapped(i) of all workers. */
  readonly unoverlappedMs: number;
}

/**
 * Milliseconds of one step by Eq. 1:
 * T = (F_t + Comm_p2p)·C_f + (B_t + Comm_p2p)·C_b + max Comm_unoverlapped(i).
 *
 * @throws {RangeError} if the schedule deadlocks, or a time is negative.
 *
 * @example
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { chimeraStep, createSchedule } from "@troupe/troupe/schedules";
 *
 * const schedule = createSchedule("chimera", { workers: 4, microBatches: 4 });
 * deepStrictEqual(chimeraStep({ schedule, forwardMs: 10, messageMs: 1, allReduceMs: 25 }), {
 *   totalMs: 200,
 *   computeMs: 160,
 *   messagesMs: 10,
 *   unoverlappedMs: 30,
 * });
 * ```
 */
export function chimeraStep(step: ChimeraStep): ChimeraStepTime {
  const { schedule, forwardMs, backward = 2, messageMs, allReduceMs } = step;
  for (const [name, ms] of Object.entries({ forwardMs, messageMs, allReduceMs })) {
    checkModel(name, ms, ms >= 0, "at least 0");
  }
  const { forwards, backwards } = criticalPath(schedule, backward);
  const computeMs = forwardMs * (forwards + backward * backwards);
  const messagesMs = messageMs * (forwards + backwards);
  const analysis = analyze(schedule, { forward: forwardMs, backward: backward * forwardMs });
  const unoverlappedMs = Math.max(...unoverlappedReduce(analysis, allReduceMs));
  return {
    totalMs: computeMs + messagesMs + unoverlappedMs,
    computeMs,
    messagesMs,
    unoverlappedMs,
  };
}

/**
 * Comm_unoverlapped(i): for each worker, what the all-reduces of its stages, `allReduceMs` each, take
 * beyond the step's computation. They run one after the other, and only while the worker is idle
 * after the last backward of the stage: the free regions of the paper's Figure 6.
 *
 * @example The outer workers have a bubble after their first stage, the inner ones end early
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { analyze, createSchedule, unoverlappedReduce } from "@troupe/troupe/schedules";
 *
 * const chimera = createSchedule("chimera", { workers: 4, microBatches: 4 });
 * deepStrictEqual(unoverlappedReduce(analyze(chimera), 2), [2, 2, 2, 2]);
 * ```
 */
export function unoverlappedReduce(analysis: Analysis, allReduceMs: number): number[] {
  return analysis.schedule.lists.map((_, worker) => {
    let left = 0;
    const regions = freeRegions(analysis, worker);
    for (const { copies, idle } of regions) left = Math.max(0, left + copies * allReduceMs - idle);
    return left;
  });
}

/** Idle time of a worker after `copies` more of its stages have their gradients. */
interface FreeRegion {
  readonly copies: number;
  readonly idle: number;
}

function freeRegions({ schedule, execution }: Analysis, worker: number): FreeRegion[] {
  const list = schedule.lists[worker]!;
  const { starts, ends, makespan } = execution.timeline;
  const lastOf = new Map<string, number>();
  for (let index = 0; index < list.length; index++) {
    for (let part = list.startOf(index); part < list.startOf(index + 1); part++) {
      const replica = schedule.replicaOf[list.microBatchAt(part)]!;
      lastOf.set(`${list.stageAt(part)} ${replica}`, index);
    }
  }
  const lasts = [...lastOf.values()].sort((a, b) => a - b);
  const regions: FreeRegion[] = [];
  const idleAfter = (index: number) =>
    (starts[worker]![index + 1] ?? makespan) - ends[worker]![index]!;
  for (let index = lasts[0] ?? list.length; index < list.length; index++) {
    regions.push({ copies: lasts.filter((last) => last === index).length, idle: idleAfter(index) });
  }
  return regions;
}
