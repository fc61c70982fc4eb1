/** Runs action lists on paper: when each action starts and ends, each as soon as it can. */

import { type ActionList, JOIN, KIND, KINDS } from "./action_list.ts";
import { type Costs, type StageTimes, stageTimes } from "./costs.ts";
import { Dependencies } from "./dependencies.ts";
import { hostTable, type ListedSchedule } from "./schedule.ts";

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
  /** What gives it: a forward, a full backward, that for the input alone, or a recomputation. */
  readonly kind: "F" | "B" | "I" | "R";
  /** The stage that gives it. */
  readonly stage: number;
  /** Its micro-batch. */
  readonly microBatch: number;
  /** Its slice, where micro-batches have several. */
  readonly slice?: number;
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
 * have all inputs at the start and all outputs at the end. A slice of a micro-batch is an equal part
 * of it, and so is its message.
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
  readonly #slices: number;
  readonly #dependencies: Dependencies;
  /** When each output was there; Infinity before. */
  readonly #given: Float64Array;
  /** 1 for each cell whose input gradient came from an `I`. */
  readonly #isSplit: Uint8Array;

  constructor(schedule: ListedSchedule, times: StageTimes) {
    const { lists, stages, microBatches, slices = 1 } = schedule;
    this.#lists = lists;
    this.#times = times;
    this.#slices = slices;
    this.#dependencies = new Dependencies({ ...schedule, hosts: hostTable(schedule) }, lists);
    this.#given = new Float64Array(this.#dependencies.outputCount).fill(Infinity);
    this.#isSplit = new Uint8Array(stages * microBatches * slices);
  }

  /** When the last input of an action is there; Infinity where one is missing. */
  inputsAt(worker: number, index: number): number {
    const list = this.#lists[worker] as ActionList, { edges } = this.#dependencies;
    let latest = 0;
    for (let part = list.startOf(index), end = list.startOf(index + 1); part < end; part++) {
      for (let i = this.#readInputs(list, part) - 1; i >= 0; i--) {
        latest = Math.max(latest, this.#arrival(i, edges));
      }
    }
    return latest;
  }

  #readInputs(list: ActionList, part: number): number {
    return this.#dependencies.inputsOf(
      list.kindAt(part),
      list.stageAt(part),
      list.microBatchAt(part),
      list.halfAt(part),
      list.sliceAt(part),
    );
  }

  /** When the i-th of the inputs that were asked for last is there, its way included. */
  #arrival(i: number, edges: Int32Array): number {
    const edge = edges[i] as number, given = this.#given[this.#dependencies.inputs[i] as number];
    return (given as number) + (edge < 0 ? 0 : (this.#times.send[edge] as number) / this.#slices);
  }

  duration(worker: number, index: number): number {
    const list = this.#lists[worker] as ActionList;
    const { durations, overlap } = this.#times;
    let sum = 0;
    for (let part = list.startOf(index), end = list.startOf(index + 1); part < end; part++) {
      if (overlap !== undefined && list.joinAt(part) === JOIN.overlap) {
        return overlap / this.#slices;
      }
      const whole = durations[list.kindAt(part)]?.[list.stageAt(part)] as number;
      sum += list.halfAt(part) === 0 ? whole / this.#slices : whole / 2;
    }
    return sum;
  }

  /** Notes the outputs of an action, and the workers that may go on because of them. */
  finish(worker: number, index: number, time: number, runnable: number[]): void {
    const list = this.#lists[worker] as ActionList, { outputs } = this.#dependencies;
    for (let part = list.startOf(index), end = list.startOf(index + 1); part < end; part++) {
      const kind = list.kindAt(part), stage = list.stageAt(part);
      const microBatch = list.microBatchAt(part), slice = list.sliceAt(part);
      const count = this.#dependencies.outputsOf(
        kind,
        stage,
        microBatch,
        list.halfAt(part),
        slice,
      );
      for (let i = 0; i < count; i++) this.#given[outputs[i] as number] = time;
      if (kind === KIND.I) this.#isSplit[this.#dependencies.cellOf(stage, microBatch, slice)] = 1;
      const other = this.#dependencies.waiting(kind, stage, microBatch);
      if (other >= 0) runnable.push(other);
    }
  }

  lastInput(worker: number, index: number): AwaitedInput | undefined {
    const list = this.#lists[worker] as ActionList, { inputs, edges } = this.#dependencies;
    let last: AwaitedInput | undefined;
    for (let part = list.startOf(index), end = list.startOf(index + 1); part < end; part++) {
      const count = this.#readInputs(list, part);
      for (let i = 0; i < count; i++) {
        const time = this.#arrival(i, edges);
        if (time > (last?.time ?? -1)) last = this.#awaited(inputs[i] as number, time);
      }
    }
    return last;
  }

  #awaited(output: number, time: number): AwaitedInput {
    const { isForward, isRecomputed, ...place } = this.#dependencies.describe(output);
    const { stage, microBatch, slice } = place;
    const isSplit = this.#isSplit[this.#dependencies.cellOf(stage, microBatch, slice)] === 1;
    const kind = isForward ? "F" : isRecomputed ? "R" : isSplit ? "I" : "B";
    return { kind, ...place, time };
  }
}

/** A plain part of an action that has run. */
interface RanPart {
  /** Its kind. */
  readonly kind: "F" | "B" | "I" | "W" | "R";
  /** Its stage. */
  readonly stage: number;
  /** Its micro-batch. */
  readonly microBatch: number;
  /** How much of a micro-batch it is: a half or a slice is less than 1. */
  readonly share: number;
}

/**
 * Runs all others as far as they come before each action of one worker.
 *
 * @param ran gets each part that runs, with the first action of the slow worker that may run at the
 * same time or later; for its own parts that is their own action.
 */
export function runAround(
  schedule: ListedSchedule,
  slow: number,
  ran: (part: RanPart, before: number) => void,
): void {
  const { lists, workers, slices = 1 } = schedule;
  const dependencies = new Dependencies({ ...schedule, hosts: hostTable(schedule) }, lists);
  const given = new Uint8Array(dependencies.outputCount), { inputs, outputs } = dependencies;
  const next = new Int32Array(workers);
  const partOf = (list: ActionList, part: number) =>
    [
      list.kindAt(part),
      list.stageAt(part),
      list.microBatchAt(part),
      list.halfAt(part),
      list.sliceAt(part),
    ] as const;
  const isReady = (list: ActionList, index: number) => {
    for (let part = list.startOf(index); part < list.startOf(index + 1); part++) {
      for (let i = dependencies.inputsOf(...partOf(list, part)) - 1; i >= 0; i--) {
        if (given[inputs[i]!] === 0) return false;
      }
    }
    return true;
  };
  const waiting: number[] = [];
  const finish = (list: ActionList, index: number) => {
    for (let part = list.startOf(index); part < list.startOf(index + 1); part++) {
      const [kind, stage, microBatch, half, slice] = partOf(list, part);
      const count = dependencies.outputsOf(kind, stage, microBatch, half, slice);
      for (let i = 0; i < count; i++) given[outputs[i]!] = 1;
      const share = half === 0 ? 1 / slices : 0.5;
      ran({ kind: KINDS[kind]!, stage, microBatch, share }, next[slow]!);
      const other = dependencies.waiting(kind, stage, microBatch);
      if (other >= 0 && other !== slow) waiting.push(other);
    }
  };
  for (let worker = workers - 1; worker >= 0; worker--) if (worker !== slow) waiting.push(worker);
  for (const own = lists[slow]!; next[slow]! < own.length;) {
    for (let worker = waiting.pop(); worker !== undefined; worker = waiting.pop()) {
      const list = lists[worker]!;
      for (; next[worker]! < list.length && isReady(list, next[worker]!); next[worker]!++) {
        finish(list, next[worker]!);
      }
    }
    if (!isReady(own, next[slow]!)) return;
    finish(own, next[slow]!);
    next[slow]!++;
  }
}
