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

import { type ActionList, KIND, KINDS } from "../action_list.ts";
import type { Costs } from "../costs.ts";
import { type AwaitedInput, execute, type Execution } from "../execute.ts";
import type { ListedSchedule, Schedule } from "../schedule.ts";
import { withLists } from "../simulator/simulate.ts";
import { checkEdges, type SkipEdge } from "../skip_edges.ts";

/**
 * A path of actions each of which waits for the one before, whatever they take: no step is shorter
 * than the sum of what is on it.
 */
interface PathLoad {
  /** For each kind of action (F, B, I, W, R) and each stage, how many whole micro-batches. */
  readonly actions: readonly Float64Array[];
  /** For each stage, how many messages between it and the next one go from worker to worker. */
  readonly messages: Float64Array;
}

/** The actions of a schedule by what they compute. */
type ActionIndex = ReadonlyMap<
  string,
  readonly (readonly [worker: number, index: number])[]
>;

const keyOf = (kind: string, stage: number, microBatch: number, slice: number) =>
  `${stage}${kind}${microBatch}s${slice}`;

/** Finds the actions of a schedule by what they compute. */
function indexActions({ lists }: ListedSchedule): ActionIndex {
  const found = new Map<string, (readonly [number, number])[]>();
  for (const [worker, list] of lists.entries()) {
    for (let index = 0; index < list.length; index++) {
      for (let part = list.startOf(index); part < list.startOf(index + 1); part++) {
        const [kind, stage] = [KINDS[list.kindAt(part)]!, list.stageAt(part)];
        const key = keyOf(kind, stage, list.microBatchAt(part), list.sliceAt(part));
        found.set(key, [...found.get(key) ?? [], [worker, index]]);
      }
    }
  }
  return found;
}

/** The path that decided when the last action of an execution ended. */
function criticalPath(
  schedule: ListedSchedule,
  { timeline: { starts, ends, makespan }, lastInput }: Execution,
  actions: ActionIndex,
): PathLoad {
  const { lists, stages, slices = 1 } = schedule;
  const load = KINDS.map(() => new Float64Array(stages)), messages = new Float64Array(stages);
  let worker = ends.findIndex((own) => own.at(-1) === makespan);
  let index = (lists[worker]?.length ?? 0) - 1;
  while (index >= 0) {
    addAction(load, lists[worker]!, index, slices);
    const start = starts[worker]![index]!;
    if (start === 0) break;
    if (index > 0 && ends[worker]![index - 1] === start) {
      index--;
      continue;
    }
    const { kind, stage, microBatch, slice = 0, time } = lastInput(worker, index)!;
    const from = actions.get(keyOf(kind, stage, microBatch, slice))!;
    // Of two halves the one that was there last.
    const [giver, given] = from.reduce((a, b) =>
      Math.abs(time - ends[b[0]]![b[1]]!) < Math.abs(time - ends[a[0]]![a[1]]!) ? b : a
    );
    // What a way over a skip edge takes is of this cut alone: of others the path has its actions.
    const isOfChain = waitsFor(lists[worker]!, index, { kind, stage, microBatch });
    if (giver !== worker && isOfChain) messages[kind === "F" ? stage : stage - 1]! += 1 / slices;
    [worker, index] = [giver, given];
  }
  return { actions: load, messages };
}

/** Whether an action waits for the neighbour that gives an input, by the chain. */
function waitsFor(
  list: ActionList,
  index: number,
  { kind, stage, microBatch }: Pick<AwaitedInput, "kind" | "stage" | "microBatch">,
): boolean {
  const isForward = kind === "F", next = isForward ? stage + 1 : stage - 1;
  for (let part = list.startOf(index); part < list.startOf(index + 1); part++) {
    const isNext = list.stageAt(part) === next && list.microBatchAt(part) === microBatch;
    if (isNext && (list.kindAt(part) === KIND.F) === isForward) return true;
  }
  return false;
}

function addAction(
  load: readonly Float64Array[],
  list: ActionList,
  index: number,
  slices: number,
): void {
  for (let part = list.startOf(index); part < list.startOf(index + 1); part++) {
    const share = list.halfAt(part) === 0 ? 1 / slices : 0.5;
    load[list.kindAt(part)]![list.stageAt(part)]! += share;
  }
}

/** Two paths are the same where they have the same on them. */
const pathKey = ({ actions, messages }: PathLoad): string =>
  [...actions, messages].map((one) => one.join()).join(";");

/** A value that layers use beyond what the layer before hands them. */
export interface LayerSkip {
  /** The layer that makes it. */
  readonly from: number;
  /** The layers that use it, ascending, all of them later ones. */
  readonly to: readonly number[];
  /** A message of it to another worker, or of its gradient; 0 unless given. */
  readonly send?: number | undefined;
  /** Whether a gradient comes back; it does unless this is false. */
  readonly hasGradient?: boolean | undefined;
}

/** A skip edge of a cut, and what a message over it takes. */
interface CutEdge extends SkipEdge {
  readonly send: number;
}

/** @throws {RangeError} if the model has no such layers, a value goes to an earlier one, or a time is none. */
function checkSkips(skips: readonly LayerSkip[], layers: number): void {
  checkEdges(skips, layers);
  for (const { send = 0 } of skips) {
    if (send >= 0 && send < Infinity) continue;
    throw new RangeError(
      `Cannot cut the model: the time of a skip edge must be a finite number from 0, received ${send}`,
    );
  }
}

/**
 * The values that go from stage to stage. Within a stage nothing travels, and to a stage a value goes
 * once, however many of its layers use it.
 *
 * @param starts for each stage the index of its first layer.
 */
export function edgesOfCut(skips: readonly LayerSkip[], starts: readonly number[]): CutEdge[] {
  const stageOf = (layer: number) => starts.findLastIndex((start) => start <= layer);
  return skips.flatMap(({ send = 0, hasGradient = true, ...skip }) => {
    const from = stageOf(skip.from), to = [...new Set(skip.to.map(stageOf))];
    const others = to.filter((stage) => stage !== from);
    return others.length > 0 ? [{ from, to: others, send, hasGradient }] : [];
  });
}

/** What each layer of a model takes, in any one unit of time. */
export interface LayerTimes {
  /** A forward of each layer. */
  readonly forward: readonly number[];
  /** A full backward of each. */
  readonly backward: readonly number[];
  /** The backward for the input; half of the full one unless given. */
  readonly input?: readonly number[] | undefined;
  /** A recomputation; a forward unless given. */
  readonly recompute?: readonly number[] | undefined;
  /** A message of what each layer gives to another worker; 0 unless given. */
  readonly send?: readonly number[] | undefined;
  /** Values that go beyond the next layer; none unless given. */
  readonly skips?: readonly LayerSkip[] | undefined;
}

/** The times of layers added up, so that those of any run of layers are a difference. */
interface LayerSums {
  /** Layers. */
  readonly count: number;
  /** For each kind of action (F, B, I, W, R) what the first n layers take. */
  readonly sums: readonly Float64Array[];
  /** The message after each layer. */
  readonly send: Float64Array;
  /** Values that go beyond the next layer. */
  readonly skips: readonly LayerSkip[];
}

/**
 * Adds the times of layers up.
 *
 * @throws {RangeError} if they are not of the same layers, or one is negative or not finite.
 */
export function layerSums(times: LayerTimes): LayerSums {
  const { forward, backward, input = backward.map((time) => time / 2) } = times;
  const weight = backward.map((time, i) => time - input[i]!);
  const kinds = { forward, backward, input, weight, recompute: times.recompute ?? forward };
  const send = times.send ?? forward.map(() => 0);
  for (const [name, values] of Object.entries({ ...kinds, send })) {
    if (values.length !== forward.length) {
      throw new RangeError(
        `Cannot cut the model: ${name} must be of ${forward.length} layers, received ${values.length}`,
      );
    }
    for (const value of values) {
      if (value >= 0 && value < Infinity) continue;
      throw new RangeError(
        `Cannot cut the model: ${name} must be finite numbers from 0, received ${value}`,
      );
    }
  }
  const sums = Object.values(kinds).map((values) => {
    const prefix = new Float64Array(values.length + 1);
    values.forEach((value, i) => prefix[i + 1] = prefix[i]! + value);
    return prefix;
  });
  const { skips = [] } = times;
  checkSkips(skips, forward.length);
  return { count: forward.length, sums, send: Float64Array.from(send), skips };
}

/** What the stages of a cut cost. */
export function costsOfCut({ count, sums, send }: LayerSums, starts: readonly number[]): Costs {
  const ends = starts.map((_, stage) => starts[stage + 1] ?? count);
  const [forward, backward, input, weight, recompute] = sums.map((prefix) =>
    starts.map((start, stage) => Math.max(0, prefix[ends[stage]!]! - prefix[start]!))
  );
  // Parts of a backward must add up to it, whatever the rounding.
  const whole = input!.map((time, stage) => time + weight![stage]!);
  return {
    forward: forward!,
    backward: backward!.some((time, stage) => Math.abs(time - whole[stage]!) > 1e-9 * time)
      ? backward!
      : whole,
    input: input!,
    weight: weight!,
    recompute: recompute!,
    send: ends.map((end) => send[end - 1]!),
  };
}

/** Whether a stage may have the layers from one to before another, such as for its memory. */
export type Fits = (stage: number, from: number, to: number) => boolean;

/** A path, with what it takes at least from each stage and layer on. */
interface BoundedPath {
  readonly load: PathLoad;
  /** At index `stage * (layers + 1) + layer`, over all cuts of what is left. */
  readonly rest: Float64Array;
}

/** What a stage with some layers adds to a path, its message to the next stage included. */
function addedBy(
  { actions, messages }: PathLoad,
  { sums, send }: LayerSums,
  stage: number,
  from: number,
  to: number,
): number {
  let total = (messages[stage] ?? 0) * (send[to - 1] ?? 0);
  for (let kind = 0; kind < sums.length; kind++) {
    const times = actions[kind]![stage]!;
    if (times > 0) total += times * (sums[kind]![to]! - sums[kind]![from]!);
  }
  return total;
}

/** Bounds a path from below, by dynamic programming over all cuts. */
function boundPath(
  load: PathLoad,
  layers: LayerSums,
  stages: number,
  fits: Fits,
): BoundedPath {
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

/** A cut of the first layers: where its stages begin, and what each path takes up to there. */
interface PartialCut {
  readonly starts: readonly number[];
  readonly taken: Float64Array;
  /** What the longest path takes at least, all stages included. */
  readonly bound: number;
}

/** What a search may still do, in numbers that it looks at. */
export interface Work {
  left: number;
}

/**
 * The cut whose longest path is shortest, if that is shorter than `below`: by dynamic programming over
 * stages and layers that keeps every partial cut which no other one beats on all paths.
 *
 * @returns for each stage the index of its first layer; undefined where no cut stays below the bound,
 * or no work was left to find one.
 */
function cheapestCut(
  paths: readonly BoundedPath[],
  layers: LayerSums,
  { stages, fits, below, work }: {
    readonly stages: number;
    readonly fits: Fits;
    readonly below: number;
    readonly work: Work;
  },
): readonly number[] | undefined {
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
        const longer = partial.flatMap((cut) =>
          extend(cut, added, { paths, at: (stage + 1) * (count + 1) + to, from, below })
        );
        if (longer.length > 0) next.set(to, [...next.get(to) ?? [], ...longer]);
      }
    }
    for (const [to, found] of next) next.set(to, undominated(found, work));
    cuts = next;
  }
  return cuts.get(count)?.[0]?.starts;
}

/** A partial cut with one stage more; none where some path must come to the bound. */
function extend(
  { starts, taken }: PartialCut,
  added: readonly number[],
  { paths, at, from, below }: {
    readonly paths: readonly BoundedPath[];
    /** Where the rests of the paths are found. */
    readonly at: number;
    readonly from: number;
    readonly below: number;
  },
): PartialCut[] {
  const sum = new Float64Array(paths.length);
  let bound = 0;
  for (let i = 0; i < paths.length; i++) {
    sum[i] = taken[i]! + added[i]!;
    bound = Math.max(bound, sum[i]! + paths[i]!.rest[at]!);
    if (bound >= below) return [];
  }
  return [{ starts: [...starts, from], taken: sum, bound }];
}

/** Those that no other one beats or equals on all paths, the most promising first. */
function undominated(cuts: readonly PartialCut[], work: Work): PartialCut[] {
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
