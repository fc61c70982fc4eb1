/** `search`: the shortest order found for given costs, within limits of memory. */

import { type Action, I, parts, W } from "../actions/action.ts";
import { analyze } from "../execution/analyze.ts";
import type { Costs } from "../execution/costs.ts";
import {
  defineSchedule,
  type Place,
  type ScheduleDefinition,
} from "../definition/define_schedule.ts";
import { withOrders } from "../definition/from_lists.ts";
import { bidirectional, linear, looped, wave } from "../definition/placements.ts";
import type { ListedSchedule } from "../execution/execute.ts";
import { activationParts, type Schedule, type ScheduleOptions } from "../schedule.ts";
import { greedyOrder, type Strategy, type Workload, workloadOf } from "./greedy.ts";
import { improveOrder } from "./improve.ts";
import { lowerBound } from "./lower_bound.ts";

/** The orders that are improved, the best ones of all that were made. */
const IMPROVED = 4;
/** The actions that the local search may execute, all tries together. */
const EXECUTIONS_MAX = 6_000_000;
const TRIES_MAX = 8_000;
const SEED = 1;

/** The most workers times micro-batches: beyond, a search takes minutes. */
const COMPUTED_MAX = 2 ** 16;

/** A schedule that keeps the limits, and how long it takes. */
interface Found {
  readonly schedule: ListedSchedule;
  readonly makespan: number;
}

/** What the schedules of a search are held to. */
interface Limits {
  readonly costs: Costs;
  readonly activations: number;
  readonly weights: number;
}

/**
 * Makes the definition of `search`. It takes the best of
 *
 * 1. every given schedule that serves the options and keeps the limits;
 * 2. the orders of a list scheduler on every placement that keeps them, under several strategies;
 * 3. what a local search makes of the best of these, with all backwards split.
 *
 * The result is therefore never longer than the best given schedule. It is a function of the
 * options: chance comes from a fixed seed.
 *
 * @throws {RangeError} on `create`, if nothing keeps the limits.
 */
export function defineSearch(given: readonly ScheduleDefinition[]): ScheduleDefinition {
  return {
    name: "search",
    summary: "the shortest order found for your costs and limits of memory",
    create(options) {
      const { workers, microBatches, costs = {} } = options;
      const { activationLimit = workers, weightLimit = 1 } = options;
      if (workers * microBatches > COMPUTED_MAX) {
        throw new RangeError(
          `Cannot make the schedule search: workers times microBatches must be at most ` +
            `${COMPUTED_MAX}, received ${workers} times ${microBatches}`,
        );
      }
      const limits = { costs, activations: activationLimit, weights: weightLimit };
      const found = [
        ...givenSchedules(given, options, limits),
        ...greedySchedules(options, limits),
      ].sort((a, b) => a.makespan - b.makespan);
      const [first] = found;
      if (first === undefined) {
        throw new RangeError(
          `Cannot make the schedule search: the limits must leave room for some schedule, ` +
            `received activationLimit ${activationLimit} and weightLimit ${weightLimit}`,
        );
      }
      const best = distinct(found).slice(0, IMPROVED).flatMap((one) => improved(one, limits))
        .reduce((a, b) => b.makespan < a.makespan - 1e-9 ? b : a, first);
      return withOrders(best.schedule, "search", best.schedule.lists);
    },
  };
}

/**
 * The time that no order of the schedule's micro-batches can beat on the schedule's own placement
 * (which worker holds which stage of which replica), within a limit of activations for each worker.
 * Orders are of forwards and of backwards that are whole or split; in halves as well where the
 * schedule has such; each forward may overlap with a backward where the costs have a time for that.
 * On another placement another order may be faster.
 *
 * @param activationLimit In micro-batches of 1/P of the model; none unless given.
 *
 * @example 1F1B is the best order of its placement while backwards are whole
 * ```ts
 * import { ok } from "node:assert/strict";
 * import { analyze, createSchedule, makespanLowerBound } from "@troupe/troupe/schedules";
 *
 * const schedule = createSchedule("1f1b", { workers: 4, microBatches: 8 });
 * ok(makespanLowerBound(schedule) <= analyze(schedule).makespan);
 * ```
 */
export function makespanLowerBound(
  schedule: Schedule,
  costs: Costs = {},
  activationLimit = Infinity,
): number {
  const limits = partLimits(schedule, activationLimit);
  const hasHalves = (schedule.lists ?? []).some((list) => list.hasHalves);
  return lowerBound(workloadOf(schedule, costs), limits, hasHalves);
}

/** For each worker, a limit in micro-batches of 1/P of the model as one of (stage, micro-batch). */
function partLimits(schedule: Schedule, activations: number): number[] {
  return new Array(schedule.workers).fill(activationParts(schedule, activations));
}

function keepsLimits(schedule: Schedule, limits: Limits): Found[] {
  const { makespan, peakActivations, weights, schedule: listed } = analyze(schedule, limits.costs);
  const fits = peakActivations.every((peak) => peak <= limits.activations + 1e-9) &&
    weights.every((held) => held <= limits.weights + 1e-9);
  return fits ? [{ schedule: listed, makespan }] : [];
}

function givenSchedules(
  given: readonly ScheduleDefinition[],
  options: ScheduleOptions,
  limits: Limits,
): Found[] {
  return given.flatMap((definition) => {
    const schedule = ifServed(() => definition.create(options));
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

function greedySchedules(options: ScheduleOptions, limits: Limits): Found[] {
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

/** Leaves one of those that take the same time on the same placement. */
function distinct(found: readonly Found[]): Found[] {
  const seen = new Set<string>();
  return found.filter(({ schedule, makespan }) => {
    const key = `${makespan.toPrecision(9)} ${JSON.stringify(schedule.placement)}`;
    return !seen.has(key) && seen.add(key);
  });
}

function improved({ schedule }: Found, limits: Limits): Found[] {
  const orders = schedule.lists.map((list) => Array.from(list).flatMap(parts).flatMap(split));
  if (orders.flat().some(({ half }) => half !== undefined)) return [];
  const load: Workload = workloadOf(schedule, limits.costs);
  const actions = orders.reduce((sum, order) => sum + order.length, 0);
  const tries = Math.min(TRIES_MAX, Math.floor(EXECUTIONS_MAX / actions));
  const partLimit = partLimits(schedule, limits.activations);
  const better = improveOrder(load, orders, { tries, seed: SEED, limits: partLimit });
  return keepsLimits(withOrders(schedule, "search", better), limits);
}

function split(action: Action): Action[] {
  const { kind, stage, microBatch, half } = action;
  return kind === "B" && half === undefined
    ? [I(stage, microBatch), W(stage, microBatch)]
    : [action];
}
