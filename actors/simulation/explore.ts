/**
 * Many runs of one scenario, each judged.
 *
 * @module
 */

import { digestOf } from "./digest.ts";
import type { SimulationFailure } from "./failure.ts";
import type { StepRecord } from "./journal/recorder.ts";
import { simulate } from "./simulate.ts";
import type { Run, Scenario, SimulateOptions } from "./simulated_run.ts";
import { portfolio } from "./strategies/portfolio.ts";
import { FIRST_EXPECTED_STEPS, type Strategy } from "./strategies/strategy.ts";

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
  const { seed = 0, runs = DEFAULT_RUNS, mustAgree = false } = options;
  const strategy = options.strategy ?? portfolio();
  const judge = await judgeOf(options, scenario, mustAgree);
  const hashes = new Set<string>();
  let steps = 0, done = 0, expectedSteps = FIRST_EXPECTED_STEPS;
  for (let run = 0; run < runs; run++) {
    // A strategy that has nothing left says so before the run.
    const runSeed = strategy.isExhaustive ? seed : seed + run;
    if (!strategy.begin({ seed: runSeed, run, expectedSteps })) break;
    const begun = begunAlready(strategy);
    const outcome = await judge({ seed: runSeed, strategy: begun });
    done++;
    steps += outcome.steps;
    expectedSteps = begun.choices;
    hashes.add(outcome.hash);
    const { failure } = outcome;
    if (failure) {
      return { runs: done, steps, distinct: hashes.size, failed: { ...outcome, failure } };
    }
  }
  return { runs: done, steps, distinct: hashes.size };
}

/** A strategy whose run has begun, and the choices that it was asked for since. */
export function begunAlready(strategy: Strategy): Strategy & { readonly choices: number } {
  let choices = 0;
  return {
    ...strategy.isExhaustive && { isExhaustive: true },
    begin: () => true,
    get choices() {
      return choices;
    },
    get name() {
      return strategy.name;
    },
    get deviations() {
      return strategy.deviations;
    },
    choose(candidates, step, state, timer) {
      choices++;
      return strategy.choose(candidates, step, state, timer);
    },
    end: (state: () => number) => strategy.end?.(state),
  };
}

/** Makes one run and says what is wrong with it, also in comparison with others. */
export type Judge = (change: Partial<SimulateOptions<never>>) => Promise<Run>;

/** The judge of a scenario. */
export async function judgeOf<T, C>(
  options: ExploreOptions<C>,
  scenario: Scenario<T, C>,
  mustAgree: boolean,
): Promise<Judge> {
  const play = (change: object) => simulate({ ...options, ...change } as typeof options, scenario);
  let agreed: { readonly value: unknown; readonly digest: string } | undefined;
  if (mustAgree) {
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
    const message = `plain order gave ${Deno.inspect(agreed.value)}, ` +
      `this order ${Deno.inspect(run.value)}`;
    const { steps } = run;
    return {
      ...run,
      failure: { kind: "invariant", name: "agreement", message, step: steps, waits: [] },
    };
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
  const same = { ...change, strategy: undefined, deviations, faults };
  const second = await play(same);
  if (second.hash === first.hash) return compareValues(first, second);
  const [one, other] = [await record(play, same), await record(play, same)];
  const step = one.findIndex(({ hash }, n) => hash !== other[n]?.hash);
  const [a, b] = [one[step], other[step]];
  const message = a && b
    ? `two runs of the same order differ first at step ${step}: ${describe(a)}, then ${describe(b)}`
    : "two runs of the same order differ";
  return { kind: "diverged", name: "Diverged", message, step: Math.max(0, step), waits: [] };
}

/** The same steps must come to the same end: what the scenario returned or how it failed. */
function compareValues(first: Run, second: Run): SimulationFailure | undefined {
  const ends = [first, second].map(({ value, failure }) => failure ? { failure } : { value });
  if (digestOf(ends[0]) === digestOf(ends[1])) return undefined;
  const [one, other] = [first, second].map(({ value, failure }) =>
    failure ? failure.message : Deno.inspect(value)
  );
  const message = `two runs of the same order return ${one}, then ${other}`;
  return { kind: "diverged", name: "Diverged", message, step: first.steps, waits: [] };
}

async function record(play: (change: object) => Promise<Run>, change: object) {
  const steps: StepRecord[] = [];
  await play({ ...change, onStep: (step: StepRecord) => void steps.push(step) });
  return steps;
}

function describe({ actor, from, type, name, payload }: StepRecord): string {
  return `${actor} < ${from} ${type}${name ? ` (${name})` : ""} ${payload}`;
}
