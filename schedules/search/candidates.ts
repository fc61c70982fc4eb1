/** The candidates of a search: the schedules that it begins with. */

import { defineSchedule } from "../definition/define_schedule.ts";
import { withOrders } from "../definition/from_lists.ts";
import type { ScheduleOptions } from "../definition/options.ts";
import { bidirectional, linear, looped, wave } from "../definition/placements.ts";
import { readOptions } from "../definition/read_options.ts";
import type { Place, ScheduleDefinition } from "../definition/rule.ts";
import type { Schedule } from "../schedule.ts";
import { greedyOrder, type Strategy } from "./greedy.ts";
import { type Found, keepsLimits, type Limits, partLimits } from "./limits.ts";
import { workloadOf } from "./workload.ts";

/** The given schedules that serve the options and keep the limits. */
export function givenSchedules(
  given: readonly ScheduleDefinition[],
  options: ScheduleOptions,
  limits: Limits,
): Found[] {
  return given.flatMap((definition) => {
    const schedule = ifServed(() => definition.create(readOptions(definition, options)));
    const isFit = schedule?.workers === options.workers && schedule.updates === "flush";
    return isFit ? ifServed(() => keepsLimits(schedule, limits)) ?? [] : [];
  });
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

/** The placements of which the list scheduler makes orders. */
const PLACES: readonly ((options: ScheduleOptions) => Place)[] = [
  linear,
  looped,
  wave,
  (options) => ({ ...bidirectional(options) }),
];

/** The orders of the list scheduler that keep the limits, of each placement and strategy. */
export function greedySchedules(options: ScheduleOptions, limits: Limits): Found[] {
  return PLACES.flatMap((place) => {
    const empty = defineSchedule({ name: "search", summary: "", place, order: () => [] });
    return ifServed(() => {
      const base = empty.create(options);
      const load = workloadOf(base, limits.costs);
      return strategies(base, limits).flatMap((strategy) => {
        const orders = ifServed(() => greedyOrder(load, strategy));
        return orders === undefined ? [] : keepsLimits(withOrders(base, "search", orders), limits);
      });
    }) ?? [];
  });
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
