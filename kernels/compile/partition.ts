/**
 * Cuts a model's layers into stages of nearly equal cost.
 *
 * @module
 */

import type { ModelProgram } from "./compile_model.ts";
import type { StageProgram } from "./stage_program.ts";

/**
 * The contiguous partition whose most expensive part is cheapest, found by dynamic programming.
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
 * assert.throws(() => partition([1, 2], 3), RangeError);
 * ```
 */
export function partition(costs: readonly number[], parts: number): number[] {
  if (!Number.isSafeInteger(parts) || parts < 1 || parts > costs.length) {
    throw new RangeError(
      `Cannot cut the model into ${parts} stages: the number of stages must be between 1 and its ${costs.length} layers`,
    );
  }
  const prefix = [0];
  for (const cost of costs) prefix.push(prefix.at(-1)! + cost);
  const total = (from: number, to: number) => prefix[to]! - prefix[from]!;
  // best[n] for the current number of parts: the lowest maximum over the first n layers.
  let best = costs.map((_, i) => total(0, i + 1));
  best.unshift(Infinity);
  const cuts: number[][] = [];
  for (let part = 2; part <= parts; part++) {
    const next = best.map(() => Infinity), cut = best.map(() => 0);
    for (let n = part; n <= costs.length; n++) {
      for (let first = part - 1; first < n; first++) {
        const worst = Math.max(best[first]!, total(first, n));
        if (worst < next[n]!) [next[n], cut[n]] = [worst, first];
      }
    }
    cuts.push(cut);
    best = next;
  }
  const starts = [];
  for (let n = costs.length; cuts.length > 0;) starts.unshift(n = cuts.pop()![n]!);
  return [0, ...starts];
}

/**
 * Cuts a model into stages of nearly equal cost.
 *
 * @throws {RangeError} when the model has fewer layers than stages are asked for.
 */
export function cutIntoStages(model: ModelProgram, stages: number): StageProgram[] {
  const starts = partition(model.costs, stages);
  return starts.map((start, i) => {
    const layers = model.layers.slice(start, starts[i + 1] ?? model.layers.length);
    const used = [...new Set(layers.map(({ program }) => program))];
    return {
      programs: used.map((index) => model.programs[index]!),
      layers: layers.map((layer) => ({ ...layer, program: used.indexOf(layer.program) })),
    };
  });
}
