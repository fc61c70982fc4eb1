/** Local search: makes the order of a step shorter, one move at a time. */

import { uniformInt } from "pure-rand/distribution/uniformInt";
import { xoroshiro128plus } from "pure-rand/generator/xoroshiro128plus";
import type { Action } from "../action.ts";
import { KIND, KINDS } from "../action_list.ts";
import { Dependencies } from "../dependencies.ts";
import type { Workload } from "./limits.ts";

/** The kinds of a step whose backwards are all split, which is never slower. */
const SPLIT_KINDS = [KIND.F, KIND.I, KIND.W] as const;

/** The kinds of actions that have a number. */
export const ACTION_KINDS = SPLIT_KINDS.length;

/** The place of F among the kinds, of I and of W. */
export const SPLIT = { F: 0, I: 1, W: 2 } as const;

/**
 * The actions of a workload by number, `(stage * microBatches + microBatch) * ACTION_KINDS + kind`,
 * with all backwards split and no micro-batch in slices. -1 stands for none.
 */
export interface ActionTables {
  /** The number of an action. */
  codeOf(action: Action): number;
  /** The plain action of a number. */
  actionOf(code: number): Action;
  /** How long each takes. */
  readonly durations: Float64Array;
  /** The most inputs of an action: its forward, the gradient from above, and those of skip edges. */
  readonly width: number;
  /** The actions that each waits for, at index `code * width` and after. */
  readonly inputs: Int32Array;
  /** The time that each of these inputs is on its way. */
  readonly sends: Float64Array;
  /** The worker of each. */
  readonly workers: Int32Array;
  /** Another worker that may wait for what each gives. */
  readonly waiting: Int32Array;
  /** The copy of the stage that each belongs to. */
  readonly copies: Int32Array;
}

/** Works the tables out. */
export function actionTables(load: Workload): ActionTables {
  const { stages, microBatches, replicaOf, times: { durations, send } } = load;
  const size = stages * microBatches * ACTION_KINDS;
  const dependencies = new Dependencies(load);
  const partsOf = (code: number) => {
    const cell = Math.floor(code / ACTION_KINDS);
    const kind = SPLIT_KINDS[code % ACTION_KINDS] ?? KIND.F;
    return [kind, Math.floor(cell / microBatches), cell % microBatches] as const;
  };
  let width = 1;
  for (let code = 0; code < size; code++) {
    width = Math.max(width, dependencies.inputsOf(...partsOf(code)));
  }
  const tables = {
    durations: new Float64Array(size),
    width,
    inputs: new Int32Array(size * width).fill(-1),
    sends: new Float64Array(size * width),
    workers: new Int32Array(size),
    waiting: new Int32Array(size),
    copies: new Int32Array(size),
  };
  const givers = new Int32Array(dependencies.outputCount).fill(-1);
  for (let code = 0; code < size; code++) {
    const count = dependencies.outputsOf(...partsOf(code));
    for (let i = 0; i < count; i++) givers[dependencies.outputs[i] as number] = code;
  }
  for (let code = 0; code < size; code++) {
    const [kind, stage, microBatch] = partsOf(code);
    tables.durations[code] = durations[kind]?.[stage] as number;
    tables.workers[code] = dependencies.hostOf(stage, microBatch);
    tables.waiting[code] = dependencies.waiting(kind, stage, microBatch);
    tables.copies[code] = (replicaOf[microBatch] as number) * stages + stage;
    const count = dependencies.inputsOf(kind, stage, microBatch);
    for (let i = 0; i < count; i++) {
      const edge = dependencies.edges[i] as number;
      tables.inputs[code * width + i] = givers[dependencies.inputs[i] as number] as number;
      tables.sends[code * width + i] = edge < 0 ? 0 : send[edge] as number;
    }
  }
  return {
    ...tables,
    codeOf: ({ kind, stage, microBatch }) =>
      (stage * microBatches + microBatch) * ACTION_KINDS +
      SPLIT_KINDS.findIndex((each) => each === KIND[kind]),
    actionOf(code) {
      const [kind, stage, microBatch] = partsOf(code);
      return { kind: KINDS[kind] ?? "F", stage, microBatch };
    },
  };
}

/** An action of a worker that goes to another place in its order; a swap where that is the next. */
export interface Move {
  readonly worker: number;
  readonly from: number;
  readonly to: number;
}

/** The most neighbours that a move goes past. */
const REACH = 3;

/** More than the rounding of sums of durations, less than any duration. */
const DUST = 1e-9;

/**
 * For each worker, its actions by their numbers in the tables. What a move leaves as it is, all that
 * starts before the first action that it shifts, is not worked out again.
 */
class TimedOrder {
  readonly #tables: ActionTables;
  /** For each worker, the most live (stage, micro-batch) activations. */
  readonly #limits: readonly number[];
  #orders: readonly Int32Array[];
  /** The index of each action in the order of its worker. */
  readonly #indices: Int32Array;
  /** When each action starts and ends; -1 where it has not run. */
  #starts: Float64Array;
  #ends: Float64Array;
  /** The same with the move that is tried. */
  #triedStarts: Float64Array;
  #triedEnds: Float64Array;
  /** For each worker, the next of its actions that is worked out, when it is free, and its work left. */
  readonly #next: Int32Array;
  readonly #free: Float64Array;
  readonly #left: Float64Array;

  constructor(tables: ActionTables, limits: readonly number[]) {
    const size = tables.durations.length, times = () => new Float64Array(size).fill(-1);
    this.#tables = tables;
    this.#limits = limits;
    this.#orders = [];
    this.#indices = new Int32Array(size);
    this.#starts = times();
    this.#ends = times();
    this.#triedStarts = times();
    this.#triedEnds = times();
    this.#next = new Int32Array(limits.length);
    this.#free = new Float64Array(limits.length);
    this.#left = new Float64Array(limits.length);
  }

  /** The orders, not to be changed. */
  get orders(): readonly Int32Array[] {
    return this.#orders;
  }

  /** Takes orders of all workers, and gives their makespan; Infinity where they deadlock. */
  reset(orders: readonly Int32Array[]): number {
    this.#orders = orders.map((order) => order.slice());
    for (const order of this.#orders) order.forEach((code, i) => this.#indices[code] = i);
    const makespan = this.#evaluate(-Infinity, Infinity);
    this.accept();
    return makespan;
  }

  /**
   * The makespan after a move; Infinity where it is more than `most`, or where more activations live
   * than may.
   */
  try(move: Move, most: number): number {
    const order = this.#orders[move.worker] as Int32Array;
    const first = order[Math.min(move.from, move.to)] as number;
    this.#move(move);
    if (!keepsLimit(order, this.#limits[move.worker] as number)) return Infinity;
    return this.#evaluate(this.#starts[first] as number, most);
  }

  /** Keeps what was tried. */
  accept(): void {
    [this.#starts, this.#triedStarts] = [this.#triedStarts, this.#starts];
    [this.#ends, this.#triedEnds] = [this.#triedEnds, this.#ends];
  }

  /** Takes back what was tried. */
  undo({ worker, from, to }: Move): void {
    this.#move({ worker, from: to, to: from });
  }

  #move({ worker, from, to }: Move): void {
    const order = this.#orders[worker] as Int32Array, code = order[from] as number;
    if (to < from) order.copyWithin(to + 1, to, from);
    else order.copyWithin(from, from + 1, to + 1);
    order[to] = code;
    for (let i = Math.min(from, to); i <= Math.max(from, to); i++) {
      this.#indices[order[i] as number] = i;
    }
  }

  /**
   * Works out what does not start before `from`: no action that does can wait for one that does not.
   * Ends as soon as the work that is left to a worker cannot end within `most`.
   */
  #evaluate(from: number, most: number): number {
    const { durations, waiting } = this.#tables;
    const starts = this.#triedStarts, ends = this.#triedEnds;
    let count = this.#keepBefore(from);
    const runnable = this.#orders.map((_, worker) => worker);
    for (let worker = runnable.pop(); worker !== undefined; worker = runnable.pop()) {
      const order = this.#orders[worker] as Int32Array;
      for (let i = this.#next[worker] as number; i < order.length; i++) {
        const code = order[i] as number;
        const input = this.#inputAt(code, ends);
        if (input < 0) break;
        const start = Math.max(this.#free[worker] as number, input);
        if (start + (this.#left[worker] as number) > most + DUST) return Infinity;
        const end = start + (durations[code] as number);
        starts[code] = start;
        ends[code] = end;
        this.#free[worker] = end;
        this.#left[worker] = (this.#left[worker] as number) - (durations[code] as number);
        this.#next[worker] = i + 1;
        count--;
        const other = waiting[code] as number;
        if (other >= 0) runnable.push(other);
      }
    }
    return count > 0 ? Infinity : this.#free.reduce((a, b) => Math.max(a, b), 0);
  }

  /** Takes over what starts before a time; gives the number of the actions that are left. */
  #keepBefore(time: number): number {
    const starts = this.#triedStarts, ends = this.#triedEnds;
    starts.set(this.#starts);
    ends.set(this.#ends);
    let count = 0;
    this.#orders.forEach((order, worker) => {
      let kept = order.length, work = 0;
      while (kept > 0 && (starts[order[kept - 1] as number] as number) >= time) {
        const code = order[--kept] as number;
        ends[code] = -1;
        work += this.#tables.durations[code] as number;
      }
      this.#next[worker] = kept;
      this.#free[worker] = kept === 0 ? 0 : ends[order[kept - 1] as number] as number;
      this.#left[worker] = work;
      count += order.length - kept;
    });
    return count;
  }

  /** When the inputs of an action are there; negative where one is missing. */
  #inputAt(code: number, ends: Float64Array): number {
    const { inputs, sends, width } = this.#tables;
    let latest = 0;
    for (let i = code * width; i < (code + 1) * width; i++) {
      const input = inputs[i] as number;
      if (input < 0) break;
      const end = ends[input] as number;
      if (end < 0) return -1;
      latest = Math.max(latest, end + (sends[i] as number));
    }
    return latest;
  }

  /** The input that an action waited for; -1 where the worker was not free before. */
  #heldUpBy(code: number): number {
    const { inputs, sends, width } = this.#tables, start = this.#starts[code] as number;
    for (let i = code * width; i < (code + 1) * width; i++) {
      const input = inputs[i] as number;
      if (input >= 0 && (this.#ends[input] as number) + (sends[i] as number) === start) {
        return input;
      }
    }
    return -1;
  }

  /**
   * The moves that could shorten the critical path: of an action that was held up by the one before
   * it, past that one and the ones before that as far as they only held up each other; and of these
   * behind it.
   */
  criticalMoves(): Move[] {
    const moves: Move[] = [];
    let code = this.#lastToEnd();
    while (code >= 0) {
      const input = this.#heldUpBy(code), index = this.#indices[code] as number;
      if (input >= 0 || index === 0) {
        code = input;
        continue;
      }
      const worker = this.#tables.workers[code] as number;
      this.#movesBefore(worker, index, moves);
      code = this.#orders[worker]?.[index - 1] as number;
    }
    return moves;
  }

  /** The moves of an action to the front of those that hold it up, and of these behind it. */
  #movesBefore(worker: number, index: number, moves: Move[]): void {
    const order = this.#orders[worker] as Int32Array, code = order[index] as number;
    let isFree = true;
    for (let to = index - 1; to >= Math.max(0, index - REACH); to--) {
      const before = order[to] as number;
      const gap = (this.#starts[order[to + 1] as number] as number) -
        (this.#ends[before] as number);
      if (gap > DUST) break;
      isFree &&= this.#mayOvertake(code, before);
      if (isFree) moves.push({ worker, from: index, to });
      if (to < index - 1 && this.#maySink(order, to, index)) {
        moves.push({ worker, from: to, to: index });
      }
    }
  }

  /** Whether an action may go behind all up to another. */
  #maySink(order: Int32Array, from: number, to: number): boolean {
    const code = order[from] as number;
    for (let i = from + 1; i <= to; i++) {
      if (!this.#mayOvertake(order[i] as number, code)) return false;
    }
    return true;
  }

  /** The action that ends last; -1 where there is none. */
  #lastToEnd(): number {
    let code = -1, end = -Infinity;
    for (const order of this.#orders) {
      const last = order.at(-1);
      if (last === undefined || (this.#ends[last] as number) <= end) continue;
      code = last;
      end = this.#ends[last] as number;
    }
    return code;
  }

  /** Whether an action may go before another: of another copy, or of a kind that does not wait. */
  #mayOvertake(code: number, before: number): boolean {
    const { copies } = this.#tables;
    if (copies[code] !== copies[before]) return true;
    const isSameCell = Math.floor(code / ACTION_KINDS) === Math.floor(before / ACTION_KINDS);
    return !isSameCell && code % ACTION_KINDS !== before % ACTION_KINDS;
  }
}

/** Whether no more activations of the order live at a time. */
function keepsLimit(order: Int32Array, limit: number): boolean {
  let live = 0;
  for (const code of order) {
    const kind = code % ACTION_KINDS;
    if (kind === SPLIT.F && ++live > limit) return false;
    if (kind === SPLIT.W) live--;
  }
  return true;
}

/** How long to search, and within what. */
interface ImproveOptions {
  /** The number of orders to try. */
  readonly tries: number;
  /** The seed of the random choices; the same seed gives the same order. */
  readonly seed: number;
  /** For each worker, the most live (stage, micro-batch) activations. */
  readonly limits: readonly number[];
}

/** How much longer than the current order a try may be at first, as a part of the makespan. */
const TOLERANCE = 0.01;

/**
 * Improves an order of plain actions (no doubled forward, half backward or overlap; backwards split)
 * by threshold accepting: it moves an action of the critical path past those before it on the same
 * worker that only hold it up, or one of these behind it, and keeps the result if it is not much
 * longer; "not much" goes to zero. The result is never longer than what it was given.
 */
export function improveOrder(
  load: Workload,
  orders: readonly (readonly Action[])[],
  { tries, seed, limits }: ImproveOptions,
): Action[][] {
  const tables = actionTables(load);
  const given = orders.map((order) => Int32Array.from(order, tables.codeOf));
  const timed = new TimedOrder(tables, limits);
  const random = xoroshiro128plus(seed);
  let current = timed.reset(given);
  let best = { makespan: current, orders: given };
  let moves = timed.criticalMoves();
  for (let i = 0; i < tries && moves.length > 0; i++) {
    const move = moves.splice(uniformInt(random, 0, moves.length - 1), 1)[0] as Move;
    const most = current + current * TOLERANCE * (1 - i / tries);
    const makespan = timed.try(move, most);
    if (makespan <= most) {
      timed.accept();
      current = makespan;
    } else {
      timed.undo(move);
      if (moves.length > 0) continue;
      // Every move made it worse; go on from the best.
      if (current === best.makespan) break;
      current = timed.reset(best.orders);
    }
    if (current < best.makespan) {
      best = { makespan: current, orders: timed.orders.map((one) => one.slice()) };
    }
    moves = timed.criticalMoves();
  }
  return best.orders.map((order) => Array.from(order, tables.actionOf));
}
