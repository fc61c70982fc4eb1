/** The schedule `search`: the shortest order found for given costs, within limits of memory. */

import { type Action, parts } from "../action.ts";
import { KIND } from "../action_list.ts";
import { withRecomputation } from "../analysis/recomputation.ts";
import {
  defineMade,
  defineSchedule,
  type Place,
  readOptions,
  type ScheduleDefinition,
  type ScheduleOption,
  type ScheduleOptions,
} from "../define.ts";
import { assertInput, ifServed } from "../errors.ts";
import { splitBackward } from "../policies.ts";
import { type ListedSchedule, type Schedule, withOrders, withPartEdges } from "../schedule.ts";
import { exactOrder } from "./exact.ts";
import { greedyOrder, type Strategy } from "./greedy.ts";
import { improveOrder } from "./improve.ts";
import {
  chunkCounts,
  type Found,
  irregularPlaces,
  keepsLimits,
  keepsWeights,
  type Limits,
  partLimits,
  regularPlaces,
  waveCounts,
  type Workload,
  workloadOf,
} from "./limits.ts";
import { lowerBound } from "./lower_bound.ts";

/** The most actions that the list scheduler orders, all orders together. */
const ACTIONS_MAX = 1_000_000;

/** The given schedules that serve the options and keep the limits, with any number of chunks. */
function givenSchedules(
  given: readonly ScheduleDefinition[],
  options: ScheduleOptions,
  limits: Limits,
): Found[] {
  return given.flatMap((definition) =>
    variants(definition, options).flatMap((variant) => {
      const schedule = ifServed(() =>
        withPartEdges(definition.create(readOptions(definition, variant)), options)
      );
      const isFit = schedule?.workers === options.workers && schedule.updates === "flush";
      return isFit ? ifServed(() => keepsLimits(schedule, limits)) ?? [] : [];
    })
  );
}

/** The options with each number of chunks or waves that a definition reads and the costs allow. */
function variants({ reads = [] }: ScheduleDefinition, options: ScheduleOptions): ScheduleOptions[] {
  if (reads.includes("chunks")) {
    return chunkCounts(options).map((chunks) => ({ ...options, chunks }));
  }
  return reads.includes("waves")
    ? waveCounts(options).map((waves) => ({ ...options, waves }))
    : [options];
}

/**
 * The placements whose stages can share the costs and that keep the limit of weights.
 *
 * @returns for each a schedule without orders, its workload, and for each worker the most live (stage,
 * micro-batch) activations.
 */
export function searchedPlaces(
  places: readonly Place[],
  options: ScheduleOptions,
  limits: Limits,
) {
  return places.flatMap((place) => {
    const rule = { name: "search", summary: "", place: () => place, order: () => [] };
    return ifServed(() => {
      const base = withPartEdges(defineSchedule(rule).create(options), options);
      if (!keepsWeights(base, limits)) return undefined;
      const load = searchedLoad(base, limits);
      return { base, load, partLimits: partLimits(base, limits.activations, limits.isRecomputed) };
    }) ?? [];
  });
}

/**
 * Returns the workload to search orders for. A stage that recomputes does so before its backward,
 * which takes that much longer: {@linkcode withRecomputation} starts it earlier if it can.
 */
function searchedLoad(schedule: Schedule, { costs, isRecomputed }: Limits): Workload {
  const load = workloadOf(schedule, costs);
  if (!isRecomputed) return load;
  const again = load.times.durations[KIND.R]!;
  const durations = load.times.durations.map((times, kind) =>
    kind === KIND.B || kind === KIND.I ? times.map((time, stage) => time + again[stage]!) : times
  );
  return { ...load, times: { ...load.times, durations } };
}

/**
 * The orders of the list scheduler that keep the limits, for each placement and strategy, up to a
 * number of actions.
 */
function greedySchedules(options: ScheduleOptions, limits: Limits): Found[] {
  const jobs = searchedPlaces(regularPlaces(options), options, limits).flatMap((place) =>
    strategies(place).map((strategy, turn) => ({ ...place, strategy, turn }))
  ).sort((a, b) => a.turn - b.turn);
  const found: Found[] = [];
  let actions = 0;
  for (const { base, load, strategy } of jobs) {
    if (actions > ACTIONS_MAX) break;
    actions += 3 * base.stages * base.microBatches;
    const orders = ifServed(() => greedyOrder(load, strategy));
    if (orders === undefined) continue;
    found.push(...keepsLimits(withOrders(base, "search", orders), limits));
  }
  return found;
}

function* strategyGrid(limits: readonly number[]): Iterable<Strategy> {
  const pipeLimit = Infinity;
  yield { limits, pipeLimit };
  for (const isForwardFirst of [false, true]) {
    for (const patience of [0, 0.5, 1]) {
      yield { isSplit: true, isForwardFirst, limits, pipeLimit, patience };
    }
  }
}

function strategies(
  { base, partLimits }: ReturnType<typeof searchedPlaces>[number],
): Strategy[] {
  const tapered = partLimits.map((limit, worker) =>
    Math.min(limit, Math.max(2, Math.ceil(2 * limit * (1 - worker / base.workers))))
  );
  return [...strategyGrid(partLimits), ...strategyGrid(tapered)];
}

/** The number of orders to improve, the best of all. */
const IMPROVED = 4;
/** The most actions that the local search executes, all tries together. */
const EXECUTIONS_MAX = 6_000_000;
const TRIES_MAX = 8_000;
/** With fewer tries, an order of this length hardly changes. */
const TRIES_MIN = 100;
const SEED = 1;

/** The most actions of a step for an exact search, and the most states of that. */
const EXACT_ACTIONS_MAX = 108;
const EXACT_STATES = 100_000;

/** The most workers times micro-batches; a larger search would take minutes. */
const COMPUTED_MAX = 2 ** 16;

/**
 * Makes the definition of `search`. It returns the best of
 *
 * 1. every given schedule that serves the options and keeps the limits;
 * 2. the orders of a list scheduler on every placement that keeps them, under several strategies;
 * 3. the best of these after a local search, with all backwards split;
 * 4. for tiny steps, the shortest order of every placement that keeps the limits.
 *
 * A worker has `chunks` stages if given; otherwise the search chooses, and costs by slice determine how
 * fine the model may be cut. The result is never longer than the best given schedule. It is a function
 * of the options: random numbers have a fixed seed.
 *
 * @throws {RangeError} on `create`, if nothing keeps the limits.
 */
export function defineSearch(given: readonly ScheduleDefinition[]): ScheduleDefinition {
  const limits = ["activationLimit", "weightLimit", "recomputeAhead"] as const;
  const own = ["costs", ...limits, "edges", "found"] as const;
  const reads = [...own, ...given.flatMap(({ reads = [] }) => reads as ScheduleOption[])];
  return defineMade({
    name: "search",
    summary: "the shortest order found for your costs and limits of memory",
    reads: [...new Set(reads)],
  }, (options) => search(given, options));
}

function search(rules: readonly ScheduleDefinition[], options: ScheduleOptions): ListedSchedule {
  const { workers, microBatches, costs = {} } = options;
  const { activationLimit: activations = workers, weightLimit: weights = 1 } = options;
  const { recomputeAhead: isRecomputed = false, found } = options;
  const cannot = "make the schedule search", size = `${workers} times ${microBatches}`;
  const small = `workers times microBatches must be at most ${COMPUTED_MAX}`;
  assertInput(workers * microBatches <= COMPUTED_MAX, cannot, small, size);
  const limits: Limits = { costs, activations, weights, isRecomputed, found };
  const all = [...givenSchedules(rules, options, limits), ...greedySchedules(options, limits)]
    .sort((a, b) => a.makespan - b.makespan);
  const [first] = all;
  const given = `activationLimit ${activations} and weightLimit ${weights}`;
  const room = "the limits must leave room for some schedule";
  assertInput(first !== undefined, cannot, room, given);
  const best = distinct(all).slice(0, IMPROVED).flatMap((one) => improved(one, limits))
    .reduce(shorter, first);
  const { schedule } = exact(options, limits, best);
  const shortest = withOrders(schedule, "search", schedule.lists);
  return isRecomputed ? withRecomputation(shortest) : shortest;
}

const shorter = (a: Found, b: Found) => b.makespan < a.makespan - 1e-9 ? b : a;

/** The shortest order of all placements, for tiny steps. */
function exact(options: ScheduleOptions, limits: Limits, known: Found): Found {
  const places = [...regularPlaces(options), ...irregularPlaces(options)];
  const jobs = searchedPlaces(places, options, limits)
    .filter(({ base }) => 3 * base.stages * base.microBatches <= EXACT_ACTIONS_MAX)
    .map((place) => ({ ...place, bound: lowerBound(place.load, place.partLimits) }))
    .sort((a, b) => a.bound - b.bound);
  let best = known, states = EXACT_STATES;
  for (const { base, load, partLimits, bound } of jobs) {
    if (bound >= best.makespan - 1e-9 || states <= 0) break;
    const found = exactOrder(load, { limits: partLimits, below: best.makespan, states });
    states -= found.states;
    if (found.orders === undefined) continue;
    const made = keepsLimits(withOrders(base, "search", found.orders), limits);
    best = made.reduce(shorter, best);
  }
  return best;
}

/** Keeps one of several with the same time on the same placement. */
function distinct(found: readonly Found[]): Found[] {
  const seen = new Set<string>();
  return found.filter(({ schedule, makespan }) => {
    const key = `${makespan.toPrecision(9)} ${JSON.stringify(schedule.placement)}`;
    return !seen.has(key) && seen.add(key);
  });
}

function improved({ schedule }: Found, limits: Limits): Found[] {
  const actions = 3 * schedule.stages * schedule.microBatches;
  if (actions * TRIES_MIN > EXECUTIONS_MAX) return [];
  const orders = schedule.lists.map((list) =>
    Array.from(list).flatMap(parts).flatMap(splitBackward)
  );
  const isPlain = ({ kind, part }: Action) => part === undefined && kind !== "R";
  if (!orders.flat().every(isPlain)) return [];
  const tries = Math.min(TRIES_MAX, Math.floor(EXECUTIONS_MAX / actions));
  const load: Workload = searchedLoad(schedule, limits);
  const partLimit = partLimits(schedule, limits.activations, limits.isRecomputed);
  const better = improveOrder(load, orders, { tries, seed: SEED, limits: partLimit });
  return keepsLimits(withOrders(schedule, "search", better), limits);
}
