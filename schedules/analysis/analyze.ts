/** Measures of a schedule: time, bubbles and their causes, activations, weights, messages. */

import type { Action } from "../action.ts";
import { type ActionList, activationChanges, KINDS, peakOf } from "../action_list.ts";
import { type Costs, stageTimes } from "../costs.ts";
import { assertInput, refusal } from "../errors.ts";
import { type AwaitedInput, execute, type Execution, type Timeline } from "../execute.ts";
import { hostTable, type ListedSchedule, pipelineWorkers, type Schedule } from "../schedule.ts";
import { withLists } from "../simulator/simulate.ts";
import { leaving, type SkipRoute, stageRoutes } from "../skip_edges.ts";
import { comeByTimes, freedBy, peakOfSkips, type Received } from "./skip_memory.ts";

/** For each worker, the peak number of values and gradients of skip edges, in whole micro-batches. */
function peakSkips(schedule: ListedSchedule, { ends }: Timeline, costs: Costs): number[] {
  const { lists, stages, pipelineOf, slices = 1 } = schedule;
  const routes = stageRoutes(stages, schedule.edges) ?? [];
  const hosts = hostTable(schedule), { send } = stageTimes(schedule, costs);
  const received = lists.map((): Received[] => []), sizeOf = ({ edges }: SkipRoute) => edges.length;
  lists.forEach((list, from) => {
    for (let index = 0; index < list.length; index++) {
      for (let part = list.startOf(index); part < list.startOf(index + 1); part++) {
        const share = 1 / list.countAt(part), stage = list.stageAt(part);
        for (const route of leaving(routes, KINDS[list.kindAt(part)] ?? "W", stage)) {
          const to = hosts[pipelineOf[list.microBatchAt(part)]! * stages + route.to]!;
          const time = ends[from]![index]! + (to === from ? 0 : send[route.number]! / slices);
          received[to]!.push({ time, size: share * sizeOf(route) });
        }
      }
    }
  });
  const freed = freedBy(routes, sizeOf);
  return lists.map((list, worker) =>
    peakOfSkips(list, { come: comeByTimes(ends[worker]!, received[worker]!), freed })
  );
}

/** Measures of a schedule under given costs. */
export interface Analysis {
  /** The schedule with the lists that were executed. */
  readonly schedule: ListedSchedule;
  /** The execution that was measured. */
  readonly execution: Execution;
  /** The end of the last action. */
  readonly makespan: number;
  /** The idle time of all workers over workers times makespan. */
  readonly bubbleRatio: number;
  /** For each worker, makespan minus busy time. */
  readonly idle: readonly number[];
  /** For each worker, idle time between its own first and last action. */
  readonly idleLocal: readonly number[];
  /** For each worker, the most activations at a time, in micro-batches of 1/P of the model. */
  readonly peakActivations: readonly number[];
  /** For each worker, the most weights at a time, in 1/P of the model. */
  readonly weights: readonly number[];
  /**
   * For each worker, the most values and gradients of skip edges at a time, each from its arrival to
   * the end of the backward that uses it. Absent for a chain.
   */
  readonly peakSkips?: readonly number[];
  /** The messages between workers for one micro-batch in one direction. */
  readonly hops: number;
}

/**
 * Executes a schedule on paper and measures it.
 *
 * @param timed Times of its lists that were simulated or measured; they follow from the costs unless
 * given.
 * @throws {RangeError} if the schedule deadlocks (`validate` says why), or a cost is not usable.
 *
 * @example The bubbles of 1F1B
 * ```ts
 * import { deepStrictEqual, strictEqual } from "node:assert/strict";
 * import { analyze, createSchedule } from "@troupe/troupe/schedules";
 *
 * const analysis = analyze(createSchedule("1f1b", { workers: 4, microBatches: 8 }));
 * strictEqual(analysis.makespan, 33);
 * deepStrictEqual(analysis.idle, [9, 9, 9, 9]);
 * deepStrictEqual(analysis.peakActivations, [4, 3, 2, 1]);
 * ```
 */
export function analyze(schedule: Schedule, costs: Costs = {}, timed?: Timeline): Analysis {
  const listed = withLists(schedule, costs);
  const execution = execute(listed, costs, timed);
  const { timeline: { starts, ends, makespan }, ran } = execution;
  const stuck = listed.lists.findIndex((list, worker) => ran[worker]! < list.length);
  const deadlock = `a deadlock at action ${ran[stuck]} of worker ${stuck}`;
  const cannot = `analyze the schedule ${schedule.name}`;
  assertInput(stuck < 0, cannot, "every action must be able to run", deadlock);
  const busy = starts.map((own, worker) =>
    own.reduce((sum, start, i) => sum + (ends[worker]![i]! - start), 0)
  );
  const idle = busy.map((time) => makespan - time);
  const span = (worker: number) => (ends[worker]?.at(-1) ?? 0) - (starts[worker]?.[0] ?? 0);
  const total = idle.reduce((a, b) => a + b, 0);
  const share = pipelineWorkers(listed) / listed.stages, hosts = hostTable(listed);
  let hops = 0;
  for (let stage = 1; stage < listed.stages; stage++) {
    if (hosts[stage] !== hosts[stage - 1]) hops++;
  }
  return {
    schedule: listed,
    execution,
    makespan,
    bubbleRatio: makespan === 0 ? 0 : total / (listed.workers * makespan),
    idle,
    idleLocal: busy.map((time, worker) => span(worker) - time),
    peakActivations: listed.lists.map((list) => peakOf(list) * share),
    weights: listed.placement.map((held, worker) =>
      held.length * share * (listed.weightVersions[worker] ?? 1)
    ),
    ...listed.edges && { peakSkips: peakSkips(listed, execution.timeline, costs) },
    hops,
  };
}

/** The list of a worker. @throws {RangeError} if the worker does not exist. */
function listOf({ lists, workers }: ListedSchedule, worker: number, purpose: string): ActionList {
  const list = lists[worker];
  if (list !== undefined) return list;
  throw refusal(`list ${purpose}`, `the worker must be from 0 to ${workers - 1}`, worker);
}

/** The actions of a worker with their times. */
export function timedActions({ schedule, execution: { timeline } }: Analysis, worker: number) {
  const starts = timeline.starts[worker]!, ends = timeline.ends[worker]!;
  return Array.from(
    schedule.lists[worker]!,
    (action, i) => ({ action, start: starts[i]!, end: ends[i]! }),
  );
}

/** A time in which a worker was idle, and its cause. */
export interface Bubble {
  /** The worker. */
  readonly worker: number;
  /** Its start. */
  readonly start: number;
  /** Its end. */
  readonly end: number;
  /** The action that the worker could not start; undefined after its last action. */
  readonly before?: Action;
  /** The input that this action waited for. */
  readonly waitsFor?: AwaitedInput;
}

/**
 * The bubbles of one worker in order of time, each with its cause; the last one, from the last
 * action of the worker to the end of the step, has none.
 *
 * @example
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { analyze, bubbles, createSchedule, formatAction } from "@troupe/troupe/schedules";
 *
 * const analysis = analyze(createSchedule("1f1b", { workers: 2, microBatches: 2 }));
 * const causes = [...bubbles(analysis, 0)].map(({ start, end, waitsFor }) =>
 *   `${start}-${end} ${waitsFor && formatAction(waitsFor)}`
 * );
 * deepStrictEqual(causes, ["2-4 1B0", "6-7 1B1"]);
 * ```
 */
export function* bubbles(analysis: Analysis, worker: number): IterableIterator<Bubble> {
  const { schedule, execution: { timeline, lastInput } } = analysis;
  const list = listOf(schedule, worker, "bubbles");
  let end = 0;
  for (let index = 0; index < list.length; index++) {
    const start = timeline.starts[worker]![index]!;
    if (start > end) {
      const before = list.at(index)!, waitsFor = lastInput(worker, index);
      yield { worker, start: end, end: start, before, ...(waitsFor && { waitsFor }) };
    }
    end = timeline.ends[worker]![index]!;
  }
  if (end < timeline.makespan) yield { worker, start: end, end: timeline.makespan };
}

/** Activations of a worker from a time on. */
export interface LiveActivations {
  /** The time. */
  readonly time: number;
  /** Activations, in micro-batches of 1/P of the model. */
  readonly live: number;
}

/**
 * The activations of a worker, with a record for each change. An activation counts from the start of
 * the action that keeps it to the end of the action that frees it.
 *
 * @throws {RangeError} if the worker does not exist.
 *
 * @example
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { analyze, createSchedule, liveActivations } from "@troupe/troupe/schedules";
 *
 * const analysis = analyze(createSchedule("1f1b", { workers: 2, microBatches: 2 }));
 * deepStrictEqual([...liveActivations(analysis, 1)].map(({ time, live }) => [time, live]), [
 *   [1, 1],
 *   [4, 0],
 *   [4, 1],
 *   [7, 0],
 * ]);
 * ```
 */
export function* liveActivations(
  { schedule, execution }: Analysis,
  worker: number,
): IterableIterator<LiveActivations> {
  const list = listOf(schedule, worker, "activations");
  const share = pipelineWorkers(schedule) / schedule.stages / list.slices;
  const changes = activationChanges(list), { starts, ends } = execution.timeline;
  let live = 0;
  for (let index = 0; index < list.length; index++) {
    let [gained, lost] = [0, 0];
    for (let part = list.startOf(index); part < list.startOf(index + 1); part++) {
      const change = changes[part]!;
      if (change > 0) gained += change;
      else lost -= change;
    }
    if (gained > 0) {
      live += gained;
      yield { time: starts[worker]![index]!, live: live * share };
    }
    if (lost > 0) {
      live -= lost;
      yield { time: ends[worker]![index]!, live: live * share };
    }
  }
}

/** Numbers of actions on the critical path of one step: C_f and C_b of Chimera, section 3.4. */
export interface CriticalPath {
  /** Forwards of one micro-batch by 1/D of the model. */
  readonly forwards: number;
  /** Full backwards of one micro-batch by 1/D of the model. */
  readonly backwards: number;
}

/** The time added to all actions, which keeps the order of paths of different length. */
const LONGER = 2 ** -24;

/**
 * C_f and C_b: forwards and backwards on the critical path (Chimera, section 3.4), with equal stages, no time for messages,
 * and a backward of `backward` forwards: the paper takes 2, or 3 with recomputation.
 *
 * The length of the path is C_f + C_b·backward; its growth when every action takes a little longer
 * is C_f + C_b. Of paths of the same length, this finds the one with the most actions, which messages
 * lengthen most. Chimera with K whole units of D micro-batches and f = 1 has
 * C_f = N - (K-1)(D-2) and C_b = N + K(D-2).
 *
 * @throws {RangeError} if the schedule deadlocks, or `backward` is not a whole number from 1 to 100.
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
  const must = "a backward in forwards must be a whole number from 1 to 100";
  assertInput(isServed, "find the critical path", must, backward);
  const length = analyze(schedule, { forward: 1, backward }).makespan;
  const longer = { forward: 1 + LONGER, backward: backward + LONGER };
  const actions = (analyze(schedule, longer).makespan - length) / LONGER;
  if (backward === 1) return { forwards: actions / 2, backwards: actions / 2 };
  const backwards = (length - actions) / (backward - 1);
  return { forwards: actions - backwards, backwards };
}
