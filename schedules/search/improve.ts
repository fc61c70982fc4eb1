/** Local search: makes the order of a step shorter, one move at a time. */

import { uniformInt } from "pure-rand/distribution/uniformInt";
import { xoroshiro128plus } from "pure-rand/generator/xoroshiro128plus";
import type { Action } from "../action.ts";
import { KIND, KINDS } from "../action_list.ts";
import { Dependencies } from "../dependencies.ts";
import type { Workload } from "./limits.ts";

/** The kinds of a step with all backwards split, which is never slower. */
const SPLIT_KINDS = [KIND.F, KIND.I, KIND.W] as const;

/** The number of kinds in the tables. */
export const ACTION_KINDS = SPLIT_KINDS.length;

/** The numbers of F, I and W in the tables. */
export const SPLIT = { F: 0, I: 1, W: 2 } as const;

/** The tables of {@linkcode actionTables}. */
export type ActionTables = ReturnType<typeof actionTables>;

/**
 * Tables of the actions of a workload by number, `(stage * microBatches + microBatch) * ACTION_KINDS +
 * kind`, with all backwards split and no slices. -1 means none.
 */
export function actionTables(load: Workload) {
  const { stages, microBatches, pipelineOf, times: { durations, send } } = load;
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
    /** The most inputs of an action: its forward, the gradient from above, and those of skip edges. */
    width,
    /** The inputs of each action, at index `code * width` and after. */
    inputs: new Int32Array(size * width).fill(-1),
    /** The time of the message of each of these inputs. */
    sends: new Float64Array(size * width),
    workers: new Int32Array(size),
    /** Another worker that may wait for the output of each action. */
    waiting: new Int32Array(size),
    /** The copy of the stage of each action. */
    copies: new Int32Array(size),
  };
  const givers = new Int32Array(dependencies.outputCount).fill(-1);
  for (let code = 0; code < size; code++) {
    const count = dependencies.outputsOf(...partsOf(code));
    for (let i = 0; i < count; i++) givers[dependencies.outputs[i]!] = code;
  }
  for (let code = 0; code < size; code++) {
    const [kind, stage, microBatch] = partsOf(code);
    tables.durations[code] = durations[kind]![stage]!;
    tables.workers[code] = dependencies.hostOf(stage, microBatch);
    tables.waiting[code] = dependencies.waiting(kind, stage, microBatch);
    tables.copies[code] = pipelineOf[microBatch]! * stages + stage;
    const count = dependencies.inputsOf(kind, stage, microBatch);
    for (let i = 0; i < count; i++) {
      const edge = dependencies.edges[i]!;
      tables.inputs[code * width + i] = givers[dependencies.inputs[i]!]!;
      tables.sends[code * width + i] = edge < 0 ? 0 : send[edge]!;
    }
  }
  return {
    ...tables,
    /** The number of an action. */
    codeOf: ({ kind, stage, microBatch }: Action): number =>
      (stage * microBatches + microBatch) * ACTION_KINDS +
      SPLIT_KINDS.findIndex((each) => each === KIND[kind]),
    /** The plain action of a number. */
    actionOf(code: number): Action {
      const [kind, stage, microBatch] = partsOf(code);
      return { kind: KINDS[kind] ?? "F", stage, microBatch };
    },
  };
}

/** The time at which the inputs of an action arrive, by the ends of actions; Infinity if one is -1. */
export function inputAt(tables: ActionTables, code: number, ends: Float64Array): number {
  const { inputs, sends, width } = tables;
  let latest = 0;
  for (let i = code * width; i < (code + 1) * width; i++) {
    const input = inputs[i]!;
    if (input < 0) break;
    const end = ends[input]!;
    if (end < 0) return Infinity;
    latest = Math.max(latest, end + sends[i]!);
  }
  return latest;
}

/** A move of an action to another place in the order of its worker; a swap if that is the next. */
interface Move {
  readonly worker: number;
  readonly from: number;
  readonly to: number;
}

/** The most neighbours that a move passes. */
const REACH = 3;

/** More than the rounding error of sums of durations, less than any duration. */
export const DUST = 1e-9;

/**
 * The orders of all workers, as numbers of actions in the tables, with their times. A move does not
 * change the times before the first action that it shifts, so they are not computed again.
 */
class TimedOrder {
  /** The orders, which the caller must not change. */
  orders: readonly Int32Array[] = [];
  /** The index of each action in the order of its worker. */
  readonly #indices: Int32Array;
  /** Start and end of each action; -1 if it has not run. */
  #starts: Float64Array;
  #ends: Float64Array;
  /** The same with the move that is being tried. */
  #triedStarts: Float64Array;
  #triedEnds: Float64Array;

  /** @param limits For each worker, the most live (stage, micro-batch) activations. */
  constructor(private readonly tables: ActionTables, private readonly limits: readonly number[]) {
    const size = tables.durations.length, times = () => new Float64Array(size).fill(-1);
    this.#indices = new Int32Array(size);
    this.#starts = times();
    this.#ends = times();
    this.#triedStarts = times();
    this.#triedEnds = times();
  }

  /** Sets the orders of all workers. @returns their makespan; Infinity for a deadlock. */
  reset(orders: readonly Int32Array[]): number {
    this.orders = orders.map((order) => order.slice());
    for (const order of this.orders) order.forEach((code, i) => this.#indices[code] = i);
    const makespan = this.#evaluate(-Infinity, Infinity);
    this.accept();
    return makespan;
  }

  /**
   * The makespan after a move; Infinity if it is more than `most`, or if more activations are live
   * than allowed.
   */
  try(move: Move, most: number): number {
    const order = this.orders[move.worker]!;
    const first = order[Math.min(move.from, move.to)]!;
    this.#move(move);
    if (!keepsLimit(order, this.limits[move.worker]!)) return Infinity;
    return this.#evaluate(this.#starts[first]!, most);
  }

  /** Keeps the tried move. */
  accept(): void {
    [this.#starts, this.#triedStarts] = [this.#triedStarts, this.#starts];
    [this.#ends, this.#triedEnds] = [this.#triedEnds, this.#ends];
  }

  /** Undoes a move. */
  undo({ worker, from, to }: Move): void {
    this.#move({ worker, from: to, to: from });
  }

  #move({ worker, from, to }: Move): void {
    const order = this.orders[worker]!, code = order[from]!;
    if (to < from) order.copyWithin(to + 1, to, from);
    else order.copyWithin(from, from + 1, to + 1);
    order[to] = code;
    for (let i = Math.min(from, to); i <= Math.max(from, to); i++) {
      this.#indices[order[i]!] = i;
    }
  }

  /**
   * Computes the times of actions that do not start before `from`; actions that do cannot wait for
   * them. Stops as soon as the remaining work of a worker cannot end within `most`.
   */
  #evaluate(from: number, most: number): number {
    const { durations, waiting } = this.tables;
    const starts = this.#triedStarts, ends = this.#triedEnds;
    const workers = this.#keepBefore(from), runnable = [...workers.keys()];
    for (let index = runnable.pop(); index !== undefined; index = runnable.pop()) {
      const worker = workers[index]!, { order } = worker;
      for (; worker.next < order.length; worker.next++) {
        const code = order[worker.next]!, input = inputAt(this.tables, code, ends);
        if (input === Infinity) break;
        const start = Math.max(worker.free, input);
        if (start + worker.left > most + DUST) return Infinity;
        starts[code] = start;
        ends[code] = worker.free = start + durations[code]!;
        worker.left -= durations[code]!;
        const other = waiting[code]!;
        if (other >= 0) runnable.push(other);
      }
    }
    const isDone = workers.every(({ order, next }) => next === order.length);
    return isDone ? workers.reduce((end, { free }) => Math.max(end, free), 0) : Infinity;
  }

  /**
   * Copies the times of actions before a time.
   *
   * @returns for each worker, its next action to compute, the time at which it is free, and its work
   * left.
   */
  #keepBefore(time: number) {
    const starts = this.#triedStarts, ends = this.#triedEnds;
    starts.set(this.#starts);
    ends.set(this.#ends);
    return this.orders.map((order) => {
      let next = order.length, left = 0;
      while (next > 0 && starts[order[next - 1]!]! >= time) {
        const code = order[--next]!;
        ends[code] = -1;
        left += this.tables.durations[code]!;
      }
      return { order, next, free: next === 0 ? 0 : ends[order[next - 1]!]!, left };
    });
  }

  /** The input that an action waited for; -1 if it waited for its worker. */
  #heldUpBy(code: number): number {
    const { inputs, sends, width } = this.tables, start = this.#starts[code]!;
    for (let i = code * width; i < (code + 1) * width; i++) {
      const input = inputs[i]!;
      if (input >= 0 && this.#ends[input]! + sends[i]! === start) return input;
    }
    return -1;
  }

  /**
   * The moves that could shorten the critical path: of an action that waited for its worker, past the
   * action before and the ones before that while they follow each other without a gap; and of these
   * behind it.
   */
  criticalMoves(): Move[] {
    const moves: Move[] = [];
    const lasts = this.orders.flatMap((order) => order.at(-1) ?? []);
    // The action that ends last; -1 if there are no actions.
    let code = lasts.reduce((a, b) => this.#ends[b]! > this.#ends[a]! ? b : a, lasts[0] ?? -1);
    while (code >= 0) {
      const input = this.#heldUpBy(code), index = this.#indices[code]!;
      if (input >= 0 || index === 0) {
        code = input;
        continue;
      }
      const worker = this.tables.workers[code]!;
      this.#movesBefore(worker, index, moves);
      code = this.orders[worker]![index - 1]!;
    }
    return moves;
  }

  /** The moves of an action before the actions that it waited for, and of these behind it. */
  #movesBefore(worker: number, index: number, moves: Move[]): void {
    const order = this.orders[worker]!, code = order[index]!;
    let isFree = true;
    for (let to = index - 1; to >= Math.max(0, index - REACH); to--) {
      const before = order[to]!;
      const gap = this.#starts[order[to + 1]!]! - this.#ends[before]!;
      if (gap > DUST) break;
      isFree &&= this.#mayOvertake(code, before);
      if (isFree) moves.push({ worker, from: index, to });
      const passed = order.subarray(to + 1, index + 1);
      const maySink = to < index - 1 && passed.every((one) => this.#mayOvertake(one, before));
      if (maySink) moves.push({ worker, from: to, to: index });
    }
  }

  /** Returns true if an action may overtake another: of another copy, or of an independent kind. */
  #mayOvertake(code: number, before: number): boolean {
    const { copies } = this.tables;
    if (copies[code] !== copies[before]) return true;
    const isSameCell = Math.floor(code / ACTION_KINDS) === Math.floor(before / ACTION_KINDS);
    return !isSameCell && code % ACTION_KINDS !== before % ACTION_KINDS;
  }
}

/** Returns true if at most `limit` activations of an order are live at a time. */
function keepsLimit(order: Int32Array, limit: number): boolean {
  let live = 0;
  for (const code of order) {
    const kind = code % ACTION_KINDS;
    if (kind === SPLIT.F && ++live > limit) return false;
    if (kind === SPLIT.W) live--;
  }
  return true;
}

/** The fraction by which a try may be longer than the current order at first. */
const TOLERANCE = 0.01;

/**
 * Improves an order of plain actions (no doubled forward, half backward or overlap; backwards split)
 * by threshold accepting: it moves an action of the critical path past actions before it on the same
 * worker that only delay it, or one of these behind it, and keeps the result if it is at most a
 * tolerance longer; the tolerance shrinks to zero. The result is never longer than the given order.
 *
 * @param options The number of orders to try, the seed of the random choices, and for each worker the
 * most live (stage, micro-batch) activations.
 */
export function improveOrder(
  load: Workload,
  orders: readonly (readonly Action[])[],
  options: { readonly tries: number; readonly seed: number; readonly limits: readonly number[] },
): Action[][] {
  const tables = actionTables(load), { tries, seed, limits } = options;
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
      // Every move made it worse; continue from the best.
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
