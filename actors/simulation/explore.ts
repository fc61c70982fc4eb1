/**
 * Many runs of one scenario, each judged.
 *
 * @module
 */

import { digestOf } from "./digest.ts";
import { stepName, type StepRecord } from "./recorder.ts";
import {
  failureOf,
  type Run,
  type Scenario,
  type SimulateOptions,
  type SimulationFailure,
} from "./run.ts";
import { simulate } from "./simulate.ts";
import { FIRST_EXPECTED_STEPS, portfolio } from "./strategies.ts";
import { named } from "./faults.ts";

/**
 * How a scenario is explored.
 *
 * @typeParam C what the scenario is configured with.
 */
export interface ExploreOptions<C = undefined> extends Omit<SimulateOptions<C>, "start"> {
  /** Most runs; run r has the seed `seed + r`, unless the strategy is exhaustive. Default {@linkcode DEFAULT_RUNS}. */
  readonly runs?: number;
  /** Whether each run is made twice, and must have the same running hash and return the same.
   * Default true. */
  readonly isRepeated?: boolean;
  /** Whether all runs must return the same as the one in plain order without faults. Default
   * false. */
  readonly mustAgree?: boolean;
}

/** Default of {@linkcode ExploreOptions.runs}. */
export const DEFAULT_RUNS = 100;

/** What an exploration found. */
export interface Exploration {
  /** Runs made, repetitions not counted. */
  readonly runs: number;
  /** Steps of these runs. */
  readonly steps: number;
  /** Distinct running hashes: how many different runs they were. */
  readonly distinct: number;
  /** The first run that failed, and its failure. */
  readonly failed?: Run & { readonly failure: SimulationFailure };
}

/**
 * Plays a scenario many times, each time in another order, until it fails or the strategy has
 * nothing left.
 *
 * @param options strategy (default {@linkcode portfolio}), number of runs, and what must hold.
 * @param scenario what happens.
 * @returns what was found; a failure is part of that and not thrown.
 *
 * @example Every order there is, of two messages
 * ```ts
 * import { dfs, explore } from "@troupe/troupe/testing";
 * import assert from "node:assert/strict";
 *
 * const module = `data:text/javascript,export const sum = (ctx) => {
 *   let sum = 0;
 *   ctx.expose(() => sum);
 *   return { Add({ by }) { sum = Math.fround(sum + by); }, Read() { ctx.reply(sum); } };
 * };
 * export const sender = (ctx, { to, by }) => {
 *   ctx.expose(() => 0);
 *   return { Go() { ctx.send(to, { type: "Add", by }); } };
 * };`;
 * const strategy = dfs();
 * const { runs, failed } = await explore(
 *   { strategy, mustAgree: true },
 *   async ({ system, settle, idle }) => {
 *     const to = system.spawn({ module, export: "sum" }, undefined, { id: "sum" });
 *     const senders = [1e8, 1, -1e8].map((by) =>
 *       system.spawn({ module, export: "sender" }, { to, by }, { id: `sender of ${by}` })
 *     );
 *     await settle();
 *     for (const sender of senders) system.send(sender, { type: "Go" });
 *     await idle();
 *     return await system.ask(to, { type: "Read" });
 *   },
 * );
 * assert.ok(runs > 1);
 * assert.equal(failed?.failure.name, "agreement");
 * ```
 */
export async function explore<T, C = undefined>(
  options: ExploreOptions<C>,
  scenario: Scenario<T, C>,
): Promise<Exploration> {
  const { seed = 0, runs = DEFAULT_RUNS, strategy = portfolio() } = options;
  const judge = await judgeOf(options, scenario);
  const hashes = new Set<string>();
  let steps = 0, done = 0, expectedSteps = FIRST_EXPECTED_STEPS;
  for (let run = 0; run < runs; run++) {
    // A strategy that has nothing left says so before the run.
    const runSeed = strategy.isExhaustive ? seed : seed + run;
    if (!strategy.begin({ seed: runSeed, run, expectedSteps })) break;
    const outcome = await judge({ seed: runSeed, strategy, start: "begun" });
    done++;
    steps += outcome.steps;
    expectedSteps = outcome.choices;
    hashes.add(outcome.hash);
    const found = { runs: done, steps, distinct: hashes.size }, { failure } = outcome;
    if (failure) return { ...found, failed: { ...outcome, failure } };
  }
  return { runs: done, steps, distinct: hashes.size };
}

/** Makes one run and says what is wrong with it, also in comparison with others. */
export type Judge = (change: Partial<SimulateOptions<never>>) => Promise<Run>;

/** The judge of a scenario. */
export async function judgeOf<T, C>(
  options: ExploreOptions<C>,
  scenario: Scenario<T, C>,
): Promise<Judge> {
  const play = (change: object) => simulate({ ...options, ...change } as typeof options, scenario);
  let agreed: { readonly value: unknown; readonly digest: string } | undefined;
  if (options.mustAgree) {
    const { strategy: _, deviations: __, faults: ___, ...rest } = options;
    const { value, failure } = await simulate<T, C>(rest as SimulateOptions<C>, scenario);
    if (!failure) agreed = { value, digest: digestOf(value) };
  }
  return async (change) => {
    const run = await play(change);
    if (run.failure) return run;
    const failure = (options.isRepeated ?? true) ? await compare(run, play, change) : undefined;
    if (failure) return { ...run, failure };
    // A run that was cut short returned nothing.
    if (!agreed || !("value" in run) || digestOf(run.value) === agreed.digest) return run;
    const gave = `plain order gave ${Deno.inspect(agreed.value)}`;
    const error = named("agreement", `${gave}, this order ${Deno.inspect(run.value)}`);
    return { ...run, failure: failureOf("invariant", error, run.steps) };
  };
}

/** Runs once more, and finds where the two runs differ first. */
async function compare(
  first: Run,
  play: (change: object) => Promise<Run>,
  change: object,
): Promise<SimulationFailure | undefined> {
  // A run that was cut short goes on when it is made again.
  if (!("value" in first)) return undefined;
  const { deviations, faults } = first;
  const same = { ...change, deviations, faults };
  const second = await play(same);
  if (second.hash === first.hash) return compareValues(first, second);
  const one = await stepsOf(play, same), other = await stepsOf(play, same);
  const step = one.findIndex(({ hash }, n) => hash !== other[n]?.hash);
  const [a, b] = [one[step], other[step]];
  const where = a && b ? ` first at step ${step}: ${describe(a)}, then ${describe(b)}` : "";
  return diverged(`differ${where}`, Math.max(0, step));
}

/** The same steps must come to the same end: what the scenario returned or how it failed. */
function compareValues(first: Run, second: Run): SimulationFailure | undefined {
  const ends = [first, second].map(({ value, failure }) => failure ? { failure } : { value });
  if (digestOf(ends[0]) === digestOf(ends[1])) return undefined;
  const [one, other] = [first, second].map(({ value, failure }) =>
    failure ? failure.message : Deno.inspect(value)
  );
  return diverged(`return ${one}, then ${other}`, first.steps);
}

const diverged = (how: string, step: number) =>
  failureOf("diverged", named("Diverged", `two runs of the same order ${how}`), step);

/** Makes a run; returns its steps. */
export async function stepsOf(
  play: (change: object) => Promise<Run>,
  change: object,
): Promise<StepRecord[]> {
  const steps: StepRecord[] = [];
  await play({ ...change, onStep: (step: StepRecord) => void steps.push(step) });
  return steps;
}

const describe = (step: StepRecord) =>
  `${stepName(step)}${step.name ? ` (${step.name})` : ""} ${step.payload}`;
