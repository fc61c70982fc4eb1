/**
 * Stage partitioning for a schedule: the cut of a model with the shortest step.
 *
 * [Note: a step is its longest path] Under given lists, the time of a step is that of the longest path
 * through their actions, and the time of a path is a sum over stages, whatever the cut. So a few paths
 * bound the steps of all cuts from below. The cut with the best bound is found by dynamic programming
 * and executed; if it takes longer than its bound, its critical path joins the paths. When no cut has a
 * bound below the best executed step, that step is optimal. The slowest stage alone, for which models
 * are commonly cut, is only one of these paths: in 1F1B the first forwards pass all stages once, and
 * the slowest one N times.
 */

import { KINDS } from "../action_list.ts";
import type { Costs } from "../costs.ts";
import { assertInput, refusal } from "../errors.ts";
import { execute, type Execution, isOfChain } from "../execute.ts";
import type { ListedSchedule, Schedule } from "../schedule.ts";
import { withLists } from "../simulator/simulate.ts";
import { checkEdges, type SkipEdge } from "../skip_edges.ts";

/**
 * The load of the path of actions that determined the end of the last action of an execution: no step is
 * shorter than its sum.
 *
 * @returns for each kind of action (F, B, I, W, R) and each stage, the number of whole micro-batches; and
 * for each stage, the number of messages to or from the next stage between two workers.
 */
function criticalPath(
  schedule: ListedSchedule,
  { timeline: { starts, ends, makespan }, lastInput }: Execution,
) {
  const { lists, stages, slices = 1 } = schedule;
  const load = KINDS.map(() => new Float64Array(stages)), messages = new Float64Array(stages);
  let worker = ends.findIndex((own) => own.at(-1) === makespan);
  let index = (lists[worker]?.length ?? 0) - 1;
  while (index >= 0) {
    const list = lists[worker]!;
    for (let part = list.startOf(index); part < list.startOf(index + 1); part++) {
      load[list.kindAt(part)]![list.stageAt(part)]! += 1 / list.countAt(part);
    }
    const start = starts[worker]![index]!;
    if (start === 0) break;
    if (index > 0 && ends[worker]![index - 1] === start) {
      index--;
      continue;
    }
    const giver = lastInput(worker, index)!, { kind, stage } = giver;
    // The time over a skip edge belongs to this cut only: for other cuts the path has its actions.
    if (giver.worker !== worker && isOfChain(list.at(index)!, giver)) {
      messages[kind === "F" ? stage : stage - 1]! += 1 / slices;
    }
    [worker, index] = [giver.worker, giver.index!];
  }
  return { actions: load, messages };
}

type PathLoad = ReturnType<typeof criticalPath>;

/** Equal for two paths with the same load. */
const pathKey = ({ actions, messages }: PathLoad): string =>
  [...actions, messages].map((one) => one.join()).join(";");

/** A value that a layer uses in addition to the output of the layer before. */
export interface LayerSkip {
  /** The layer that makes it. */
  readonly from: number;
  /** The layers that use it, ascending, all of them later ones. */
  readonly to: readonly number[];
  /** The time of a message of it, or of its gradient, to another worker. Default 0. */
  readonly send?: number | undefined;
  /** False if no gradient comes back. Default true. */
  readonly hasGradient?: boolean | undefined;
}

/**
 * The skip edges of a cut, with the times of their messages. A value within a stage does not travel,
 * and a value is sent to a stage only once, even if several of its layers use it.
 *
 * @param starts For each stage the index of its first layer.
 */
export function edgesOfCut(
  skips: readonly LayerSkip[],
  starts: readonly number[],
): (SkipEdge & { readonly send: number })[] {
  const stageOf = (layer: number) => starts.findLastIndex((start) => start <= layer);
  return skips.flatMap(({ send = 0, hasGradient = true, ...skip }) => {
    const from = stageOf(skip.from), to = [...new Set(skip.to.map(stageOf))];
    const others = to.filter((stage) => stage !== from);
    return others.length > 0 ? [{ from, to: others, send, hasGradient }] : [];
  });
}

/** Times of the layers of a model, in any one unit. */
export interface LayerTimes {
  /** The forward of each layer. */
  readonly forward: readonly number[];
  /** The full backward of each layer. */
  readonly backward: readonly number[];
  /** The backward for the input. Default: half of the full one. */
  readonly input?: readonly number[] | undefined;
  /** A recomputation. Default: a forward. */
  readonly recompute?: readonly number[] | undefined;
  /** A message of the output of each layer to another worker. Default 0. */
  readonly send?: readonly number[] | undefined;
  /** Values that go beyond the next layer. Default: none. */
  readonly skips?: readonly LayerSkip[] | undefined;
}

/** The operation in refusals of times. */
const CUT = "cut the model";

const isTime = (value: number) => value >= 0 && value < Infinity;

/**
 * Adds up the times of layers.
 *
 * @throws {RangeError} if they are not of the same layers, if one is negative or not finite, or if a
 * skip edge is not usable.
 */
export function layerSums(times: LayerTimes) {
  const { forward, backward, input = backward.map((time) => time / 2) } = times;
  const weight = backward.map((time, i) => time - input[i]!);
  const kinds = { forward, backward, input, weight, recompute: times.recompute ?? forward };
  const send = times.send ?? forward.map(() => 0);
  for (const [name, values] of Object.entries({ ...kinds, send })) {
    const must = `${name} must be of ${forward.length} layers`;
    assertInput(values.length === forward.length, CUT, must, values.length);
    for (const value of values) {
      assertInput(isTime(value), CUT, `${name} must be finite numbers from 0`, value);
    }
  }
  const sums = Object.values(kinds).map((values) => {
    const prefix = new Float64Array(values.length + 1);
    values.forEach((value, i) => prefix[i + 1] = prefix[i]! + value);
    return prefix;
  });
  const { skips = [] } = times;
  checkEdges(skips, forward.length);
  for (const { send = 0 } of skips) {
    const must = "the time of a skip edge must be a finite number from 0";
    assertInput(isTime(send), CUT, must, send);
  }
  return {
    count: forward.length,
    /** For each kind of action (F, B, I, W, R) the time of the first n layers. */
    sums,
    /** The message after each layer. */
    send: Float64Array.from(send),
    /** Values that go beyond the next layer. */
    skips,
  };
}

type LayerSums = ReturnType<typeof layerSums>;

/** The costs of the stages of a cut. */
export function costsOfCut({ count, sums, send }: LayerSums, starts: readonly number[]): Costs {
  const ends = starts.map((_, stage) => starts[stage + 1] ?? count);
  const [forward, backward, input, weight, recompute] = sums.map((prefix) =>
    starts.map((start, stage) => Math.max(0, prefix[ends[stage]!]! - prefix[start]!))
  ) as [number[], number[], number[], number[], number[]];
  // The parts of a backward must add up to the whole despite rounding.
  const whole = input.map((time, stage) => time + weight[stage]!);
  const differs = backward.some((time, stage) => Math.abs(time - whole[stage]!) > 1e-9 * time);
  const sends = ends.map((end) => send[end - 1]!);
  return { forward, backward: differs ? backward : whole, input, weight, recompute, send: sends };
}

/** Returns true if a stage may have the layers from one to before another, such as for its memory. */
export type Fits = (stage: number, from: number, to: number) => boolean;

/** For each stage the index of its first layer. */
type Starts = readonly number[];

/** A model to cut, and the limits of the search. */
interface CutProblem {
  readonly layers: LayerSums;
  readonly stages: number;
  readonly fits: Fits;
  readonly work: number;
}

/** The time that a stage with some layers adds to a path, with its message to the next stage. */
function addedBy(path: PathLoad, layers: LayerSums, stage: number, from: number, to: number) {
  const { actions, messages } = path, { sums, send } = layers;
  let total = (messages[stage] ?? 0) * (send[to - 1] ?? 0);
  for (let kind = 0; kind < sums.length; kind++) {
    const times = actions[kind]![stage]!;
    if (times > 0) total += times * (sums[kind]![to]! - sums[kind]![from]!);
  }
  return total;
}

/**
 * Bounds a path from below, by dynamic programming over all cuts.
 *
 * @returns the least time of its rest from each stage and layer on, at index
 * `stage * (layers + 1) + layer`.
 */
function boundPath(load: PathLoad, { layers, stages, fits }: CutProblem) {
  const { count } = layers, row = count + 1;
  const rest = new Float64Array((stages + 1) * row).fill(Infinity);
  rest[stages * row + count] = 0;
  for (let stage = stages - 1; stage >= 0; stage--) {
    for (let from = stage; from <= count - (stages - stage); from++) {
      let least = Infinity;
      for (let to = from + 1; to <= count - (stages - stage - 1); to++) {
        const after = rest[(stage + 1) * row + to]!;
        if (after >= least || !fits(stage, from, to)) continue;
        least = Math.min(least, after + addedBy(load, layers, stage, from, to));
      }
      rest[stage * row + from] = least;
    }
  }
  return { load, rest };
}

type BoundedPath = ReturnType<typeof boundPath>;

/** A cut of the first layers: the starts of its stages, and the time of each path up to there. */
interface PartialCut {
  readonly starts: readonly number[];
  readonly taken: Float64Array;
  /** A lower bound of the longest path over all stages. */
  readonly bound: number;
}

/** The rest of the work of a search, as a count of numbers that it may look at. */
type Budget = { left: number };

/**
 * The cut whose longest path is shortest, if it is shorter than `below`: by dynamic programming over
 * stages and layers that keeps every partial cut that no other one beats on all paths.
 *
 * @returns for each stage the index of its first layer; undefined if no cut stays below the bound, or
 * no work was left to find one.
 */
function cheapestCut(
  paths: readonly BoundedPath[],
  { layers, stages, fits }: CutProblem,
  below: number,
  work: Budget,
): Starts | undefined {
  /** A partial cut with one stage more; empty if some path must reach the bound. */
  const extend = (cut: PartialCut, added: readonly number[], from: number, at: number) => {
    const taken = new Float64Array(paths.length);
    let bound = 0;
    for (let i = 0; i < paths.length; i++) {
      taken[i] = cut.taken[i]! + added[i]!;
      bound = Math.max(bound, taken[i]! + paths[i]!.rest[at]!);
      if (bound >= below) return [];
    }
    return [{ starts: [...cut.starts, from], taken, bound }];
  };
  const { count } = layers;
  let cuts = new Map<number, PartialCut[]>([
    [0, [{ starts: [], taken: new Float64Array(paths.length), bound: 0 }]],
  ]);
  for (let stage = 0; stage < stages; stage++) {
    const next = new Map<number, PartialCut[]>();
    for (const [from, partial] of cuts) {
      const last = count - (stages - stage - 1);
      for (let to = stage === stages - 1 ? count : from + 1; to <= last; to++) {
        if (!fits(stage, from, to)) continue;
        const added = paths.map(({ load }) => addedBy(load, layers, stage, from, to));
        work.left -= paths.length * (partial.length + 5);
        if (work.left < 0) return undefined;
        const at = (stage + 1) * (count + 1) + to;
        const longer = partial.flatMap((cut) => extend(cut, added, from, at));
        if (longer.length > 0) next.set(to, [...next.get(to) ?? [], ...longer]);
      }
    }
    for (const [to, found] of next) next.set(to, undominated(found, work));
    cuts = next;
  }
  return cuts.get(count)?.[0]?.starts;
}

/** The cuts that no other one beats or equals on all paths, the most promising first. */
function undominated(cuts: readonly PartialCut[], work: Budget): PartialCut[] {
  const kept: PartialCut[] = [];
  for (const cut of cuts.toSorted((a, b) => a.bound - b.bound)) {
    work.left -= 2 * kept.length;
    if (work.left < 0) return [];
    const isBeaten = kept.some(({ taken }) => taken.every((one, i) => one <= cut.taken[i]!));
    if (!isBeaten) kept.push(cut);
  }
  return kept;
}

/** The best cut of a model for a schedule. */
export interface SchedulePartition {
  /** For each stage the index of its first layer. */
  readonly starts: readonly number[];
  /** The time of the step. */
  readonly makespan: number;
  /** A lower bound of the step of any cut; the time of the step if the cut is exact. */
  readonly atLeast: number;
  /** True if it was proven that no cut takes less. */
  readonly isExact: boolean;
}

/** The default work of a search: some seconds. */
const WORK_MAX = 2e7;

/** Rounds without lists: the order follows the costs, so it is simulated again for each cut. */
const ORDERS_MAX = 4;

/** The most steps that are simulated in these rounds. */
const SIMULATIONS_MAX = 1000;

/** Work of a simulated forward and its backward, in numbers. */
const CHOSEN = 8;

/** The factor by which a worker is slowed down to find the path through all its actions. */
const SLOWER = 1000;

/**
 * Cuts a model into stages so that a step of the schedule takes the least time: exact for lists, as far
 * as their dependencies are known; without lists, for the orders that simulated steps have. If values
 * go beyond the next layer, their messages count in each step that is tried, but the best cut is not
 * always found or proven.
 *
 * @param times Times of the layers, embedding and head included.
 * @param fits Returns true if a stage may have some layers; always unless given.
 * @param work The most numbers that a search looks at before it returns its best cut.
 * @throws {RangeError} if there are fewer layers than stages, a time is not usable, or no cut fits.
 *
 * @example Work outside of the slowest stage counts, too
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
  const cannot = `cut the model into ${stages} stages`;
  assertInput(layers.count >= stages, cannot, "it must have as many layers", layers.count);
  const even = evenCut(layers, stages), hasSkips = layers.skips.length > 0;
  const problem: CutProblem = { layers, stages, fits, work: hasSkips ? work / 2 : work };
  const cut = (problem: CutProblem, first: Starts) =>
    schedule.lists
      ? search(schedule as ListedSchedule, problem, first)
      : simulated(schedule, problem, first);
  if (!hasSkips) return cut(problem, even);
  // Times over skip edges are no sum over stages: the search starts from the cut of the chain.
  return cut(problem, cut({ ...problem, layers: { ...layers, skips: [] } }, even).starts);
}

/** Without lists, the order follows the cut: searches for a cut with the order of the cut before. */
function simulated(schedule: Schedule, problem: CutProblem, even: Starts): SchedulePartition {
  const { stages, microBatches, slices = 1 } = schedule, { layers, work } = problem;
  let left = Math.min(SIMULATIONS_MAX, work / (CHOSEN * stages * microBatches * slices));
  const stepOf = (starts: Starts) =>
    left-- > 0 && isFitting(starts, problem) ? makespanOf(schedule, layers, starts) : Infinity;
  let best: Tried = { starts: even, makespan: stepOf(even) }, isBetter = true;
  for (let round = 0; isBetter && round < ORDERS_MAX; round++) {
    const cut = linked(schedule, layers, best.starts);
    const ordered = withLists(cut.schedule, cut.costs);
    const { starts } = search(ordered, problem, best.starts);
    const found = improveCut({ starts, makespan: stepOf(starts) }, layers.count, stepOf);
    isBetter = found.makespan < best.makespan;
    if (isBetter) best = found;
  }
  return { ...best, atLeast: 0, isExact: false };
}

/** Stages of similar time, one after the other. */
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

function search(schedule: ListedSchedule, problem: CutProblem, first: Starts): SchedulePartition {
  const { layers, stages, work: most } = problem;
  const actions = schedule.lists.reduce((sum, { partCount }) => sum + partCount, 0);
  const paths = new Map<string, BoundedPath>(), work = { left: most };
  const learn = (execution: Execution) => {
    const path = criticalPath(schedule, execution), key = pathKey(path);
    if (!paths.has(key)) paths.set(key, boundPath(path, problem));
  };
  const take = (starts: Starts): Tried => {
    const execution = run(schedule, layers, starts);
    learn(execution);
    return { starts, makespan: execution.timeline.makespan };
  };
  for (let worker = 0; worker < schedule.workers; worker++) {
    learn(run(schedule, layers, first, worker));
  }
  const improve = (from: Tried) =>
    improveCut(from, layers.count, (starts) => {
      if (!isFitting(starts, problem)) return Infinity;
      work.left -= actions;
      return work.left < most / 2 ? Infinity : makespanOf(schedule, layers, starts);
    });
  let best: Tried | undefined = isFitting(first, problem) ? take(first) : undefined;
  if (best) best = take(improve(best).starts);
  const hasSkips = layers.skips.length > 0;
  let isProven = true;
  while (true) {
    // Rounding of sums must not make an equal step look shorter.
    const below = best ? best.makespan * (1 - 1e-9) : Infinity;
    const starts = cheapestCut([...paths.values()], problem, below, work);
    if (!starts) break;
    const known = paths.size, tried = take(starts);
    if (!best || tried.makespan < below) best = tried;
    else if (paths.size === known) {
      // Over skip edges a step may take longer than all known paths.
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
  const cannot = `cut the model into ${stages} stages of ${schedule.name}`;
  throw refusal(cannot, "a cut must fit", "none that does");
}

/** A cut that was executed. */
type Tried = Pick<SchedulePartition, "starts" | "makespan">;

/** Moves neighbouring borders of stages together while that makes the step shorter. */
function improveCut(from: Tried, layers: number, stepOf: (starts: Starts) => number): Tried {
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

function makespanOf(schedule: Schedule, layers: LayerSums, starts: Starts): number {
  const cut = linked(schedule, layers, starts);
  return execute(withLists(cut.schedule, cut.costs), cut.costs).timeline.makespan;
}

/** The schedule with the skip edges of a cut, and the costs of its stages. */
function linked<S extends Schedule>(schedule: S, layers: LayerSums, starts: Starts) {
  const costs = costsOfCut(layers, starts);
  if (layers.skips.length === 0) return { schedule, costs };
  const edges = edgesOfCut(layers.skips, starts);
  const skip = edges.map(({ send }) => send);
  return { schedule: { ...schedule, edges }, costs: { ...costs, skip } };
}

const isFitting = (starts: Starts, { layers, fits }: CutProblem): boolean =>
  starts.every((start, stage) => fits(stage, start, starts[stage + 1] ?? layers.count));

/** Executes a cut, with one worker much slower if given. */
function run(schedule: ListedSchedule, layers: LayerSums, starts: Starts, slow?: number) {
  const own = slow === undefined ? [] : schedule.placement[slow]!.map(({ stage }) => stage);
  const { schedule: cut, costs: { send, skip, ...costs } } = linked(schedule, layers, starts);
  const slower = (times: readonly number[]) =>
    times.map((time, stage) => own.includes(stage) ? SLOWER * time : time);
  const slowed = Object.entries(costs).map(([name, times]) => [name, slower(times as number[])]);
  return execute(cut, { ...Object.fromEntries(slowed), send, skip });
}
