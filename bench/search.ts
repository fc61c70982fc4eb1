/**
 * Compares `search` with the best schedule by rule: even and uneven stages, slow links, little memory.
 *
 *     deno run -A bench/search.ts
 */

import { ifServed } from "../schedules/internal.ts";
import {
  analyze,
  assertValid,
  type Costs,
  createSchedule,
  makespanLowerBound,
  scheduleDefinitions,
  withLists,
} from "../schedules/mod.ts";

/** Costs of 2P slices of the model. */
function slices(workers: number, cost: (slice: number) => number): number[] {
  return Array.from({ length: 2 * workers }, (_, slice) => cost(slice));
}

/** The costs of contests, by their label. */
function costsOf(workers: number): Readonly<Record<string, Costs>> {
  const even = { forward: 1, input: 1, weight: 1 };
  const heavy = slices(workers, (slice) => slice === 2 * workers - 1 ? 1 : 0.5);
  const ragged = slices(workers, (slice) => 0.4 + 0.1 * ((slice * 7) % 4));
  return {
    even,
    "heavy last slice": { forward: heavy, input: heavy, weight: heavy },
    "ragged slices": { forward: ragged, input: ragged, weight: ragged.map((time) => 0.8 * time) },
    "slow links": { ...even, send: 0.5 },
    "very slow links": { ...even, send: 2 },
    "long input parts": { forward: 1, input: 1.4, weight: 0.7 },
  };
}

/** Returns all contests: costs, a size and a limit of memory. */
export function contests() {
  const sizes = [[4, 8, 3], [4, 8, 4], [4, 8, 8], [4, 16, 3], [8, 16, 6]] as const;
  return sizes.flatMap(([workers, microBatches, activationLimit]) =>
    Object.entries(costsOf(workers)).map(([label, costs]) => (
      { label, workers, microBatches, activationLimit, costs }
    ))
  );
}

type Contest = ReturnType<typeof contests>[number];

/** Returns the best schedule by rule with one copy of the model and within the limit of activations. */
function bestByRule({ workers, microBatches, activationLimit, costs }: Contest) {
  let best = { name: "none", makespan: Infinity };
  for (const { name, create } of scheduleDefinitions) {
    if (name === "search") continue;
    const analysis = ifServed(() => analyze(create({ workers, microBatches }), costs));
    if (!analysis) continue;
    const { schedule, makespan, peakActivations, weights } = analysis;
    if (schedule.workers !== workers || Math.max(...weights) > 1) continue;
    if (Math.max(...peakActivations) > activationLimit) continue;
    if (makespan < best.makespan) best = { name, makespan };
  }
  return best;
}

/**
 * Holds a contest.
 *
 * @returns the best schedule by rule, the time and the most activations of a worker of the search, and
 * the lower bound of all orders of its placement.
 * @throws if the search's schedule is not valid.
 */
export function hold(contest: Contest) {
  const { label, workers, microBatches, activationLimit, costs } = contest;
  const schedule = createSchedule("search", { workers, microBatches, activationLimit, costs });
  assertValid(withLists(schedule));
  const { makespan, peakActivations } = analyze(schedule, costs);
  return {
    where: `${label}, P = ${workers}, N = ${microBatches}, at most ${activationLimit} activations`,
    rule: bestByRule(contest),
    makespan,
    peak: Math.max(...peakActivations),
    bound: makespanLowerBound(schedule, costs, activationLimit),
  };
}

/** Outcomes as lines: the time of the rule, of the search, of the bound, and the gap to that. */
export function searchTable(outcomes: readonly ReturnType<typeof hold>[]): string {
  return outcomes.map(({ where, rule, makespan, bound }) =>
    `${where.padEnd(58)} ${rule.name.padEnd(14)} ${rule.makespan.toFixed(2).padStart(7)}  search ` +
    `${makespan.toFixed(2).padStart(7)}  bound ${bound.toFixed(2).padStart(7)}  gap ` +
    `${Math.max(0, 100 * (makespan / bound - 1)).toFixed(1).padStart(4)} %` +
    (makespan < rule.makespan - 1e-6 ? "  better" : "")
  ).join("\n");
}

if (import.meta.main) {
  // deno-lint-ignore no-console -- the output of the benchmark
  console.log(searchTable(contests().map(hold)));
}
