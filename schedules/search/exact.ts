/** Exact search: the shortest order of a tiny step on its placement, by branch and bound. */

import type { Action } from "../action.ts";
import { ACTION_KINDS, type ActionTables, actionTables, SPLIT } from "./improve.ts";
import type { Workload } from "./limits.ts";

/** What an exact search is held to. */
interface ExactOptions {
  /** For each worker, the most live (stage, micro-batch) activations. */
  readonly limits: readonly number[];
  /** Orders that take as long or longer are of no use. */
  readonly below: number;
  /** The most states to look at; the search gives up beyond. */
  readonly states: number;
}

/** What an exact search found. */
interface ExactResult {
  /** The shortest orders, where any take less than `below`. */
  readonly orders?: Action[][];
  /** Their makespan, else `below`. */
  readonly makespan: number;
  /** Whether no order takes less. */
  readonly isProven: boolean;
  /** The states that were looked at. */
  readonly states: number;
}

/** The actions of one copy of a stage and one kind, which run in the order of the micro-batches. */
interface Lane {
  readonly codes: readonly number[];
  readonly worker: number;
  readonly kind: number;
  readonly duration: number;
  /** The least time from the end of one of them to the end of the step. */
  readonly after: number;
  /** What one more action of the lane adds to the number of a state. */
  readonly unit: number;
}

const DUST = 1e-9;

/**
 * Finds the shortest order of a workload on its placement, backwards split, within its limits.
 *
 * [Note: exact search] Micro-batches of a replica are alike, so that each copy of a stage may run
 * those of one kind in ascending order: how many of each kind each copy has run says what is done. From there
 * the search branches over the action to start next, no earlier than the one before it. Of two
 * states in which the same is done, one that has every worker free and every input there as early
 * is as good, and the other is dropped; so is a state whose work and ways that are left do not fit
 * below the shortest order found.
 */
export function exactOrder(load: Workload, options: ExactOptions): ExactResult {
  return new ExactSearch(load, options).run();
}

class ExactSearch {
  readonly #tables: ActionTables;
  readonly #lanes: readonly Lane[];
  readonly #limits: readonly number[];
  readonly #statesMax: number;
  /** For each lane, the number of its actions that have run. */
  readonly #counts: number[];
  /** When each action ended; -1 before. */
  readonly #ends: Float64Array;
  readonly #free: number[];
  readonly #live: number[];
  /** For each worker, the work that is left, and that without the W. */
  readonly #left: number[];
  readonly #leftBefore: number[];
  readonly #path: number[] = [];
  /** Whether inputs come over skip edges, long before those of the chain. */
  readonly #hasSkips: boolean;
  /** For each number of a state, what was looked at of it. */
  readonly #seen = new Map<number, Float64Array[]>();
  #states = 0;
  /** The numbers that states can have. */
  readonly #stateCount: number;
  #best: { makespan: number; path?: readonly number[] };

  constructor(load: Workload, { limits, below, states }: ExactOptions) {
    const tables = actionTables(load);
    this.#tables = tables;
    this.#hasSkips = load.edges !== undefined;
    this.#lanes = lanesOf(tables);
    this.#stateCount = this.#lanes.reduce((all, { codes }) => all * (codes.length + 1), 1);
    this.#limits = limits;
    this.#statesMax = states;
    this.#counts = this.#lanes.map(() => 0);
    this.#ends = new Float64Array(tables.durations.length).fill(-1);
    this.#free = limits.map(() => 0);
    this.#live = limits.map(() => 0);
    this.#left = limits.map(() => 0);
    this.#leftBefore = limits.map(() => 0);
    for (const lane of this.#lanes) this.#addLeft(lane, lane.codes.length);
    this.#best = { makespan: below };
  }

  run(): ExactResult {
    if (this.#stateCount > Number.MAX_SAFE_INTEGER) this.#states = this.#statesMax;
    this.#visit(0, 0);
    const { makespan, path } = this.#best;
    const orders = this.#limits.map((): Action[] => []);
    for (const code of path ?? []) {
      orders[this.#tables.workers[code] as number]?.push(this.#tables.actionOf(code));
    }
    const isProven = this.#states < this.#statesMax;
    return { ...(path && { orders }), makespan, isProven, states: this.#states };
  }

  #addLeft({ worker, duration, kind }: Lane, count: number): void {
    this.#left[worker] = (this.#left[worker] as number) + count * duration;
    if (kind === SPLIT.W) return;
    this.#leftBefore[worker] = (this.#leftBefore[worker] as number) + count * duration;
  }

  /** Looks at all that can follow what has run, where nothing more starts before `time`. */
  #visit(time: number, state: number): void {
    if (this.#path.length === this.#tables.durations.length) {
      const makespan = Math.max(...this.#free);
      this.#best = { makespan, path: this.#path.slice() };
      return;
    }
    if (this.#states >= this.#statesMax) return;
    this.#states++;
    if (this.#bound(time) >= this.#best.makespan - DUST) return;
    if (this.#isKnown(time, state)) return;
    const next: [start: number, lane: number][] = [];
    this.#lanes.forEach((lane, i) => {
      const start = Math.max(time, this.#free[lane.worker] as number, this.#arrival(lane, i));
      if (start < Infinity) next.push([start, i]);
    });
    next.sort(([a, i], [b, j]) => a - b || i - j);
    for (const [start, i] of next) this.#follow(start, i, state);
  }

  /** When the next action of a lane has its inputs and room; Infinity where it has not. */
  #arrival({ codes, worker, kind }: Lane, i: number): number {
    const code = codes[this.#counts[i] as number];
    if (code === undefined) return Infinity;
    const isFull = kind === SPLIT.F &&
      (this.#live[worker] as number) >= (this.#limits[worker] as number);
    return isFull ? Infinity : this.#inputAt(code);
  }

  #inputAt(code: number): number {
    const { inputs, sends, width } = this.#tables;
    let latest = 0;
    for (let i = code * width; i < (code + 1) * width; i++) {
      const input = inputs[i] as number;
      if (input < 0) break;
      const end = this.#ends[input] as number;
      if (end < 0) return Infinity;
      latest = Math.max(latest, end + (sends[i] as number));
    }
    return latest;
  }

  /** When those of its inputs are there that were given; Infinity where none was. */
  #knownInputAt(code: number): number {
    if (!this.#hasSkips) return this.#inputAt(code);
    const { inputs, sends, width } = this.#tables;
    let latest = -Infinity;
    for (let i = code * width; i < (code + 1) * width; i++) {
      const input = inputs[i] as number, end = input < 0 ? -1 : this.#ends[input] as number;
      if (end >= 0) latest = Math.max(latest, end + (sends[i] as number));
    }
    return latest < 0 ? Infinity : latest;
  }

  #follow(start: number, i: number, state: number): void {
    const lane = this.#lanes[i] as Lane, { worker, duration, kind } = lane;
    const count = this.#counts[i] as number, code = lane.codes[count] as number;
    const free = this.#free[worker] as number;
    const lives = kind === SPLIT.F ? 1 : kind === SPLIT.W ? -1 : 0;
    this.#counts[i] = count + 1;
    this.#ends[code] = start + duration;
    this.#free[worker] = start + duration;
    this.#live[worker] = (this.#live[worker] as number) + lives;
    this.#addLeft(lane, -1);
    this.#path.push(code);
    this.#visit(start, state + lane.unit);
    this.#path.pop();
    this.#addLeft(lane, 1);
    this.#live[worker] = (this.#live[worker] as number) - lives;
    this.#free[worker] = free;
    this.#ends[code] = -1;
    this.#counts[i] = count;
  }

  /** A time that no order can beat that goes on from here. */
  #bound(time: number): number {
    let bound = 0;
    const least = this.#limits.map(() => Infinity);
    this.#lanes.forEach((lane, i) => {
      const left = lane.codes.length - (this.#counts[i] as number);
      if (left === 0) return;
      const { worker, kind, after } = lane;
      const input = this.#inputAt(lane.codes[this.#counts[i] as number] as number);
      const start = Math.max(time, this.#free[worker] as number, input === Infinity ? 0 : input);
      bound = Math.max(bound, start + left * lane.duration + after);
      if (kind !== SPLIT.W) least[worker] = Math.min(least[worker] as number, after);
    });
    for (let worker = 0; worker < this.#free.length; worker++) {
      const free = this.#free[worker] as number, start = Math.max(time, free);
      const left = this.#left[worker] as number;
      bound = Math.max(bound, left > DUST ? start + left : free);
      const tail = least[worker] as number;
      if (tail < Infinity) {
        bound = Math.max(bound, start + (this.#leftBefore[worker] as number) + tail);
      }
    }
    return bound;
  }

  /** Whether a state that is as good was looked at; notes this one where none was. */
  #isKnown(time: number, state: number): boolean {
    const now = this.#times(time), seen = this.#seen.get(state);
    if (seen === undefined) {
      this.#seen.set(state, [now]);
      return false;
    }
    const isNoLater = (a: Float64Array, b: Float64Array) =>
      a.every((one, i) => one <= (b[i] as number) + DUST);
    if (seen.some((other) => isNoLater(other, now))) return true;
    this.#seen.set(state, [...seen.filter((other) => !isNoLater(now, other)), now]);
    return false;
  }

  /** When each worker is free, and each input there that nobody has used. */
  #times(time: number): Float64Array {
    const times = this.#free.map((free) => Math.max(time, free));
    this.#lanes.forEach(({ codes, worker, kind }, i) => {
      if (kind === SPLIT.W) return; // its I ran on the same worker
      for (let next = this.#counts[i] as number; next < codes.length; next++) {
        const input = this.#knownInputAt(codes[next] as number);
        if (input === Infinity) break;
        times.push(Math.max(input, times[worker] as number));
      }
    });
    return Float64Array.from(times);
  }
}

function lanesOf(tables: ActionTables): Lane[] {
  const { durations, workers, copies } = tables;
  const after = timesAfter(tables);
  const codes = new Map<number, number[]>();
  durations.forEach((_, code) => {
    const key = (copies[code] as number) * ACTION_KINDS + code % ACTION_KINDS;
    codes.set(key, [...codes.get(key) ?? [], code]);
  });
  let unit = 1;
  return [...codes.values()].map((all) => {
    const code = all[0] as number;
    const lane = {
      codes: all,
      worker: workers[code] as number,
      kind: code % ACTION_KINDS,
      duration: durations[code] as number,
      after: after[code] as number,
      unit,
    };
    unit *= all.length + 1;
    return lane;
  });
}

/** For each action, the longest way from its end through what waits for it. */
function timesAfter({ durations, inputs, sends, width }: ActionTables): Float64Array {
  const after = new Float64Array(durations.length);
  let isSettled = false;
  while (!isSettled) {
    isSettled = true;
    for (let i = 0; i < inputs.length; i++) {
      const input = inputs[i] as number, code = Math.floor(i / width);
      if (input < 0) continue;
      const way = (sends[i] as number) + (durations[code] as number) + (after[code] as number);
      if (way <= (after[input] as number)) continue;
      after[input] = way;
      isSettled = false;
    }
  }
  return after;
}
