/** The candidates of a search: the schedules that it begins with. */

import { defineSchedule } from "../definition/define_schedule.ts";
import { withOrders } from "../definition/from_lists.ts";
import type { ScheduleOptions } from "../definition/options.ts";
import { readOptions } from "../definition/read_options.ts";
import type { Place, ScheduleDefinition } from "../definition/rule.ts";
import type { Schedule } from "../schedule.ts";
import { greedyOrder, type Strategy } from "./greedy.ts";
import { type Found, keepsLimits, keepsWeights, type Limits, partLimits } from "./limits.ts";
import { chunkCounts, regularPlaces, waveCounts } from "./places.ts";
import { workloadOf } from "./workload.ts";

/** The actions that the list scheduler may order, all orders together. */
const ACTIONS_MAX = 1_500_000;

/** The given schedules that serve the options and keep the limits, with any number of chunks. */
export function givenSchedules(
  given: readonly ScheduleDefinition[],
  options: ScheduleOptions,
  limits: Limits,
): Found[] {
  return given.flatMap((definition) =>
    variants(definition, options).flatMap((variant) => {
      const schedule = ifServed(() => definition.create(readOptions(definition, variant)));
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

/** What `make` gives; undefined where it refuses its options with a RangeError. */
function ifServed<T>(make: () => T): T | undefined {
  try {
    return make();
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}

/** A schedule on a place, without orders; undefined where the place does not serve the limits. */
export function emptyOn(
  place: Place,
  options: ScheduleOptions,
  limits: Limits,
): Schedule | undefined {
  const empty = defineSchedule({
    name: "search",
    summary: "",
    place: () => place,
    order: () => [],
  });
  return ifServed(() => {
    const base = empty.create(options);
    return keepsWeights(base, limits) ? base : undefined;
  });
}

/**
 * The orders of the list scheduler that keep the limits, of each place and strategy, as many as there
 * is time for.
 */
export function greedySchedules(options: ScheduleOptions, limits: Limits): Found[] {
  const bases = regularPlaces(options).flatMap((place) => emptyOn(place, options, limits) ?? []);
  const jobs = bases.flatMap((base) =>
    strategies(base, limits).map((strategy, turn) => ({ base, strategy, turn }))
  ).sort((a, b) => a.turn - b.turn);
  const found: Found[] = [];
  let actions = 0;
  for (const { base, strategy } of jobs) {
    if (actions > ACTIONS_MAX) break;
    actions += 3 * base.stages * base.microBatches;
    const orders = ifServed(() => greedyOrder(workloadOf(base, limits.costs), strategy));
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

function strategies(base: Schedule, { activations }: Limits): Strategy[] {
  const limits = partLimits(base, activations);
  const tapered = limits.map((limit, worker) =>
    Math.min(limit, Math.max(2, Math.ceil(2 * limit * (1 - worker / base.workers))))
  );
  return [...strategyGrid(limits), ...strategyGrid(tapered)];
}
