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
  const search = openSearch(load, options), { tables, statesMax } = search;
  visit(search, 0, 0);
  const { best: { makespan, path }, states } = search;
  const orders = search.workers.map((): Action[] => []);
  for (const code of path ?? []) orders[tables.workers[code]!]?.push(tables.actionOf(code));
  return { orders: path && orders, makespan, isProven: states < statesMax, states };
}

type Search = ReturnType<typeof openSearch>;

/** Returns the state of a search before its first action. */
function openSearch(load: Workload, { limits, below, states }: ExactOptions) {
  const tables = actionTables(load), lanes = lanesOf(tables);
  const stateCount = lanes.reduce((all, { codes }) => all * (codes.length + 1), 1);
  const search = {
    tables,
    lanes,
    statesMax: states,
    /** For each lane, the number of its actions that have run. */
    counts: lanes.map(() => 0),
    /** When each action ended; -1 before. */
    ends: new Float64Array(tables.durations.length).fill(-1),
    /** Each worker, with its remaining work, and that without W. */
    workers: limits.map((limit) => ({ limit, free: 0, live: 0, left: 0, leftBefore: 0 })),
    path: [] as number[],
    /** True if inputs come over skip edges, long before those of the chain. */
    hasSkips: load.edges !== undefined,
    /** For each number of a state, the times of the states that were looked at. */
    seen: new Map<number, Float64Array[]>(),
    states: stateCount > Number.MAX_SAFE_INTEGER ? states : 0,
    best: { makespan: below } as { makespan: number; path?: readonly number[] },
  };
  for (const lane of lanes) addLeft(search, lane, lane.codes.length);
  return search;
}

function addLeft(search: Search, { worker, duration, kind }: Lane, count: number): void {
  const own = search.workers[worker]!;
  own.left += count * duration;
  if (kind !== SPLIT.W) own.leftBefore += count * duration;
}

/** Tries all continuations of the path with starts from `time` on. */
function visit(search: Search, time: number, state: number): void {
  if (search.path.length === search.tables.durations.length) {
    const makespan = Math.max(...search.workers.map(({ free }) => free));
    search.best = { makespan, path: search.path.slice() };
    return;
  }
  if (search.states >= search.statesMax) return;
  search.states++;
  if (boundOf(search, time) >= search.best.makespan - DUST) return;
  if (isKnown(search, time, state)) return;
  const next: [start: number, lane: number][] = [];
  search.lanes.forEach((lane, i) => {
    const { free } = search.workers[lane.worker]!;
    const start = Math.max(time, free, arrivalOf(search, lane, i));
    if (start < Infinity) next.push([start, i]);
  });
  next.sort(([a, i], [b, j]) => a - b || i - j);
  for (const [start, i] of next) follow(search, start, i, state);
}

/** The time at which the next action of a lane has inputs and room; Infinity if it has not. */
function arrivalOf(search: Search, { codes, worker, kind }: Lane, i: number): number {
  const code = codes[search.counts[i]!];
  if (code === undefined) return Infinity;
  const { live, limit } = search.workers[worker]!, isFull = kind === SPLIT.F && live >= limit;
  return isFull ? Infinity : inputAt(search.tables, code, search.ends);
}

/** Returns the time at which the known inputs of an action arrive; Infinity if no input is known. */
function knownInputAt(search: Search, code: number): number {
  if (!search.hasSkips) return inputAt(search.tables, code, search.ends);
  const { inputs, sends, width } = search.tables;
  let latest = -Infinity;
  for (let i = code * width; i < (code + 1) * width; i++) {
    const input = inputs[i]!, end = input < 0 ? -1 : search.ends[input]!;
    if (end >= 0) latest = Math.max(latest, end + sends[i]!);
  }
  return latest < 0 ? Infinity : latest;
}

function follow(search: Search, start: number, i: number, state: number): void {
  const lane = search.lanes[i]!, { duration, kind } = lane, worker = search.workers[lane.worker]!;
  const count = search.counts[i]!, code = lane.codes[count]!, { free } = worker;
  const lives = kind === SPLIT.F ? 1 : kind === SPLIT.W ? -1 : 0;
  search.counts[i] = count + 1;
  search.ends[code] = start + duration;
  worker.free = start + duration;
  worker.live += lives;
  addLeft(search, lane, -1);
  search.path.push(code);
  visit(search, start, state + lane.unit);
  search.path.pop();
  addLeft(search, lane, 1);
  worker.live -= lives;
  worker.free = free;
  search.ends[code] = -1;
  search.counts[i] = count;
}

/** A lower bound of the makespan of all continuations. */
function boundOf(search: Search, time: number): number {
  let bound = 0;
  const least = search.workers.map(() => Infinity);
  search.lanes.forEach((lane, i) => {
    const left = lane.codes.length - search.counts[i]!;
    if (left === 0) return;
    const { worker, kind, after } = lane;
    const input = inputAt(search.tables, lane.codes[search.counts[i]!]!, search.ends);
    const { free } = search.workers[worker]!;
    const start = Math.max(time, free, input === Infinity ? 0 : input);
    bound = Math.max(bound, start + left * lane.duration + after);
    if (kind !== SPLIT.W) least[worker] = Math.min(least[worker]!, after);
  });
  for (const [worker, { free, left, leftBefore }] of search.workers.entries()) {
    const start = Math.max(time, free), tail = least[worker]!;
    bound = Math.max(bound, left > DUST ? start + left : free);
    if (tail < Infinity) bound = Math.max(bound, start + leftBefore + tail);
  }
  return bound;
}

/** Returns true if a state at least as good was looked at; notes this state otherwise. */
function isKnown(search: Search, time: number, state: number): boolean {
  const now = timesOf(search, time), seen = search.seen.get(state) ?? [];
  const isNoLater = (a: Float64Array, b: Float64Array) => a.every((one, i) => one <= b[i]! + DUST);
  if (seen.some((other) => isNoLater(other, now))) return true;
  search.seen.set(state, [...seen.filter((other) => !isNoLater(now, other)), now]);
  return false;
}

/** The time at which each worker is free, and each unused input arrives. */
function timesOf(search: Search, time: number): Float64Array {
  const times = search.workers.map(({ free }) => Math.max(time, free));
  search.lanes.forEach(({ codes, worker, kind }, i) => {
    if (kind === SPLIT.W) return; // its I ran on the same worker
    for (let next = search.counts[i]!; next < codes.length; next++) {
      const input = knownInputAt(search, codes[next]!);
      if (input === Infinity) break;
      times.push(Math.max(input, times[worker]!));
    }
  });
  return Float64Array.from(times);
}

/** The lanes of a workload: actions of one copy of a stage and one kind, in order of micro-batches. */
function lanesOf(tables: ActionTables) {
  const { durations, workers, copies } = tables;
  const after = timesAfter(tables);
  const laneOf = (code: number) => copies[code]! * ACTION_KINDS + code % ACTION_KINDS;
  const codes = Map.groupBy(durations.keys(), laneOf);
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
