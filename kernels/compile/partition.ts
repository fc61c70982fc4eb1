/**
 * Cuts a model's layers into stages of nearly equal cost.
 *
 * @module
 */

import type { ModelProgram } from "./compile_model.ts";
import { skipsOf, skipValues } from "./skip_edges.ts";
import type { StageProgram } from "./stage_program.ts";

/**
 * The contiguous partition whose most expensive part is cheapest, and of those the one whose other
 * parts are most even (the sum of their squares is least), found by dynamic programming. Where a
 * worker has several stages, what is beside the most expensive one counts too.
 *
 * @param costs of the layers, embedding and head included.
 * @param parts number of stages.
 * @returns for each stage the index of its first layer; each stage has at least one layer.
 * @throws {RangeError} when there are fewer layers than stages.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { partition } from "@troupe/troupe/kernels";
 *
 * assert.deepEqual(partition([1, 10, 10, 10, 10, 4], 2), [0, 3]);
 * assert.deepEqual(partition([1, 1, 1, 1, 4], 3), [0, 2, 4]);
 * assert.throws(() => partition([1, 2], 3), RangeError);
 * ```
 */
export function partition(costs: readonly number[], parts: number): number[] {
  return evenest(costs, parts, () => 0);
}

/** What a part costs besides its layers, from `first` to before `end`. */
type MoreCost = (first: number, end: number) => number;

function evenest(costs: readonly number[], parts: number, more: MoreCost): number[] {
  if (!Number.isSafeInteger(parts) || parts < 1 || parts > costs.length) {
    throw new RangeError(
      `Cannot cut the model into ${parts} stages: the number of stages must be between 1 and its ${costs.length} layers`,
    );
  }
  const { least } = cut(costs, parts, more, Math.max);
  return cut(costs, parts, more, (sum, part) => part <= least ? sum + part ** 2 : Infinity).starts;
}

/**
 * The cut for which a figure of its parts is least, the earliest of several.
 *
 * @param join the figure with one part more; that of no parts is 0.
 */
function cut(
  costs: readonly number[],
  parts: number,
  more: MoreCost,
  join: (figure: number, part: number) => number,
): { readonly least: number; readonly starts: number[] } {
  const prefix = [0];
  for (const cost of costs) prefix.push(prefix.at(-1)! + cost);
  // figures[n] for the current number of parts: the least over the first n layers.
  let figures = prefix.map((_, n) => n === 0 ? 0 : Infinity);
  const cuts: number[][] = [];
  for (let part = 1; part <= parts; part++) {
    const next = prefix.map(() => Infinity), starts = prefix.map(() => part - 1);
    for (let n = part; n <= costs.length; n++) {
      for (let first = n - 1; first >= part - 1; first--) {
        const own = prefix[n]! - prefix[first]!;
        // What begins earlier still costs more by itself.
        const alone = join(0, own);
        if (alone > next[n]! || alone === Infinity) break;
        const figure = join(figures[first]!, own + more(first, n));
        if (figure <= next[n]!) [next[n], starts[n]] = [figure, first];
      }
    }
    cuts.push(starts);
    figures = next;
  }
  const starts: number[] = [];
  for (let n = costs.length; cuts.length > 0;) starts.unshift(n = cuts.pop()![n]!);
  return { least: figures.at(-1)!, starts };
}

/**
 * Where a model is cut: as its layout says, or into stages of nearly equal cost, that of what they
 * send and get over skip edges with it.
 */
export function startsOf(model: ModelProgram, stages: number): readonly number[] {
  const { starts, costs } = model;
  if (starts) return starts;
  const values = skipValues(model);
  return evenest(costs, stages, (first, end) => {
    let bytes = 0;
    for (const { maker, users, travels } of values) {
      const isMade = maker >= first && maker < end;
      const crosses = isMade
        ? users.some((user) => user >= end)
        : maker < first && users.some((user) => user >= first && user < end);
      if (crosses) bytes += travels;
    }
    return FLOPS_PER_BYTE * bytes;
  });
}

/**
 * What a core multiplies and adds while a byte is copied from a stage, sent, and copied to another one:
 * 100 Gflop/s beside some 6 GB/s. A cut depends on no machine, as its bits are kept.
 */
const FLOPS_PER_BYTE = 16;

/**
 * Cuts a model into stages: those of its layout, or of nearly equal cost.
 *
 * @throws {RangeError} when the model has fewer layers than stages are asked for.
 */
export function cutIntoStages(model: ModelProgram, stages: number): StageProgram[] {
  const starts = startsOf(model, stages), skips = skipsOf(model, starts);
  return starts.map((start, i) => {
    const layers = model.layers.slice(start, starts[i + 1] ?? model.layers.length);
    const used = [...new Set(layers.flatMap(({ program, slices = [program] }) => slices))];
    const own = (program: number) => used.indexOf(program);
    return {
      programs: used.map((index) => model.programs[index]!),
      layers: layers.map((layer) => ({
        ...layer,
        program: own(layer.program),
        ...layer.slices && { slices: layer.slices.map(own) },
      })),
      ...model.slicing && { slicing: model.slicing },
      ...skips[i]!.length > 0 && { skips: skips[i]! },
    };
  });
}
