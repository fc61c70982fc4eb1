/**
 * Stage partitioning for a schedule: the cut of a model with which a step takes least time.
 *
 * [Note: a step is its longest path] What a step takes under given lists is the longest of all paths
 * through their actions, and what a path takes is a sum over stages, whatever the cut. So a few paths
 * bound the steps of all cuts from below. The cut with the best bound is found by dynamic programming
 * and executed; if it takes longer than its bound, the path on which it does is one more. When no cut
 * has a bound below the best step that was executed, that step is the least there is. The slowest
 * stage alone, for which models are commonly cut, is but one of these paths: in 1F1B the first
 * forwards pass all stages once, and the slowest one N times.
 */

import { execute } from "../execution/execute.ts";
import type { Costs } from "../execution/costs.ts";
import { withLists } from "../execution/simulate.ts";
import type { ListedSchedule, Schedule } from "../schedule.ts";
import { type BoundedPath, boundPath, cheapestCut, type Fits } from "./cheapest_cut.ts";
import {
  type ActionIndex,
  criticalPath,
  indexActions,
  pathKey,
  type PathLoad,
} from "./critical_path.ts";
import { edgesOfCut, type LayerSkip } from "./edges_of_cut.ts";
import { costsOfCut, type LayerSums, layerSums, type LayerTimes } from "./layer_times.ts";

export type { Fits, LayerSkip, LayerTimes };

/** The best cut of a model for a schedule. */
export interface SchedulePartition {
  /** For each stage the index of its first layer. */
  readonly starts: readonly number[];
  /** What the step takes. */
  readonly makespan: number;
  /** What no cut can take less than; with an exact cut, what that takes. */
  readonly atLeast: number;
  /** Whether it was proven that no cut takes less. */
  readonly isExact: boolean;
}

/** Numbers that a search looks at unless told otherwise: some seconds. */
const WORK_MAX = 2e7;

/** Where messages decide, the order follows the costs: it is simulated again for a cut so often. */
const ORDERS_MAX = 4;

/** The most steps that are simulated meanwhile. */
const SIMULATIONS_MAX = 1000;

/** Numbers that are looked at for each forward, and its backward, where messages decide. */
const CHOSEN = 8;

/** How much slower a worker is made, to find the path through all that it does. */
const SLOWER = 1000;

/**
 * Cuts a model into stages so that a step of the schedule takes least time: exact for lists, as far as
 * their dependencies go; where messages decide, for the orders that simulated steps have. Where values
 * go beyond the next layer, their messages count in each step that is tried, and the best cut is not always found or proven.
 *
 * @param times of the layers, embedding and head included.
 * @param fits whether a stage may have some layers; any unless given.
 * @param work numbers that a search looks at, beyond which it ends with the best that it has.
 * @throws {RangeError} if there are fewer layers than stages, a time is not usable, or no cut fits.
 *
 * @example What is beside the slowest stage counts, too
 * ```ts
 * import { deepStrictEqual, strictEqual } from "node:assert/strict";
 * import { createSchedule, partitionForSchedule } from "@troupe/troupe/schedules";
 *
 * const schedule = createSchedule("1f1b", { workers: 3, microBatches: 2 });
 * const forward = [2, 1, 1, 1, 4], backward = forward.map((time) => 2 * time);
 * const { starts, makespan, isExact } = partitionForSchedule(schedule, { forward, backward });
 * deepStrictEqual([starts, makespan, isExact], [[0, 2, 4], 39, true]);
 * ```
 */
export function partitionForSchedule(
  schedule: Schedule,
  times: LayerTimes,
  fits: Fits = () => true,
  work: number = WORK_MAX,
): SchedulePartition {
  const layers = layerSums(times), { stages } = schedule;
  if (layers.count < stages) {
    throw new RangeError(
      `Cannot cut the model into ${stages} stages: it must have as many layers, received ${layers.count}`,
    );
  }
  const even = evenCut(layers, stages);
  const cut = (layers: LayerSums, work: number, first: readonly number[]) =>
    schedule.lists
      ? search(schedule as ListedSchedule, layers, { fits, work }, first)
      : simulated(schedule, layers, { fits, work }, first);
  if (layers.skips.length === 0) return cut(layers, work, even);
  // What goes beyond the next stage is no sum over stages: the cut of the chain is a good beginning.
  const { starts } = cut({ ...layers, skips: [] }, work / 2, even);
  return cut(layers, work / 2, starts);
}

/** What a search keeps to. */
interface Bounds {
  readonly fits: Fits;
  readonly work: number;
}

/** Where messages decide: the order follows the cut, so that is searched for with the order of before. */
function simulated(
  schedule: Schedule,
  layers: LayerSums,
  { fits, work }: Bounds,
  even: readonly number[],
): SchedulePartition {
  const { stages, microBatches, slices = 1 } = schedule;
  let left = Math.min(SIMULATIONS_MAX, work / (CHOSEN * stages * microBatches * slices));
  const stepOf = (starts: readonly number[]) =>
    left-- > 0 && isFitting(starts, layers, fits) ? makespanOf(schedule, layers, starts) : Infinity;
  let best: Tried = { starts: even, makespan: stepOf(even) }, isBetter = true;
  for (let round = 0; isBetter && round < ORDERS_MAX; round++) {
    const cut = linked(schedule, layers, best.starts);
    const ordered = withLists(cut.schedule, cut.costs);
    const { starts } = search(ordered, layers, { fits, work }, best.starts);
    const found = improveCut({ starts, makespan: stepOf(starts) }, layers.count, stepOf);
    isBetter = found.makespan < best.makespan;
    if (isBetter) best = found;
  }
  return { ...best, atLeast: 0, isExact: false };
}

/** Stages of about the same time, one after the other. */
function evenCut({ count, sums: [forward, backward] }: LayerSums, stages: number): number[] {
  const total = forward![count]! + backward![count]!, starts = [0];
  for (let stage = 1; stage < stages; stage++) {
    let start = starts.at(-1)! + 1;
    const isBefore = () => forward![start]! + backward![start]! < total * stage / stages;
    while (start < count - (stages - stage) && isBefore()) start++;
    starts.push(start);
  }
  return starts;
}

function search(
  schedule: ListedSchedule,
  layers: LayerSums,
  { fits, work: most }: Bounds,
  first: readonly number[],
): SchedulePartition {
  const { stages, name } = schedule, actions = indexActions(schedule);
  const paths = new Map<string, BoundedPath>(), work = { left: most };
  const learn = (path: PathLoad) => {
    const key = pathKey(path);
    if (!paths.has(key)) paths.set(key, boundPath(path, layers, stages, fits));
  };
  const take = (starts: readonly number[]): Tried => {
    const { makespan, path } = run(schedule, layers, starts, actions);
    learn(path);
    return { starts, makespan };
  };
  for (let worker = 0; worker < schedule.workers; worker++) {
    learn(run(schedule, layers, first, actions, worker).path);
  }
  const improve = (from: Tried) =>
    improveCut(from, layers.count, (starts) => {
      if (!isFitting(starts, layers, fits)) return Infinity;
      work.left -= actions.size;
      return work.left < most / 2 ? Infinity : makespanOf(schedule, layers, starts);
    });
  let best: Tried | undefined = isFitting(first, layers, fits) ? take(first) : undefined;
  if (best) best = take(improve(best).starts);
  const hasSkips = layers.skips.length > 0;
  let isProven = true;
  while (true) {
    // Rounding of sums must not make the same step look shorter.
    const below = best ? best.makespan * (1 - 1e-9) : Infinity;
    const starts = cheapestCut([...paths.values()], layers, { stages, fits, below, work });
    if (!starts) break;
    const known = paths.size, tried = take(starts);
    if (!best || tried.makespan < below) best = tried;
    else if (paths.size === known) {
      // Over skip edges a step may take longer than all paths that are known.
      const other = hasSkips ? improve(tried) : tried;
      isProven = !hasSkips || other.makespan < below;
      if (other.makespan >= below) break;
      best = take(other.starts);
    }
  }
  if (best) {
    const isExact = isProven && work.left >= 0;
    const bounds = paths.values().map(({ rest }) => rest[0]!);
    return { ...best, isExact, atLeast: isExact ? best.makespan : Math.max(...bounds) };
  }
  throw new RangeError(
    `Cannot cut the model into ${stages} stages of ${name}: a cut must fit, received none that ` +
      `does`,
  );
}

/** A cut that was executed. */
interface Tried {
  readonly starts: readonly number[];
  readonly makespan: number;
}

/** Moves neighbouring borders of stages, together, as long as that makes the step shorter. */
function improveCut(
  from: Tried,
  layers: number,
  stepOf: (starts: readonly number[]) => number,
): Tried {
  let best = from, isBetter = true;
  while (isBetter) {
    isBetter = false;
    for (const starts of neighboursOf(best.starts, layers)) {
      const makespan = stepOf(starts);
      if (makespan >= best.makespan) continue;
      best = { starts, makespan };
      isBetter = true;
    }
  }
  return best;
}

/** Cuts in which some stages in a row begin a layer earlier or later. */
function* neighboursOf(starts: readonly number[], layers: number): IterableIterator<number[]> {
  for (let first = 1; first < starts.length; first++) {
    for (let last = first; last < starts.length; last++) {
      for (const by of [-1, 1]) {
        const moved = starts.map((start, i) => i >= first && i <= last ? start + by : start);
        if (moved.every((start, i) => start < (moved[i + 1] ?? layers))) yield moved;
      }
    }
  }
}

function makespanOf(schedule: Schedule, layers: LayerSums, starts: readonly number[]): number {
  const cut = linked(schedule, layers, starts);
  return execute(withLists(cut.schedule, cut.costs), cut.costs).timeline.makespan;
}

/** The schedule with the skip edges of a cut, and what its stages cost. */
function linked<S extends Schedule>(
  schedule: S,
  layers: LayerSums,
  starts: readonly number[],
): { readonly schedule: S; readonly costs: Costs } {
  const costs = costsOfCut(layers, starts);
  if (layers.skips.length === 0) return { schedule, costs };
  const edges = edgesOfCut(layers.skips, starts);
  return {
    schedule: { ...schedule, edges },
    costs: { ...costs, skip: edges.map(({ send }) => send) },
  };
}

const isFitting = (starts: readonly number[], { count }: LayerSums, fits: Fits): boolean =>
  starts.every((start, stage) => fits(stage, start, starts[stage + 1] ?? count));

/** Executes a cut, and finds its longest path; with one worker much slower, the path through that. */
function run(
  schedule: ListedSchedule,
  layers: LayerSums,
  starts: readonly number[],
  actions: ActionIndex,
  slow?: number,
) {
  const own = slow === undefined ? [] : schedule.placement[slow]!.map(({ stage }) => stage);
  const { schedule: cut, costs } = linked(schedule, layers, starts);
  const slower = (times: unknown) =>
    (times as readonly number[]).map((time, stage) => own.includes(stage) ? SLOWER * time : time);
  const execution = execute(cut, {
    ...costs,
    ...slow !== undefined && {
      forward: slower(costs.forward),
      backward: slower(costs.backward),
      input: slower(costs.input),
      weight: slower(costs.weight),
      recompute: slower(costs.recompute),
    },
  });
  const { makespan } = execution.timeline;
  return { makespan, path: criticalPath(schedule, execution, actions) };
}
