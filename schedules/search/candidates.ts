/** The candidates of a search: the schedules that it begins with. */

import { KIND } from "../actions/action_list.ts";
import { defineSchedule } from "../definition/define_schedule.ts";
import { withOrders } from "../definition/from_lists.ts";
import type { ScheduleOptions } from "../definition/options.ts";
import { readOptions } from "../definition/read_options.ts";
import type { Place, ScheduleDefinition } from "../definition/rule.ts";
import { edgesOfParts } from "../edges/edges_of_parts.ts";
import { withEdges } from "../edges/with_edges.ts";
import type { Schedule } from "../schedule.ts";
import { greedyOrder, type Strategy } from "./greedy.ts";
import { type Found, keepsLimits, keepsWeights, type Limits, partLimits } from "./limits.ts";
import { chunkCounts, regularPlaces, waveCounts } from "./places.ts";
import { type Workload, workloadOf } from "./workload.ts";

/** The actions that the list scheduler may order, all orders together. */
const ACTIONS_MAX = 1_000_000;

/** The given schedules that serve the options and keep the limits, with any number of chunks. */
export function givenSchedules(
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

/** The schedule with the skip edges of the options. */
function withPartEdges(schedule: Schedule, { edges, workers }: ScheduleOptions): Schedule {
  if (edges === undefined) return schedule;
  return withEdges(schedule, edgesOfParts(edges, { parts: workers, stages: schedule.stages }));
}

/** What `make` gives; undefined where it refuses its options with a RangeError. */
function ifServed<T>(make: () => T): T | undefined {
  try {
    return make();
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}

/** A place that is to be searched for orders. */
export interface SearchedPlace {
  /** A schedule on it, without orders. */
  readonly base: Schedule;
  readonly load: Workload;
  /** For each worker, the most live (stage, micro-batch) activations. */
  readonly partLimits: readonly number[];
}

/** Those of the places that the costs can be shared on and that keep the limit of weights. */
export function searchedPlaces(
  places: readonly Place[],
  options: ScheduleOptions,
  limits: Limits,
): SearchedPlace[] {
  return places.flatMap((place) => {
    const empty = defineSchedule({
      name: "search",
      summary: "",
      place: () => place,
      order: () => [],
    });
    return ifServed(() => {
      const base = withPartEdges(empty.create(options), options);
      if (!keepsWeights(base, limits)) return undefined;
      const load = searchedLoad(base, limits);
      return { base, load, partLimits: partLimits(base, limits.activations, limits.isRecomputed) };
    }) ?? [];
  });
}

/**
 * Returns the workload that orders are searched for. A stage that recomputes does so before its
 * backward, which takes as much longer: {@linkcode withRecomputation} starts it earlier if it can.
 */
export function searchedLoad(schedule: Schedule, { costs, isRecomputed }: Limits): Workload {
  const load = workloadOf(schedule, costs);
  if (!isRecomputed) return load;
  const again = load.times.durations[KIND.R]!;
  const durations = load.times.durations.map((times, kind) =>
    kind === KIND.B || kind === KIND.I ? times.map((time, stage) => time + again[stage]!) : times
  );
  return { ...load, times: { ...load.times, durations } };
}

/**
 * The orders of the list scheduler that keep the limits, of each place and strategy, as many as there
 * is time for.
 */
export function greedySchedules(options: ScheduleOptions, limits: Limits): Found[] {
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
  yield { isSplit: false, isForwardFirst: false, limits, pipeLimit, patience: 0 };
  for (const isForwardFirst of [false, true]) {
    for (const patience of [0, 0.5, 1]) {
      yield { isSplit: true, isForwardFirst, limits, pipeLimit, patience };
    }
  }
}

function strategies({ base, partLimits }: SearchedPlace): Strategy[] {
  const tapered = partLimits.map((limit, worker) =>
    Math.min(limit, Math.max(2, Math.ceil(2 * limit * (1 - worker / base.workers))))
  );
  return [...strategyGrid(partLimits), ...strategyGrid(tapered)];
}
