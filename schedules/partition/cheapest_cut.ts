/** The cut of a model's layers whose longest path, of some, is shortest. */

import type { PathLoad } from "./critical_path.ts";
import type { LayerSums } from "./layer_times.ts";

/** Whether a stage may have the layers from one to before another, such as for its memory. */
export type Fits = (stage: number, from: number, to: number) => boolean;

/** A path, with what it takes at least from each stage and layer on. */
export interface BoundedPath {
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
export function boundPath(
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
export function cheapestCut(
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
