/** What a schedule costs: time, idle time and its causes, activations, weights, messages. */

import type { Action } from "../action.ts";
import { activationChanges, KINDS, peakOf } from "../action_list.ts";
import { type Costs, stageTimes } from "../costs.ts";
import { type AwaitedInput, execute, type Execution, type Timeline } from "../execute.ts";
import { hostTable, type ListedSchedule, pipelineWorkers, type Schedule } from "../schedule.ts";
import { withLists } from "../simulator/simulate.ts";
import { leaving, stageWays, type Way } from "../skip_edges.ts";
import { comeByTimes, freedBy, peakOfSkips, type Received } from "./skip_memory.ts";

/** For each worker the most values and gradients of skip edges, of whole micro-batches, at a time. */
function peakSkips(
  schedule: ListedSchedule,
  { ends }: Timeline,
  costs: Costs,
): readonly number[] {
  const { lists, stages, replicaOf, slices = 1 } = schedule;
  const ways = stageWays(stages, schedule.edges) ?? [];
  const hosts = hostTable(schedule), { send } = stageTimes(schedule, costs);
  const received = lists.map((): Received[] => []), sizeOf = ({ edges }: Way) => edges.length;
  lists.forEach((list, from) => {
    for (let index = 0; index < list.length; index++) {
      for (let part = list.startOf(index); part < list.startOf(index + 1); part++) {
        const share = list.halfAt(part) === 0 ? 1 / slices : 0.5, stage = list.stageAt(part);
        for (const way of leaving(ways, KINDS[list.kindAt(part)] ?? "W", stage)) {
          const to = hosts[replicaOf[list.microBatchAt(part)]! * stages + way.to]!;
          const time = ends[from]![index]! + (to === from ? 0 : send[way.number]! / slices);
          received[to]!.push({ time, size: share * sizeOf(way) });
        }
      }
    }
  });
  const freed = freedBy(ways, sizeOf);
  return lists.map((list, worker) =>
    peakOfSkips(list, { come: comeByTimes(ends[worker]!, received[worker]!), freed })
  );
}

/** The measures of a schedule under given costs. */
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
   * For each worker, the most values of skip edges, and gradients of them, at a time: from when they
   * come to the end of the backward that uses them. Absent for a chain.
   */
  readonly peakSkips?: readonly number[];
  /** The messages between workers that one micro-batch needs in one direction. */
  readonly hops: number;
}

/**
 * Executes a schedule on paper and measures it.
 *
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
export function analyze(schedule: Schedule, costs: Costs = {}): Analysis {
  const listed = withLists(schedule, costs);
  const execution = execute(listed, costs);
  const { timeline: { starts, ends, makespan }, ran } = execution;
  const stuck = listed.lists.findIndex((list, worker) => (ran[worker] as number) < list.length);
  if (stuck >= 0) {
    throw new RangeError(
      `Cannot analyze the schedule ${schedule.name}: every action must be able to run, ` +
        `received a deadlock at action ${ran[stuck]} of worker ${stuck}`,
    );
  }
  const busy = starts.map((own, worker) => busyTime(own, ends[worker] as Float64Array));
  const idle = busy.map((time) => makespan - time);
  const span = (worker: number) => (ends[worker]?.at(-1) ?? 0) - (starts[worker]?.[0] ?? 0);
  const total = idle.reduce((a, b) => a + b, 0);
  return {
    schedule: listed,
    execution,
    makespan,
    bubbleRatio: makespan === 0 ? 0 : total / (listed.workers * makespan),
    idle,
    idleLocal: busy.map((time, worker) => span(worker) - time),
    peakActivations: listed.lists.map((list) => peakOf(list) * stageShare(listed)),
    weights: listed.placement.map((held, worker) =>
      held.length * stageShare(listed) * (listed.weightVersions[worker] ?? 1)
    ),
    ...listed.edges && { peakSkips: peakSkips(listed, execution.timeline, costs) },
    hops: hops(listed),
  };
}

function busyTime(starts: Float64Array, ends: Float64Array): number {
  let busy = 0;
  for (let i = 0; i < starts.length; i++) busy += (ends[i] as number) - (starts[i] as number);
  return busy;
}

/** What a stage is of 1/P of the model. */
function stageShare(schedule: Schedule): number {
  return pipelineWorkers(schedule) / schedule.stages;
}

function hops(schedule: Schedule): number {
  const hosts = hostTable(schedule);
  let count = 0;
  for (let stage = 1; stage < schedule.stages; stage++) {
    if (hosts[stage] !== hosts[stage - 1]) count++;
  }
  return count;
}

/** A time in which a worker had nothing to do, and why. */
export interface Bubble {
  /** The worker. */
  readonly worker: number;
  /** When it begins. */
  readonly start: number;
  /** When it ends. */
  readonly end: number;
  /** The action that the worker could not start; undefined after its last. */
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
  const list = schedule.lists[worker];
  if (list === undefined) {
    throw new RangeError(
      `Cannot list bubbles: the worker must be from 0 to ${schedule.workers - 1}, ` +
        `received ${worker}`,
    );
  }
  let end = 0;
  for (let index = 0; index < list.length; index++) {
    const start = timeline.starts[worker]?.[index] as number;
    if (start > end) {
      const before = list.at(index) as Action;
      const waitsFor = lastInput(worker, index);
      yield { worker, start: end, end: start, before, ...(waitsFor && { waitsFor }) };
    }
    end = timeline.ends[worker]?.[index] as number;
  }
  if (end < timeline.makespan) yield { worker, start: end, end: timeline.makespan };
}

/** What a worker holds from a moment on. */
export interface LiveActivations {
  /** The moment. */
  readonly time: number;
  /** Activations, in micro-batches of 1/P of the model. */
  readonly live: number;
}

/**
 * The activations of a worker, a record for each time that they change: what is kept counts from the
 * start of the action that keeps it, and until the end of that which lets it go.
 *
 * @throws {RangeError} if there is no such worker.
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
  const list = schedule.lists[worker];
  if (list === undefined) {
    throw new RangeError(
      `Cannot tell activations: the worker must be from 0 to ${schedule.workers - 1}, ` +
        `received ${worker}`,
    );
  }
  const share = pipelineWorkers(schedule) / schedule.stages / list.slices;
  const changes = activationChanges(list), { starts, ends } = execution.timeline;
  let live = 0;
  for (let index = 0; index < list.length; index++) {
    let [gained, lost] = [0, 0];
    for (let part = list.startOf(index); part < list.startOf(index + 1); part++) {
      const change = changes[part] as number;
      if (change > 0) gained += change;
      else lost -= change;
    }
    if (gained > 0) {
      live += gained;
      yield { time: starts[worker]?.[index] as number, live: live * share };
    }
    if (lost > 0) {
      live -= lost;
      yield { time: ends[worker]?.[index] as number, live: live * share };
    }
  }
}
