/**
 * A profile from what was measured.
 *
 * @module
 */

import { median } from "../profile/median.ts";
import type { LayerCost, LinearCost, LoadCost, Spread } from "../profile/profile.ts";
import { addTimes, type LayerTimes, type LoadTimes, type ProbedModel } from "./probe_layers.ts";
import type { TimedSum } from "./probe.ts";

/** What is the same of all layers that were measured. */
export interface MeasuredFacts {
  readonly device: string;
  readonly sizes: Readonly<Record<string, number>>;
  readonly models: readonly Pick<ProbedModel, "microBatch" | "recompute">[];
}

/** What layers cost, from any number of rounds. */
export function layerCosts(
  rounds: readonly LoadTimes[],
  { device, sizes, models }: MeasuredFacts,
): LayerCost[] {
  const grouped = new Map<string, { times: LoadTimes; layers: Map<string, LayerTimes> }>();
  for (const times of rounds) {
    const key = `${times.model} ${times.atOnce}`;
    const group = grouped.get(key) ?? { times, layers: new Map() };
    for (const { facts, sums } of times.layers.values()) addTimes(group.layers, facts, sums);
    grouped.set(key, group);
  }
  return [...grouped.values()].flatMap(({ times: { model, atOnce }, layers }) =>
    [...layers.values()].flatMap(({ facts, sums }): LayerCost[] => {
      if (sums.F.runs === 0 || sums.B.runs === 0) return [];
      const { microBatch, recompute } = models[model]!;
      return [{
        ...facts,
        ...{ sizes, microBatch, device, recompute, atOnce },
        forwardMs: meanOf(sums.F),
        backwardMs: meanOf(sums.B),
        // The first layer has no gradient of its input to give: its W is its whole backward.
        ...sums.W.runs > 0 && { inputMs: meanOf(sums.I), weightMs: meanOf(sums.W) },
      }];
    })
  );
}

const meanOf = ({ runs, ms }: TimedSum) => runs === 0 ? 0 : ms / runs;

/** What is done once a step, for each load. */
export function loadCosts(rounds: readonly LoadTimes[]): LoadCost[] {
  return [...new Set(rounds.map(({ atOnce }) => atOnce))].map((atOnce) => {
    const all = rounds.filter((one) => one.atOnce === atOnce).flatMap(({ closing }) => closing);
    const millions = all.reduce((sum, { parameters }) => sum + parameters, 0) / 1e6;
    const costOf = (pick: (one: typeof all[number]) => number): LinearCost => ({
      ms: 0,
      msPerMillion: millions === 0 ? 0 : all.reduce((sum, one) => sum + pick(one), 0) / millions,
    });
    return {
      atOnce,
      optimizer: costOf(({ optimizerMs }) => optimizerMs),
      vote: costOf(({ voteMs }) => voteMs),
      norm: costOf(({ normMs }) => normMs),
      end: costOf(({ endMs }) => endMs),
    };
  });
}

/** Returns the spread of the forwards of the first stage, for each model and load. */
export function spreads(
  rounds: readonly LoadTimes[],
  models: MeasuredFacts["models"],
): Spread[] {
  const groups = Object.groupBy(rounds, ({ model, atOnce }) => `${model} ${atOnce}`);
  return Object.values(groups).map((group) => {
    const { model, atOnce } = group![0]!, { microBatch, recompute } = models[model]!;
    const sorted = group!.flatMap(({ actions }) => actions[0]!.F).sort((a, b) => a - b);
    const at = (share: number) => sorted[Math.floor(share * (sorted.length - 1))]!;
    const shares = group!.flatMap(({ cpuShare }) => cpuShare ?? []);
    return {
      ...{ microBatch, recompute, atOnce },
      ...{ p10Ms: at(0.1), medianMs: median(sorted), p90Ms: at(0.9) },
      ...shares.length > 0 && { cpuShare: median(shares) },
    };
  });
}

/** Less of the cores than this is more than what a quiet machine does beside. */
const CPU_SHARE_MIN = 0.9;

/** Says that other programs computed meanwhile, if they did. */
export function loadNotes(spread: readonly Spread[]): string[] {
  const least = Math.min(...spread.map(({ cpuShare = 1 }) => cpuShare));
  if (least >= CPU_SHARE_MIN) return [];
  const percent = (100 * (1 - least)).toFixed(0);
  return [
    `other programs took up to ${percent} % of the cores while this was measured, so costs are too high: end them, and measure again`,
  ];
}

/** The durations of each kind of action, of each stage and round. */
export const actionTimes = (rounds: readonly LoadTimes[]): (readonly number[])[] =>
  rounds.flatMap(({ actions }) => actions.flatMap((kinds) => Object.values(kinds)));
