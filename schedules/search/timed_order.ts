/** An order of a step and when each of its actions runs, changed by one swap of neighbours at a time. */

import { KIND, KINDS } from "../actions/action_list.ts";
import type { ActionTables } from "./action_tables.ts";

/** Two neighbours in the order of a worker, by the index of the first. */
export interface Swap {
  readonly worker: number;
  readonly index: number;
}

/** More than the rounding of sums of durations, less than any duration. */
const DUST = 1e-9;

/**
 * For each worker, its actions by their numbers in the tables. What a swap leaves as it is, all that
 * starts before the first of the two, is not worked out again.
 */
export class TimedOrder {
  readonly #tables: ActionTables;
  /** For each worker, the most live (stage, micro-batch) activations. */
  readonly #limits: readonly number[];
  #orders: readonly Int32Array[];
  /** The index of each action in the order of its worker. */
  readonly #indices: Int32Array;
  /** When each action starts and ends; -1 where it has not run. */
  #starts: Float64Array;
  #ends: Float64Array;
  /** The same with the swap that is tried. */
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
   * The makespan with two neighbours swapped; Infinity where it is more than `most`, or where more
   * activations live than may.
   */
  try(swap: Swap, most: number): number {
    const order = this.#orders[swap.worker] as Int32Array;
    const first = order[swap.index] as number;
    this.#swap(swap);
    if (!keepsLimit(order, this.#limits[swap.worker] as number)) return Infinity;
    return this.#evaluate(this.#starts[first] as number, most);
  }

  /** Keeps what was tried. */
  accept(): void {
    [this.#starts, this.#triedStarts] = [this.#triedStarts, this.#starts];
    [this.#ends, this.#triedEnds] = [this.#triedEnds, this.#ends];
  }

  /** Takes back what was tried. */
  undo(swap: Swap): void {
    this.#swap(swap);
  }

  #swap({ worker, index }: Swap): void {
    const order = this.#orders[worker] as Int32Array;
    const first = order[index] as number, second = order[index + 1] as number;
    order[index] = second;
    order[index + 1] = first;
    this.#indices[second] = index;
    this.#indices[first] = index + 1;
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

  /** When the input of an action is there; negative where it is missing. */
  #inputAt(code: number, ends: Float64Array): number {
    const { forwards, sends } = this.#tables;
    const forward = forwards[code] as number;
    if (forward >= 0 && (ends[forward] as number) < 0) return -1;
    const source = this.#sourceOf(code, ends);
    if (source < 0) return 0;
    const time = ends[source] as number;
    return time < 0 ? -1 : time + (sends[code] as number);
  }

  /** The action whose output is the input of another; -1 for none. */
  #sourceOf(code: number, ends: Float64Array): number {
    const { sources, otherSources } = this.#tables;
    const source = sources[code] as number, other = otherSources[code] as number;
    return other >= 0 && (ends[source] as number) < 0 ? other : source;
  }

  /** The swaps that could shorten the critical path: an action held up by the one before it. */
  criticalSwaps(): Swap[] {
    const swaps: Swap[] = [];
    let code = this.#lastToEnd();
    while (code >= 0) {
      if (this.#inputAt(code, this.#ends) === this.#starts[code]) {
        code = this.#sourceOf(code, this.#ends);
        continue;
      }
      const worker = this.#tables.workers[code] as number;
      const index = (this.#indices[code] as number) - 1;
      const before = this.#orders[worker]?.[index] as number;
      if (this.#mayOvertake(code, before)) swaps.push({ worker, index });
      code = before;
    }
    return swaps;
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

  /** Whether an action may go before the one before it: not past its own stage and kind. */
  #mayOvertake(code: number, before: number): boolean {
    const { copies } = this.#tables;
    if (Math.floor(code / KINDS.length) === Math.floor(before / KINDS.length)) return false;
    if (copies[code] !== copies[before]) return true;
    const isSameKind = code % KINDS.length === before % KINDS.length ||
      isGradient(code) && isGradient(before);
    return !isSameKind;
  }
}

/** Whether an action adds to the gradients of its stage. */
function isGradient(code: number): boolean {
  const kind = code % KINDS.length;
  return kind === KIND.B || kind === KIND.W;
}

/** Whether no more activations of the order live at a time. */
function keepsLimit(order: Int32Array, limit: number): boolean {
  let live = 0;
  for (const code of order) {
    const kind = code % KINDS.length;
    if (kind === KIND.F && ++live > limit) return false;
    if (kind === KIND.B || kind === KIND.W) live--;
  }
  return true;
}
