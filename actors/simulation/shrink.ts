/**
 * Makes a failing run small: a smaller configuration, fewer faults, a shorter run, fewer
 * deviations from plain order.
 *
 * @module
 */

import { type ExploreOptions, type Judge, judgeOf, stepsOf } from "./explore.ts";
import type { Fault } from "./faults.ts";
import type { StepRecord } from "./recorder.ts";
import { classOf, looseClassOf, type Run, type Scenario, type SimulationFailure } from "./run.ts";
import { simulate } from "./simulate.ts";
import {
  delay,
  describeCandidate,
  deviate,
  type Deviation,
  portfolio,
  replayOf,
  type Strategy,
} from "./strategies.ts";

/**
 * The fewest items with which a test still fails, in the sense that leaving out any one of those
 * left makes it pass. Zeller, Hildebrandt: Simplifying and Isolating Failure-Inducing Input, IEEE
 * TSE 28(2), 2002, section 3.
 *
 * @param items with all of them the test fails.
 * @param fails says whether the test fails with some of them, in the same order; undefined: there
 * is no more time, and the best so far is good enough.
 *
 * @example
 * ```ts
 * import { ddmin } from "@troupe/troupe/testing";
 * import assert from "node:assert/strict";
 *
 * const items = Array.from({ length: 100 }, (_, n) => n);
 * const fails = (some: readonly number[]) => Promise.resolve(some.includes(7) && some.includes(93));
 * assert.deepEqual(await ddmin(items, fails), [7, 93]);
 * ```
 */
export async function ddmin<T>(
  items: readonly T[],
  fails: (some: readonly T[]) => Promise<boolean | undefined>,
): Promise<readonly T[]> {
  let best = items, parts = 2;
  if (await fails([])) return [];
  while (best.length >= 2) {
    const size = Math.ceil(best.length / parts);
    let found: readonly T[] | undefined, isOutOfTime = false;
    for (let start = 0; start < best.length && !found; start += size) {
      for (const some of tries(best, start, size, parts)) {
        const answer = await fails(some);
        isOutOfTime ||= answer === undefined;
        if (answer) {
          found = some;
          break;
        }
      }
    }
    if (found) {
      parts = found.length <= size ? 2 : Math.max(2, parts - 1);
      best = found;
    } else if (isOutOfTime || parts >= best.length) return best;
    else parts = Math.min(best.length, 2 * parts);
  }
  return best;
}

/** A part alone, and everything but that part. */
function tries<T>(items: readonly T[], start: number, size: number, parts: number) {
  const alone = items.slice(start, start + size);
  const rest = [...items.slice(0, start), ...items.slice(start + size)];
  // Of two halves each is the rest of the other.
  return parts === 2 ? [alone] : [alone, rest];
}

/** How a failing run is made smaller. */
export interface ShrinkOptions<C = undefined> extends ExploreOptions<C> {
  /** Smaller configurations to try, the smallest first. */
  readonly smaller?: (configuration: C) => readonly C[];
  /** Most runs. Default {@linkcode SHRINK_RUNS}. */
  readonly shrinkRuns?: number;
  /** Most real milliseconds. Default {@linkcode SHRINK_MS}. */
  readonly shrinkMs?: number;
}

/** Default of {@linkcode ShrinkOptions.shrinkRuns}. */
export const SHRINK_RUNS = 20_000;

/** Default of {@linkcode ShrinkOptions.shrinkMs}. */
export const SHRINK_MS = 50_000;

/** Runs in which a smaller configuration must show the failure. */
const CONFIGURATION_RUNS = 50;

/** Most messages that are late, and runs for each number of them, in the search for a failure
 * close to plain order. */
const MAX_DELAYS = 3, DELAY_RUNS = 200;

/** A run that failed. */
export type FailedRun = Run & { readonly failure: SimulationFailure };

/** A failing run made small. */
export interface Shrunk<C = undefined> {
  /** The small run, of the same class of failure. */
  readonly run: FailedRun;
  /** Its configuration. */
  readonly configuration: C;
  /** Its steps. */
  readonly steps: readonly StepRecord[];
  /** The messages that were put behind all others, by the step before which they were. */
  readonly late: ReadonlyMap<number, readonly string[]>;
  /** Runs that it took. */
  readonly tries: number;
  /** Whether it failed in the same way, step for step, when it was replayed in strict mode. */
  readonly isReplayed: boolean;
}

/**
 * Shrinks a failing run and keeps the class of its failure. Any part of a list of deviations is a
 * legal order, so this is delta debugging over that list; then each choice that is left is made as
 * small as it can be.
 *
 * @param options those of the exploration that found it.
 * @param scenario what happens.
 * @param failed the failing run.
 *
 * @example
 * ```ts
 * import { explore, random, type Scenario, shrink } from "@troupe/troupe/testing";
 * import assert from "node:assert/strict";
 *
 * const module = `data:text/javascript,export const log = (ctx) => {
 *   const log = [];
 *   ctx.expose(() => log);
 *   return { Note({ n }) { log.push(n); } };
 * };
 * export const sender = (ctx, { to, n }) => ({ Go() { ctx.send(to, { type: "Note", n }); } });`;
 * type Go = { type: "Go" };
 * const scenario: Scenario = async ({ system, settle, idle, invariant }) => {
 *   const to = system.spawn({ module, export: "log" }, undefined, { id: "log" });
 *   const senders = Array.from({ length: 8 }, (_, n) =>
 *     system.spawn<object, Go>(
 *       { module, export: "sender" },
 *       { to, n },
 *       { id: `sender-${n}` },
 *     )
 *   );
 *   await settle();
 *   invariant("7 comes last", ({ state }) => {
 *     const log = state<number[]>("log") ?? [];
 *     if (log.includes(7) && log.length < 8) return `7 was number ${log.length}`;
 *   });
 *   for (const sender of senders) system.send(sender, { type: "Go" });
 *   await idle();
 * };
 * const options = { strategy: random() };
 * const { failed } = await explore(options, scenario);
 * const { run, isReplayed } = await shrink(options, scenario, failed!);
 * assert.equal(run.failure.name, "7 comes last");
 * assert.equal(run.deviations.length, 1);
 * assert.ok(isReplayed);
 * ```
 */
export async function shrink<T, C = undefined>(
  options: ShrinkOptions<C>,
  scenario: Scenario<T, C>,
  failed: FailedRun,
): Promise<Shrunk<C>> {
  const { shrinkRuns = SHRINK_RUNS, shrinkMs = SHRINK_MS } = options;
  const limit = performance.now() + shrinkMs;
  // A failure that two runs of one order differ by shows only in two runs.
  const once = { ...options, isRepeated: failed.failure.kind === "diverged" };
  let tries = 0, best = failed, configuration = options.configuration as C;
  let judge = await judgeOf(once, scenario);

  const attempt = async (by: Judge, change: object, kindOf = classOf) => {
    if (tries >= shrinkRuns || performance.now() > limit) return undefined;
    tries++;
    const run = await by({ seed: best.seed, ...change });
    const { failure } = run;
    if (!failure || kindOf(failure) !== kindOf(best.failure)) return false;
    best = { ...run, strategy: failed.strategy, failure };
    return true;
  };
  const tryPlan = (deviations: readonly Deviation[], faults: readonly Fault[]) =>
    attempt(judge, { deviations, faults });

  for (let isSmaller = true; isSmaller;) {
    isSmaller = false;
    for (const smaller of options.smaller?.(configuration) ?? []) {
      const other = await judgeOf({ ...once, configuration: smaller }, scenario);
      if (!await showsIn(options, (change) => attempt(other, change, looseClassOf))) continue;
      [configuration, judge, isSmaller] = [smaller, other, true];
      break;
    }
  }
  await ddmin(best.faults, (faults) => tryPlan(best.deviations, faults));
  // A fault that waits for nothing needs no deviation to come true.
  for (const [index, fault] of best.faults.entries()) {
    await tryPlan(best.deviations, best.faults.with(index, { ...fault, step: 0 }));
  }
  await ddmin(best.deviations, (deviations) => tryPlan(deviations, best.faults));
  await searchByDelays(() => best, (change) => attempt(judge, change));
  // What is lower may need less beside it, so both go on until nothing changes.
  for (let before = ""; before !== JSON.stringify(best.deviations);) {
    before = JSON.stringify(best.deviations);
    await ddmin(best.deviations, (deviations) => tryPlan(deviations, best.faults));
    await lowerChoices(() => best, (change) => attempt(judge, change));
  }
  const confirmed = await confirm({ ...options, configuration }, scenario, best);
  return { run: best, configuration, tries, ...confirmed };
}

/** Makes a run with some options changed; returns whether it fails alike, undefined out of time. */
type Attempt = (change: object) => Promise<boolean | undefined>;

/** Whether the failure shows in some of the runs of a configuration. */
async function showsIn<C>(
  { seed = 0, strategy: asked, faults }: ShrinkOptions<C>,
  attempt: Attempt,
): Promise<boolean> {
  // An exhaustive search knows the states of the configuration in which it found the failure.
  const strategy = asked && !asked.isExhaustive ? asked : portfolio();
  for (let run = 0; run < CONFIGURATION_RUNS; run++) {
    const start = { run, expectedSteps: CONFIGURATION_RUNS };
    if (await attempt({ seed: seed + run, strategy, deviations: undefined, faults, start })) {
      return true;
    }
  }
  return false;
}

/** Looks for the failure close to plain order: one message that is late says in one deviation what
 * takes many choices to say. Steps that were settled before count for nothing. */
async function searchByDelays(best: () => FailedRun, attempt: Attempt): Promise<void> {
  if (best().deviations.length <= 1) return;
  const expectedSteps = best().choices;
  for (let delays = 1; delays <= MAX_DELAYS && delays < best().deviations.length; delays++) {
    const strategy = delay(delays), { seed, faults } = best();
    for (let run = 0; run < DELAY_RUNS; run++) {
      strategy.begin({ seed: seed + run, run, expectedSteps });
      if (await attempt({ strategy, start: "begun", deviations: undefined, faults })) return;
    }
  }
}

/** Tries smaller choices where the order is still not plain. */
async function lowerChoices(best: () => FailedRun, attempt: Attempt): Promise<void> {
  for (let index = 0; index < best().deviations.length; index++) {
    const { deviations, faults } = best(), deviation = deviations[index]!;
    if ("late" in deviation) continue;
    const { step } = deviation;
    const high = "wait" in deviation ? deviation.wait : deviation.choice;
    for (let low = 1; low < high; low++) {
      const lower = "wait" in deviation ? { step, wait: low } : { step, choice: low };
      if (await attempt({ deviations: deviations.with(index, lower), faults })) break;
    }
  }
}

/** Records the run once more and replays it in strict mode. */
async function confirm<T, C>(
  options: ExploreOptions<C>,
  scenario: Scenario<T, C>,
  { seed, deviations, faults, hash }: FailedRun,
): Promise<Pick<Shrunk<C>, "steps" | "late" | "isReplayed">> {
  const late = new Map<number, string[]>(), { deviations: _, ...rest } = options;
  const play = (change: object) => simulate({ ...rest, seed, faults, ...change }, scenario);
  const steps = await stepsOf(play, { strategy: noteLate(deviate(deviations), late) });
  const again = await play({ strategy: replayOf(steps) });
  return { steps, late, isReplayed: again.hash === hash && again.failure?.kind !== "replay" };
}

/** Follows deviations and notes which messages are put behind all others, before which step. */
function noteLate(strategy: Strategy, late: Map<number, string[]>): Strategy {
  return {
    ...strategy,
    choose(candidates, step, state, timer) {
      const before = strategy.deviations!.length;
      const choice = strategy.choose(candidates, step, state, timer);
      for (const deviation of strategy.deviations!.slice(before)) {
        if (!("late" in deviation)) continue;
        const message = describeCandidate(candidates[deviation.late]!);
        late.getOrInsertComputed(step, () => []).push(message);
      }
      return choice;
    },
  };
}
