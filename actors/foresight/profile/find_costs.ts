/**
 * Finds what a layer costs in a profile: as it was measured, or scaled from the nearest that was.
 *
 * @module
 */

import { factsKey, type LayerFacts } from "./layer_facts.ts";
import type { LayerCost, LoadCost, Profile } from "./profile.ts";

/** Milliseconds of a layer for one micro-batch. */
export interface FoundCost {
  readonly forwardMs: number;
  readonly backwardMs: number;
  readonly inputMs: number;
  readonly weightMs: number;
  readonly recomputeMs: number;
}

/** A record of numbers, each of them changed. */
export const mapNumbers = <T extends object>(
  all: T,
  change: (value: number, name: keyof T) => number,
): T =>
  Object.fromEntries(
    Object.entries(all).map(([name, value]) => [name, change(value, name as keyof T)]),
  ) as T;

/** Prepares the costs of a device. */
export function openCosts(profile: Profile, device: string) {
  const { optimizer, closing: { vote, norm, end }, loads = [] } = profile;
  const all = loads.length > 0 ? loads : [{ atOnce: 1, optimizer, vote, norm, end }];
  const sorted = all.toSorted((a, b) => a.atOnce - b.atOnce);
  return {
    ...openLayerCosts(profile.layers, device),
    /** Returns the costs of the end of a step while `atOnce` workers do it. */
    once: (atOnce: number): LoadCost =>
      sorted.find((one) => one.atOnce >= atOnce) ?? sorted.at(-1)!,
  };
}

/** Prepares the costs of layers alone. */
export function openLayerCosts(layers: readonly LayerCost[], device: string) {
  const known = new Map<string, FoundCost[]>(), scaled = new Set<string>();
  const ofDevice = layers.filter((one) => one.device === device);
  const loads = [...new Set(ofDevice.map(({ atOnce }) => atOnce))].sort((a, b) => a - b);
  const find = (facts: LayerFacts): FoundCost[] => {
    const key = `${facts.precision} ${factsKey(facts)}`, found = known.get(key);
    if (found) return found;
    const candidates = ofDevice.filter(({ kind, precision }) =>
      kind === facts.kind && precision === facts.precision
    );
    if (candidates.length === 0) throw unknown(layers, facts, device);
    const costs = loads.map((atOnce) => {
      const measured = candidates.filter((one) => one.atOnce === atOnce);
      return scaledTo(facts, nearest(facts, measured.length > 0 ? measured : candidates), scaled);
    });
    known.set(key, costs);
    return costs;
  };
  return {
    /** Descriptions of scaled costs, for the notes of a prediction. */
    scaled: scaled as ReadonlySet<string>,
    /** Whether costs depend on the number of workers that compute at the same time. */
    hasLoads: loads.length > 1,
    /**
     * Returns the cost of a layer. Between two measured loads costs are interpolated; beyond them
     * the last load counts.
     *
     * @throws {RangeError} when the profile has none of its kind.
     */
    layer: (facts: LayerFacts, atOnce: number): FoundCost => between(loads, find(facts), atOnce),
  };
}

/** A cost with halves of the backward where they were not measured apart. */
export function foundOf(cost: LayerCost): FoundCost {
  const { forwardMs, backwardMs, recomputeMs = forwardMs } = cost;
  const { weightMs = backwardMs / 2, inputMs = backwardMs - weightMs } = cost;
  return { forwardMs, backwardMs, inputMs, weightMs, recomputeMs };
}

/** How far the work of two layers is apart: 0 where it is the same. */
function distance(a: LayerFacts, b: LayerFacts): number {
  const apart = (x: number, y: number) => Math.abs(Math.log(Math.max(x, 1) / Math.max(y, 1)));
  return apart(a.forwardFlops, b.forwardFlops) + apart(a.backwardFlops, b.backwardFlops) +
    apart(a.parameters, b.parameters);
}

const nearest = (facts: LayerFacts, costs: readonly LayerCost[]): LayerCost =>
  costs.reduce((best, one) => distance(facts, one) < distance(facts, best) ? one : best);

/** A cost for another size, by floating-point operations; what is there says so. */
function scaledTo(facts: LayerFacts, cost: LayerCost, scaled: Set<string>): FoundCost {
  const ratio = (to: number, from: number) => to > 0 && from > 0 ? to / from : 1;
  const forward = ratio(facts.forwardFlops, cost.forwardFlops);
  const backward = ratio(facts.backwardFlops, cost.backwardFlops);
  if (distance(facts, cost) > 0) {
    const { kind, microBatch, recompute } = cost;
    scaled.add(
      `${kind}: ${forward.toPrecision(3)} times the forward and ${
        backward.toPrecision(3)
      } times the backward of ${microBatch} samples, recompute ${recompute}`,
    );
  }
  return mapNumbers(
    foundOf(cost),
    (ms, name) => (name === "forwardMs" || name === "recomputeMs" ? forward : backward) * ms,
  );
}

/** Costs between those of two loads. */
function between(loads: readonly number[], costs: readonly FoundCost[], atOnce: number): FoundCost {
  const above = loads.findIndex((load) => load >= atOnce);
  if (above <= 0) return costs.at(above)!;
  const low = loads[above - 1]!, share = (atOnce - low) / (loads[above]! - low);
  const [a, b] = [costs[above - 1]!, costs[above]!];
  return mapNumbers(a, (ms, name) => ms + share * (b[name] - ms));
}

function unknown(
  layers: readonly LayerCost[],
  { kind, precision }: LayerFacts,
  device: string,
): RangeError {
  const all = new Set(layers.map((one) => `${one.kind} (${one.device}, ${one.precision})`));
  return new RangeError(
    `Cannot predict: the profile must have the cost of ${kind} (${device}, ${precision}), ` +
      `received ${all.size === 0 ? "none" : [...all].join(", ")}`,
  );
}
