/** Runs action lists on paper: when each action starts and ends, each as soon as it can. */

import { type ActionList, JOIN, KIND } from "../actions/action_list.ts";
import type { ListedSchedule } from "../schedule.ts";
import { hostTable } from "../stages.ts";
import type { Costs } from "./costs.ts";
import { type StageTimes, stageTimes } from "./stage_times.ts";

/** When every action of every worker runs. */
export interface Timeline {
  /** For each worker, the start of each of its actions. */
  readonly starts: readonly Float64Array[];
  /** For each worker, the end of each of its actions. */
  readonly ends: readonly Float64Array[];
  /** The end of the last action. */
  readonly makespan: number;
}

/** An input of an action. */
export interface AwaitedInput {
  /** What gives it: a forward, a full backward, or the backward for the input alone. */
  readonly kind: "F" | "B" | "I";
  /** The stage that gives it. */
  readonly stage: number;
  /** Its micro-batch. */
  readonly microBatch: number;
  /** When it is there, its way included; Infinity where it was never given. */
  readonly time: number;
}

/** How far the lists came. */
export interface Execution {
  /** When each action that could run ran. */
  readonly timeline: Timeline;
  /** For each worker, the number of its actions that ran. */
  readonly ran: Int32Array;
  /** The input of an action that is there last; undefined for one that needs none. */
  lastInput(worker: number, index: number): AwaitedInput | undefined;
}

/**
 * Executes the lists of a schedule until they end or nothing can run, in time linear in the number
 * of actions. A message takes its send time where stage and next stage sit on different workers,
 * and keeps neither busy. The micro-batches of a doubled forward and the actions of an overlap
 * have all inputs at the start and all outputs at the end.
 *
 * @throws {RangeError} if a cost is not usable.
 *
 * @example
 * ```ts
 * import { deepStrictEqual, strictEqual } from "node:assert/strict";
 * import { createSchedule, execute } from "@troupe/troupe/schedules";
 *
 * const schedule = createSchedule("1f1b", { workers: 2, microBatches: 2 });
 * if (schedule.lists === undefined) throw new Error("1F1B has lists");
 * const { timeline } = execute({ ...schedule, lists: schedule.lists }, { backward: 2 });
 * strictEqual(timeline.makespan, 9);
 * deepStrictEqual([...timeline.starts[0] ?? []], [0, 1, 4, 7]);
 * ```
 */
export function execute(schedule: ListedSchedule, costs: Costs = {}): Execution {
  const board = new Board(schedule, stageTimes(schedule, costs));
  const { lists, workers } = schedule;
  const starts = lists.map((list) => new Float64Array(list.length));
  const ends = lists.map((list) => new Float64Array(list.length));
  const ran = new Int32Array(workers);
  const free = new Float64Array(workers);
  const runnable = Array.from({ length: workers }, (_, worker) => workers - 1 - worker);
  while (runnable.length > 0) {
    const worker = runnable.pop() as number;
    const list = lists[worker] as ActionList;
    for (let index = ran[worker] as number; index < list.length; index++) {
      const start = Math.max(free[worker] as number, board.inputsAt(worker, index));
      if (start === Infinity) break;
      const end = start + board.duration(worker, index);
      (starts[worker] as Float64Array)[index] = start;
      (ends[worker] as Float64Array)[index] = end;
      free[worker] = end;
      ran[worker] = index + 1;
      board.finish(worker, index, end, runnable);
    }
  }
  const timeline = { starts, ends, makespan: free.reduce((a, b) => Math.max(a, b), 0) };
  return { timeline, ran, lastInput: (worker, index) => board.lastInput(worker, index) };
}

/** What has been computed so far, and when: the inputs of all that is to come. */
class Board {
  readonly #lists: readonly ActionList[];
  readonly #times: StageTimes;
  readonly #stages: number;
  readonly #microBatches: number;
  readonly #replicaOf: readonly number[];
  readonly #hosts: Int32Array;
  /** When the forward of (stage, micro-batch) ended; Infinity before. */
  readonly #forwards: Float64Array;
  /** 1 where the input gradient came from an `I`. */
  readonly #isSplit: Uint8Array;
  /** When the input gradient of each half of (stage, micro-batch) was there; Infinity before. */
  readonly #gradients: readonly [Float64Array, Float64Array];

  constructor(schedule: ListedSchedule, times: StageTimes) {
    const { lists, stages, microBatches, replicaOf } = schedule;
    this.#lists = lists;
    this.#times = times;
    this.#stages = stages;
    this.#microBatches = microBatches;
    this.#replicaOf = replicaOf;
    this.#hosts = hostTable(schedule);
    const blank = () => new Float64Array(stages * microBatches).fill(Infinity);
    this.#forwards = blank();
    this.#isSplit = new Uint8Array(stages * microBatches);
    const gradients = blank();
    // One table serves both halves where no backward is halved.
    this.#gradients = [gradients, lists.some(({ hasHalves }) => hasHalves) ? blank() : gradients];
  }

  /** When the last input of an action is there; Infinity where one is missing. */
  inputsAt(worker: number, index: number): number {
    const list = this.#lists[worker] as ActionList;
    let latest = 0;
    for (let part = list.startOf(index), end = list.startOf(index + 1); part < end; part++) {
      latest = Math.max(latest, this.#inputAt(worker, list, part));
    }
    return latest;
  }

  #inputAt(worker: number, list: ActionList, part: number): number {
    const kind = list.kindAt(part);
    const stage = list.stageAt(part);
    const microBatch = list.microBatchAt(part);
    const here = stage * this.#microBatches + microBatch;
    const [first, second] = this.#gradients;
    if (kind === KIND.W) return Math.max(first[here] as number, second[here] as number);
    if (kind === KIND.F) {
      if (stage === 0) return 0;
      const output = this.#forwards[here - this.#microBatches] as number;
      return output + this.#sendTime(worker, stage - 1, stage - 1, microBatch);
    }
    const own = this.#forwards[here] as number;
    if (stage === this.#stages - 1) return own;
    const half = list.halfAt(part);
    const above = here + this.#microBatches;
    const gradient = half === 0
      ? Math.max(first[above] as number, second[above] as number)
      : this.#gradients[half - 1]?.[above] as number;
    return Math.max(own, gradient + this.#sendTime(worker, stage, stage + 1, microBatch));
  }

  /** The time of a message over the edge above stage `edge`, between a worker and a stage. */
  #sendTime(worker: number, edge: number, stage: number, microBatch: number): number {
    return this.#host(stage, microBatch) === worker ? 0 : this.#times.send[edge] as number;
  }

  #host(stage: number, microBatch: number): number {
    return this.#hosts[(this.#replicaOf[microBatch] as number) * this.#stages + stage] as number;
  }

  duration(worker: number, index: number): number {
    const list = this.#lists[worker] as ActionList;
    const { durations, overlap } = this.#times;
    let sum = 0;
    for (let part = list.startOf(index), end = list.startOf(index + 1); part < end; part++) {
      if (overlap !== undefined && list.joinAt(part) === JOIN.overlap) return overlap;
      const whole = durations[list.kindAt(part)]?.[list.stageAt(part)] as number;
      sum += list.halfAt(part) === 0 ? whole : whole / 2;
    }
    return sum;
  }

  /** Notes the outputs of an action, and the workers that may go on because of them. */
  finish(worker: number, index: number, time: number, runnable: number[]): void {
    const list = this.#lists[worker] as ActionList;
    for (let part = list.startOf(index), end = list.startOf(index + 1); part < end; part++) {
      const kind = list.kindAt(part);
      const stage = list.stageAt(part);
      const microBatch = list.microBatchAt(part);
      const here = stage * this.#microBatches + microBatch;
      if (kind === KIND.W) continue;
      if (kind === KIND.F) this.#forwards[here] = time;
      else {
        const half = list.halfAt(part);
        if (kind === KIND.I) this.#isSplit[here] = 1;
        if (half !== 2) this.#gradients[0][here] = time;
        if (half !== 1) this.#gradients[1][here] = time;
      }
      const next = kind === KIND.F ? stage + 1 : stage - 1;
      if (next < 0 || next === this.#stages) continue;
      const host = this.#host(next, microBatch);
      if (host !== worker) runnable.push(host);
    }
  }

  lastInput(worker: number, index: number): AwaitedInput | undefined {
    const list = this.#lists[worker] as ActionList;
    let last: AwaitedInput | undefined;
    for (let part = list.startOf(index), end = list.startOf(index + 1); part < end; part++) {
      const time = this.#inputAt(worker, list, part);
      if (time <= (last?.time ?? -1)) continue;
      const kind = list.kindAt(part);
      const stage = list.stageAt(part);
      const microBatch = list.microBatchAt(part);
      const source = kind === KIND.F ? stage - 1 : kind === KIND.W ? stage : stage + 1;
      if (source < 0) continue;
      const ownForward = this.#forwards[stage * this.#microBatches + microBatch] as number;
      const isForward = kind === KIND.F || (kind !== KIND.W && ownForward === time);
      last = isForward
        ? { kind: "F", stage: kind === KIND.F ? source : stage, microBatch, time }
        : { kind: this.#gradientKind(source, microBatch), stage: source, microBatch, time };
    }
    return last;
  }

  #gradientKind(stage: number, microBatch: number): "B" | "I" {
    return this.#isSplit[stage * this.#microBatches + microBatch] === 1 ? "I" : "B";
  }
}
