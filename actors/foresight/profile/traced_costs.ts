/**
 * What the stages of a run cost by the profile of a trace: those of the traced run where they are the
 * same, else their share of its time by estimated work.
 *
 * @module
 */

import { type FoundCost, foundOf, mapNumbers } from "./find_costs.ts";
import { STAGE_KIND } from "./from_trace.ts";
import type { LayerFacts } from "./layer_facts.ts";
import type { LayerCost, Profile } from "./profile.ts";

/** Shares of the work that differ by less are the same. */
const SAME_SHARE = 1e-6;

/**
 * Returns the costs of stages, with a description of those that were scaled.
 *
 * @param stages the facts of the layers of each.
 * @param microBatch samples of a micro-batch, where known.
 * @throws {RangeError} when the profile has no stages.
 */
export function tracedCosts(
  { layers }: Profile,
  stages: readonly (readonly LayerFacts[])[],
  microBatch: number | undefined,
): { readonly stages: readonly FoundCost[]; readonly scaled: readonly string[] } {
  const traced = layers.filter(({ kind }) => kind === STAGE_KIND), [first] = traced;
  if (!first) {
    throw new RangeError("Cannot predict: the profile of a trace must have stages, received none");
  }
  const works = stages.map((facts) =>
    facts.reduce((sum, one) => sum + one.forwardFlops + one.backwardFlops, 0)
  );
  const work = works.reduce((sum, one) => sum + one, 0), shares = works.map((one) => one / work);
  const samples = microBatch === undefined ? 1 : microBatch / first.microBatch;
  const isSame = traced.length === stages.length &&
    traced.every((one, i) => Math.abs(one.forwardFlops - shares[i]!) < SAME_SHARE);
  const all = sumOf(traced);
  return {
    stages: shares.map((share, i) =>
      isSame ? times(foundOf(traced[i]!), samples) : times(all, samples * share)
    ),
    scaled: [
      ...isSame ? [] : [`${stages.length} stages by their work, from ${traced.length} of a trace`],
      ...samples === 1 ? [] : [`${microBatch} samples from ${first.microBatch} of a trace`],
    ],
  };
}

const sumOf = (costs: readonly LayerCost[]): FoundCost =>
  costs.map(foundOf).reduce((a, b) => mapNumbers(a, (ms, name) => ms + b[name]));

const times = (cost: FoundCost, factor: number): FoundCost => mapNumbers(cost, (ms) => factor * ms);
