/**
 * Many checked runs of one scenario.
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
import { assertInput } from "../runtime/types.ts";

/**
 * Options of {@linkcode explore}.
 *
 * @typeParam C configuration of the scenario.
 */
export interface ExploreOptions<C = undefined> extends Omit<SimulateOptions<C>, "start"> {
  /** Maximum number of runs; run r has the seed `seed + r`, unless the strategy is exhaustive. Default
   * 100. */
  readonly runs?: number;
  /** True if each run is repeated and must have the same running hash and result. Default true. */
  readonly isRepeated?: boolean;
  /** True if all runs must have the result of FIFO order without faults. Default false. */
  readonly mustAgree?: boolean;
}

/** Default of {@linkcode ExploreOptions.runs}. */
const DEFAULT_RUNS = 100;

/** The result of an exploration. */
export interface Exploration {
  /** Number of runs, without repetitions. */
  readonly runs: number;
  /** Number of steps in these runs. */
  readonly steps: number;
  /** Number of distinct running hashes, and so of different runs. */
  readonly distinct: number;
  /** The first failed run, with its failure. */
  readonly failed?: Run & { readonly failure: SimulationFailure };
}

/**
 * Runs a scenario many times, each time in another order, until it fails or the strategy has no more
 * orders.
 *
 * @param options strategy (default {@linkcode portfolio}), number of runs, and checks.
 * @param scenario spawns actors, sends messages and adds checks.
 * @returns the result, including a failure, which is not thrown.
 *
 * @example Every order of three messages
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
  assertInput(runs >= 1, "Cannot explore: runs must be at least 1", runs);
  const play = await checkedRuns(options, scenario);
  const hashes = new Set<string>();
  let steps = 0, done = 0, expectedSteps = FIRST_EXPECTED_STEPS;
  for (let run = 0; run < runs; run++) {
    // An exhausted strategy returns false before the run.
    const runSeed = strategy.isExhaustive ? seed : seed + run;
    if (!strategy.begin({ seed: runSeed, run, expectedSteps })) break;
    const outcome = await play({ seed: runSeed, strategy, start: "begun" });
    done++;
    steps += outcome.steps;
    expectedSteps = outcome.choices;
    hashes.add(outcome.hash);
    const found = { runs: done, steps, distinct: hashes.size }, { failure } = outcome;
    if (failure) return { ...found, failed: { ...outcome, failure } };
  }
  return { runs: done, steps, distinct: hashes.size };
}

/** Makes a checked run, which also fails if it differs from other runs. */
export type CheckedRun = (change: Partial<SimulateOptions<never>>) => Promise<Run>;

/** Returns a function that makes checked runs of a scenario. */
export async function checkedRuns<T, C>(
  options: ExploreOptions<C>,
  scenario: Scenario<T, C>,
): Promise<CheckedRun> {
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
    // A pruned run has no result.
    if (!agreed || !("value" in run) || digestOf(run.value) === agreed.digest) return run;
    const gave = `FIFO order gave ${Deno.inspect(agreed.value)}`;
    const error = named("agreement", `${gave}, this order ${Deno.inspect(run.value)}`);
    return { ...run, failure: failureOf("invariant", error, run.steps) };
  };
}

/** Repeats a run and finds the first difference. */
async function compare(
  first: Run,
  play: (change: object) => Promise<Run>,
  change: object,
): Promise<SimulationFailure | undefined> {
  // A pruned run would continue when it is repeated.
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

/** Compares the results or failures of two runs with equal steps. */
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

/** Makes a run and returns its steps. */
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
