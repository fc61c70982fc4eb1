/** Executes action lists on paper: start and end of each action, each as early as possible. */

import { type Action, type Part, parts } from "./action.ts";
import { JOIN, KINDS, partAt } from "./action_list.ts";
import { type Costs, type StageTimes, stageTimes } from "./costs.ts";
import { Dependencies } from "./dependencies.ts";
import { hostTable, type ListedSchedule } from "./schedule.ts";

/** Start and end of every action of every worker. */
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
  /** The action that gives it: a forward, a full backward, a backward for the input, or an R. */
  readonly kind: "F" | "B" | "I" | "R";
  /** The stage that gives it. */
  readonly stage: number;
  /** Its micro-batch. */
  readonly microBatch: number;
  /** Its slice, where micro-batches have several, or its half, if it has run as one. */
  readonly part?: Part;
  /** The worker that gives it. */
  readonly worker: number;
  /** The index of the action there; undefined if it was never given. */
  readonly index?: number;
  /** Its time of arrival; Infinity if it was never given. */
  readonly time: number;
}

/** Returns true if an action waits for an input of the same stage, or over the chain. */
export function isOfChain(
  head: Action,
  { kind, stage, microBatch }: Pick<AwaitedInput, "kind" | "stage" | "microBatch">,
): boolean {
  const isForward = kind === "F", next = isForward ? stage + 1 : stage - 1;
  return parts(head).some((part) =>
    part.microBatch === microBatch &&
    (part.stage === stage || part.stage === next && (part.kind === "F") === isForward)
  );
}

/** The result of executing lists, up to a deadlock if there is one. */
export interface Execution {
  /** Times of the actions that ran. */
  readonly timeline: Timeline;
  /** For each worker, the number of its actions that ran. */
  readonly ran: Int32Array;
  /** The input of an action that arrives last; undefined for an action without inputs. */
  lastInput(worker: number, index: number): AwaitedInput | undefined;
}

/**
 * Executes the lists of a schedule until they end or nothing can run, in time linear in the number
 * of actions. A message takes its send time if its two stages are on different workers, and keeps
 * neither worker busy. A doubled forward and an overlap need all inputs at the start and give all
 * outputs at the end. A slice of a micro-batch takes an equal part of its time, and so does its
 * message.
 *
 * @param timed Times of all actions that were simulated or measured, which are then those of the
 * execution.
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
export function execute(
  schedule: ListedSchedule,
  costs: Costs = {},
  timed?: Timeline,
): Execution {
  const board = new Board(schedule, stageTimes(schedule, costs));
  const { lists, workers } = schedule;
  const starts = lists.map((list) => new Float64Array(list.length));
  const ends = lists.map((list) => new Float64Array(list.length));
  const ran = new Int32Array(workers);
  const free = new Float64Array(workers);
  const runnable = Array.from({ length: workers }, (_, worker) => workers - 1 - worker);
  while (runnable.length > 0) {
    const worker = runnable.pop()!, list = lists[worker]!;
    for (let index = ran[worker]!; index < list.length; index++) {
      const earliest = Math.max(free[worker]!, board.inputsAt(worker, index));
      if (earliest === Infinity) break;
      const start = timed ? timed.starts[worker]![index]! : earliest;
      const end = timed ? timed.ends[worker]![index]! : start + board.duration(worker, index);
      starts[worker]![index] = start;
      ends[worker]![index] = end;
      free[worker] = end;
      ran[worker] = index + 1;
      board.finish(worker, index, end, runnable);
    }
  }
  const timeline = { starts, ends, makespan: free.reduce((a, b) => Math.max(a, b), 0) };
  return { timeline, ran, lastInput: (worker, index) => board.lastInput(worker, index) };
}

/** The outputs of an execution and their times: the inputs of later actions. */
class Board {
  readonly #slices: number;
  readonly #dependencies: Dependencies;
  /** The time of each output; Infinity before. */
  readonly #given: Float64Array;
  /** The action that gave each output, by its index in the list of its worker. */
  readonly #actions: Int32Array;
  /** The part of this action, by its number in the list. */
  readonly #parts: Int32Array;

  constructor(private readonly schedule: ListedSchedule, private readonly times: StageTimes) {
    const shape = { ...schedule, hosts: hostTable(schedule) };
    this.#slices = schedule.slices ?? 1;
    this.#dependencies = new Dependencies(shape, schedule.lists);
    this.#given = new Float64Array(this.#dependencies.outputCount).fill(Infinity);
    this.#actions = new Int32Array(this.#dependencies.outputCount);
    this.#parts = new Int32Array(this.#dependencies.outputCount);
  }

  /** The time at which the last input of an action arrives; Infinity if one is missing. */
  inputsAt(worker: number, index: number): number {
    const list = this.schedule.lists[worker]!;
    let latest = 0;
    for (let part = list.startOf(index), end = list.startOf(index + 1); part < end; part++) {
      for (let i = this.#dependencies.inputsAt(list, part) - 1; i >= 0; i--) {
        latest = Math.max(latest, this.#arrival(i));
      }
    }
    return latest;
  }

  /** The time at which the i-th input of the last call arrives. */
  #arrival(i: number): number {
    const { edges, inputs } = this.#dependencies, edge = edges[i]!;
    return this.#given[inputs[i]!]! + (edge < 0 ? 0 : this.times.send[edge]! / this.#slices);
  }

  duration(worker: number, index: number): number {
    const list = this.schedule.lists[worker]!, { durations, overlap } = this.times;
    let sum = 0;
    for (let part = list.startOf(index), end = list.startOf(index + 1); part < end; part++) {
      if (overlap !== undefined && list.joinAt(part) === JOIN.overlap) {
        return overlap / this.#slices;
      }
      const whole = durations[list.kindAt(part)]![list.stageAt(part)]!;
      sum += whole / list.countAt(part);
    }
    return sum;
  }

  /** Notes the outputs of an action, and adds the workers that may continue to `runnable`. */
  finish(worker: number, index: number, time: number, runnable: number[]): void {
    const list = this.schedule.lists[worker]!, dependencies = this.#dependencies;
    for (let part = list.startOf(index), end = list.startOf(index + 1); part < end; part++) {
      const count = dependencies.outputsAt(list, part);
      for (let i = 0; i < count; i++) {
        const output = dependencies.outputs[i]!;
        this.#given[output] = time;
        this.#actions[output] = index;
        this.#parts[output] = part;
      }
      const { kind, stage, microBatch } = partAt(list, part);
      const other = dependencies.waiting(kind, stage, microBatch);
      if (other >= 0) runnable.push(other);
    }
  }

  lastInput(worker: number, index: number): AwaitedInput | undefined {
    const list = this.schedule.lists[worker]!, dependencies = this.#dependencies;
    let last: AwaitedInput | undefined;
    for (let part = list.startOf(index), end = list.startOf(index + 1); part < end; part++) {
      const count = dependencies.inputsAt(list, part);
      for (let i = 0; i < count; i++) {
        const time = this.#arrival(i);
        if (time <= (last?.time ?? -1)) continue;
        last = { ...this.#giverOf(dependencies.inputs[i]!), time };
      }
    }
    return last;
  }

  /** The action that gave an output, or that should have. */
  #giverOf(output: number): Omit<AwaitedInput, "time"> {
    const input = this.#dependencies.describe(output);
    const worker = this.#dependencies.hostOf(input.stage, input.microBatch);
    if (this.#given[output] === Infinity) return { ...input, worker };
    const { kind, index, count } = partAt(this.schedule.lists[worker]!, this.#parts[output]!);
    return {
      ...input,
      kind: KINDS[kind] as AwaitedInput["kind"],
      ...count > 1 && { part: { index, count } },
      worker,
      index: this.#actions[output]!,
    };
  }
}

/** A plain part of an action that has run, with its share of a micro-batch: less than 1 for a part. */
type RanPart = Pick<Action, "kind" | "stage" | "microBatch"> & { readonly share: number };

/**
 * Runs the other workers until they are stuck before each action of one worker.
 *
 * @param ran Called for each part that runs, with the first action of the slow worker that may run at
 * the same time or later; for a part of the slow worker that is its own action.
 */
export function runAround(
  schedule: ListedSchedule,
  slow: number,
  ran: (part: RanPart, before: number) => void,
): void {
  const { lists, workers } = schedule, board = new Board(schedule, stageTimes(schedule, {}));
  const next = new Int32Array(workers), waiting: number[] = [];
  const isReady = (worker: number) => board.inputsAt(worker, next[worker]!) < Infinity;
  const run = (worker: number) => {
    const list = lists[worker]!, index = next[worker]!;
    for (let part = list.startOf(index); part < list.startOf(index + 1); part++) {
      const { kind, stage, microBatch, count } = partAt(list, part);
      ran({ kind: KINDS[kind]!, stage, microBatch, share: 1 / count }, next[slow]!);
    }
    board.finish(worker, index, 0, waiting);
    next[worker]!++;
  };
  for (let worker = workers - 1; worker >= 0; worker--) waiting.push(worker);
  while (next[slow]! < lists[slow]!.length) {
    for (let worker = waiting.pop(); worker !== undefined; worker = waiting.pop()) {
      if (worker === slow) continue;
      while (next[worker]! < lists[worker]!.length && isReady(worker)) run(worker);
    }
    if (!isReady(slow)) return;
    run(slow);
  }
}
