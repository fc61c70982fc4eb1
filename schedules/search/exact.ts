/** Exact search: the shortest order of a tiny step on its placement, by branch and bound. */

import type { Action } from "../action.ts";
import { ACTION_KINDS, type ActionTables, actionTables, DUST, inputAt, SPLIT } from "./improve.ts";
import type { Workload } from "./limits.ts";

/** Limits of an exact search. */
interface ExactOptions {
  /** For each worker, the most live (stage, micro-batch) activations. */
  readonly limits: readonly number[];
  /** The time that an order must stay below. */
  readonly below: number;
  /** The most states to look at before giving up. */
  readonly states: number;
}

type Lane = ReturnType<typeof lanesOf>[number];

/**
 * Finds the shortest order of a workload on its placement, backwards split, within its limits.
 *
 * [Note: exact search] Micro-batches of a pipeline are alike, so each copy of a stage may run those of
 * one kind in ascending order: a state is the number of actions of each kind that each copy has run.
 * From there the search branches over the action to start next, no earlier than the one before it. Of
 * two states with the same actions, one is dropped if every worker is free and every input has arrived
 * as early in the other; so is a state whose remaining work or longest path does not fit below the
 * shortest order found.
 *
 * @returns the shortest orders, if any take less than `below`; their makespan, or `below`; whether it
 * is proven that no order takes less; and the number of states that were looked at.
 */
export function exactOrder(load: Workload, options: ExactOptions) {
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
  /** For each worker, the remaining work, and that without W. */
  readonly #left: number[];
  readonly #leftBefore: number[];
  readonly #path: number[] = [];
  /** True if inputs come over skip edges, long before those of the chain. */
  readonly #hasSkips: boolean;
  /** For each number of a state, the times of the states that were looked at. */
  readonly #seen = new Map<number, Float64Array[]>();
  #states = 0;
  /** The number of possible states. */
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

  run() {
    if (this.#stateCount > Number.MAX_SAFE_INTEGER) this.#states = this.#statesMax;
    this.#visit(0, 0);
    const { makespan, path } = this.#best;
    const orders = this.#limits.map((): Action[] => []);
    for (const code of path ?? []) {
      orders[this.#tables.workers[code]!]?.push(this.#tables.actionOf(code));
    }
    const isProven = this.#states < this.#statesMax;
    return { orders: path && orders, makespan, isProven, states: this.#states };
  }

  #addLeft({ worker, duration, kind }: Lane, count: number): void {
    this.#left[worker]! += count * duration;
    if (kind === SPLIT.W) return;
    this.#leftBefore[worker]! += count * duration;
  }

  /** Tries all continuations of the path with starts from `time` on. */
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
      const start = Math.max(time, this.#free[lane.worker]!, this.#arrival(lane, i));
      if (start < Infinity) next.push([start, i]);
    });
    next.sort(([a, i], [b, j]) => a - b || i - j);
    for (const [start, i] of next) this.#follow(start, i, state);
  }

  /** The time at which the next action of a lane has inputs and room; Infinity if it has not. */
  #arrival({ codes, worker, kind }: Lane, i: number): number {
    const code = codes[this.#counts[i]!];
    if (code === undefined) return Infinity;
    const isFull = kind === SPLIT.F &&
      this.#live[worker]! >= this.#limits[worker]!;
    return isFull ? Infinity : this.#inputAt(code);
  }

  #inputAt(code: number): number {
    return inputAt(this.#tables, code, this.#ends);
  }

  /** Returns the time at which the known inputs of an action arrive; Infinity if no input is known. */
  #knownInputAt(code: number): number {
    if (!this.#hasSkips) return this.#inputAt(code);
    const { inputs, sends, width } = this.#tables;
    let latest = -Infinity;
    for (let i = code * width; i < (code + 1) * width; i++) {
      const input = inputs[i]!, end = input < 0 ? -1 : this.#ends[input]!;
      if (end >= 0) latest = Math.max(latest, end + sends[i]!);
    }
    return latest < 0 ? Infinity : latest;
  }

  #follow(start: number, i: number, state: number): void {
    const lane = this.#lanes[i]!, { worker, duration, kind } = lane;
    const count = this.#counts[i]!, code = lane.codes[count]!;
    const free = this.#free[worker]!;
    const lives = kind === SPLIT.F ? 1 : kind === SPLIT.W ? -1 : 0;
    this.#counts[i] = count + 1;
    this.#ends[code] = start + duration;
    this.#free[worker] = start + duration;
    this.#live[worker]! += lives;
    this.#addLeft(lane, -1);
    this.#path.push(code);
    this.#visit(start, state + lane.unit);
    this.#path.pop();
    this.#addLeft(lane, 1);
    this.#live[worker]! -= lives;
    this.#free[worker] = free;
    this.#ends[code] = -1;
    this.#counts[i] = count;
  }

  /** A lower bound of the makespan of all continuations. */
  #bound(time: number): number {
    let bound = 0;
    const least = this.#limits.map(() => Infinity);
    this.#lanes.forEach((lane, i) => {
      const left = lane.codes.length - this.#counts[i]!;
      if (left === 0) return;
      const { worker, kind, after } = lane;
      const input = this.#inputAt(lane.codes[this.#counts[i]!]!);
      const start = Math.max(time, this.#free[worker]!, input === Infinity ? 0 : input);
      bound = Math.max(bound, start + left * lane.duration + after);
      if (kind !== SPLIT.W) least[worker] = Math.min(least[worker]!, after);
    });
    for (let worker = 0; worker < this.#free.length; worker++) {
      const free = this.#free[worker]!, start = Math.max(time, free);
      const left = this.#left[worker]!;
      bound = Math.max(bound, left > DUST ? start + left : free);
      const tail = least[worker]!;
      if (tail < Infinity) {
        bound = Math.max(bound, start + this.#leftBefore[worker]! + tail);
      }
    }
    return bound;
  }

  /** Returns true if a state at least as good was looked at; notes this state otherwise. */
  #isKnown(time: number, state: number): boolean {
    const now = this.#times(time), seen = this.#seen.get(state);
    if (seen === undefined) {
      this.#seen.set(state, [now]);
      return false;
    }
    const isNoLater = (a: Float64Array, b: Float64Array) =>
      a.every((one, i) => one <= b[i]! + DUST);
    if (seen.some((other) => isNoLater(other, now))) return true;
    this.#seen.set(state, [...seen.filter((other) => !isNoLater(now, other)), now]);
    return false;
  }

  /** The time at which each worker is free, and each unused input arrives. */
  #times(time: number): Float64Array {
    const times = this.#free.map((free) => Math.max(time, free));
    this.#lanes.forEach(({ codes, worker, kind }, i) => {
      if (kind === SPLIT.W) return; // its I ran on the same worker
      for (let next = this.#counts[i]!; next < codes.length; next++) {
        const input = this.#knownInputAt(codes[next]!);
        if (input === Infinity) break;
        times.push(Math.max(input, times[worker]!));
      }
    });
    return Float64Array.from(times);
  }
}

/** The lanes of a workload: actions of one copy of a stage and one kind, in order of micro-batches. */
function lanesOf(tables: ActionTables) {
  const { durations, workers, copies } = tables;
  const after = timesAfter(tables);
  const codes = new Map<number, number[]>();
  durations.forEach((_, code) => {
    const key = copies[code]! * ACTION_KINDS + code % ACTION_KINDS;
    codes.set(key, [...codes.get(key) ?? [], code]);
  });
  let unit = 1;
  return [...codes.values()].map((all) => {
    const code = all[0]!;
    const lane = {
      codes: all,
      worker: workers[code]!,
      kind: code % ACTION_KINDS,
      duration: durations[code]!,
      /** The least time from the end of one of them to the end of the step. */
      after: after[code]!,
      /** The difference in the number of a state for one more action of the lane. */
      unit,
    };
    unit *= all.length + 1;
    return lane;
  });
}

/** For each action, the longest path from its end through the actions that wait for it. */
function timesAfter({ durations, inputs, sends, width }: ActionTables): Float64Array {
  const after = new Float64Array(durations.length);
  let isSettled = false;
  while (!isSettled) {
    isSettled = true;
    for (let i = 0; i < inputs.length; i++) {
      const input = inputs[i]!, code = Math.floor(i / width);
      if (input < 0) continue;
      const way = sends[i]! + durations[code]! + after[code]!;
      if (way <= after[input]!) continue;
      after[input] = way;
      isSettled = false;
    }
  }
  return after;
}
