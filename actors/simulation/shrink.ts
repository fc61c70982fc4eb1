/**
 * Finds the smallest schedule that still fails, and formats the failed run with the call that
 * replays it.
 *
 * @module
 */

import {
  type CheckedRun,
  checkedRuns,
  type Exploration,
  explore,
  type ExploreOptions,
  stepsOf,
} from "./explore.ts";
import type { Fault } from "./faults.ts";
import { stepName, type StepRecord } from "./recorder.ts";
import {
  classOf,
  looseClassOf,
  type Run,
  type Scenario,
  SimulationError,
  type SimulationFailure,
} from "./run.ts";
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
 * Returns a minimal list of items with which a test fails: without any one of them it passes. Zeller,
 * Hildebrandt: Simplifying and Isolating Failure-Inducing Input, IEEE
 * TSE 28(2), 2002, section 3.
 *
 * @param items the test fails with all of them.
 * @param fails returns whether the test fails with some of them, in the same order; undefined if there is
 * no time left, so that the best result so far is returned.
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

/** Returns a part, and everything except that part. */
function tries<T>(items: readonly T[], start: number, size: number, parts: number) {
  const alone = items.slice(start, start + size);
  const rest = [...items.slice(0, start), ...items.slice(start + size)];
  // Each of two halves is the rest of the other.
  return parts === 2 ? [alone] : [alone, rest];
}

/** Options of {@linkcode shrink}. */
export interface ShrinkOptions<C = undefined> extends ExploreOptions<C> {
  /** Returns smaller configurations to try, the smallest first. */
  readonly smaller?: (configuration: C) => readonly C[];
  /** Maximum number of runs. Default 20,000. */
  readonly shrinkRuns?: number;
  /** Maximum duration in real milliseconds. Default 50,000. */
  readonly shrinkMs?: number;
}

/** Default of {@linkcode ShrinkOptions.shrinkRuns}. */
const SHRINK_RUNS = 20_000;

/** Default of {@linkcode ShrinkOptions.shrinkMs}. */
const SHRINK_MS = 50_000;

/** Number of runs in which a smaller configuration must fail. */
const CONFIGURATION_RUNS = 50;

/** Maximum number of delayed messages, and runs for each number, in the search for a failure close to
 * FIFO order. */
const MAX_DELAYS = 3, DELAY_RUNS = 200;

/** A failed run. */
export type FailedRun = Run & { readonly failure: SimulationFailure };

/** A shrunk run. */
export interface Shrunk<C = undefined> {
  /** The run, with the same class of failure. */
  readonly run: FailedRun;
  /** Its configuration. */
  readonly configuration: C;
  /** Its steps. */
  readonly steps: readonly StepRecord[];
  /** The delayed messages, by the step at which they were delayed. */
  readonly late: ReadonlyMap<number, readonly string[]>;
  /** Number of runs. */
  readonly tries: number;
  /** True if a strict replay failed in the same way, step for step. */
  readonly isReplayed: boolean;
}

/**
 * Shrinks a failed run while keeping the class of its failure. Any part of a list of deviations is a
 * valid order, so this applies delta debugging to the list, and then lowers each remaining choice.
 *
 * @param options options of the exploration.
 * @param scenario the scenario of the exploration.
 * @param failed the failed run.
 * @throws {TypeError} when the run has not failed.
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
  if (!failed?.failure) {
    throw new TypeError("Cannot shrink: the run must have a failure, received none");
  }
  const { shrinkRuns = SHRINK_RUNS, shrinkMs = SHRINK_MS } = options;
  const limit = performance.now() + shrinkMs;
  // Runs that diverge can only be detected by repeating them.
  const once = { ...options, isRepeated: failed.failure.kind === "diverged" };
  let tries = 0, best = failed, configuration = options.configuration as C;
  let play = await checkedRuns(once, scenario);

  const attempt = async (by: CheckedRun, change: object, kindOf = classOf) => {
    if (tries >= shrinkRuns || performance.now() > limit) return undefined;
    tries++;
    const run = await by({ seed: best.seed, ...change });
    const { failure } = run;
    if (!failure || kindOf(failure) !== kindOf(best.failure)) return false;
    best = { ...run, strategy: failed.strategy, failure };
    return true;
  };
  const tryPlan = (deviations: readonly Deviation[], faults: readonly Fault[]) =>
    attempt(play, { deviations, faults });

  for (let isSmaller = true; isSmaller;) {
    isSmaller = false;
    for (const smaller of options.smaller?.(configuration) ?? []) {
      const other = await checkedRuns({ ...once, configuration: smaller }, scenario);
      if (!await showsIn(options, (change) => attempt(other, change, looseClassOf))) continue;
      [configuration, play, isSmaller] = [smaller, other, true];
      break;
    }
  }
  await ddmin(best.faults, (faults) => tryPlan(best.deviations, faults));
  // A fault that can occur from the start may need fewer deviations.
  for (const [index, fault] of best.faults.entries()) {
    await tryPlan(best.deviations, best.faults.with(index, { ...fault, step: 0 }));
  }
  await ddmin(best.deviations, (deviations) => tryPlan(deviations, best.faults));
  await searchByDelays(() => best, (change) => attempt(play, change));
  // A lower choice may need fewer deviations, so both are repeated until nothing changes.
  for (let before = ""; before !== JSON.stringify(best.deviations);) {
    before = JSON.stringify(best.deviations);
    await ddmin(best.deviations, (deviations) => tryPlan(deviations, best.faults));
    await lowerChoices(() => best, (change) => attempt(play, change));
  }
  const confirmed = await confirm({ ...options, configuration }, scenario, best);
  return { run: best, configuration, tries, ...confirmed };
}

/** Makes a run with changed options; returns whether it fails in the same way, undefined without time. */
type Attempt = (change: object) => Promise<boolean | undefined>;

/** Returns whether some runs of a configuration fail. */
async function showsIn<C>(
  { seed = 0, strategy: asked, faults }: ShrinkOptions<C>,
  attempt: Attempt,
): Promise<boolean> {
  // The states of an exhaustive search belong to the first configuration.
  const strategy = asked && !asked.isExhaustive ? asked : portfolio();
  for (let run = 0; run < CONFIGURATION_RUNS; run++) {
    const start = { run, expectedSteps: CONFIGURATION_RUNS };
    if (await attempt({ seed: seed + run, strategy, deviations: undefined, faults, start })) {
      return true;
    }
  }
  return false;
}

/** Searches for the failure close to FIFO order: one delayed message may replace many choices. */
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

/** Tries lower choices for the remaining deviations. */
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

/** Repeats the run and replays it strictly. */
async function confirm<T, C>(
  options: ExploreOptions<C>,
  scenario: Scenario<T, C>,
  { seed, deviations, faults, hash }: FailedRun,
): Promise<Pick<Shrunk<C>, "steps" | "late" | "isReplayed">> {
  const late = new Map<number, string[]>(), { deviations: _, ...rest } = options;
  const play = (change: object) => simulate({ ...rest, seed, faults, ...change }, scenario);
  const steps = await stepsOf(play, { strategy: recordDelayed(deviate(deviations), late) });
  const again = await play({ strategy: replayOf(steps) });
  return { steps, late, isReplayed: again.hash === hash && again.failure?.kind !== "replay" };
}

/** Wraps a strategy and records the messages that it delays. */
function recordDelayed(strategy: Strategy, late: Map<number, string[]>): Strategy {
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

/** Number of printed steps before the failure; steps out of FIFO order are printed, too. */
const MAX_STEPS_SHOWN = 30;

/**
 * Formats a step as a line: number, time, actor, message, activity, and difference from FIFO order.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const step = { n: 7, isolate: 0, t: 20, actor: "stage-1", from: "stage-0#3", type: "Activation",
 *   name: "1F3", payload: "", choice: 2, arity: 4, did: [], chain: "", hash: "" };
 * assert.equal(
 *   describeStep(step),
 *   "     7       20 ms  stage-1 < stage-0#3 Activation (1F3)  <- choice 2 of 4",
 * );
 * ```
 */
export function describeStep(step: StepRecord): string {
  const { n, t, name, choice = 0, arity = 0, waits = 0, faults = [] } = step;
  const order = (waits > 0 ? `  <- after ${waits} ${waits > 1 ? "timers" : "timer"}` : "") +
    (choice > 0 ? `  <- choice ${choice} of ${arity}` : "");
  const faulty = faults.map((fault) => `  <- ${fault}`).join("");
  const text = `${String(n).padStart(6)} ${String(t).padStart(8)} ms  ${stepName(step)}`;
  return `${text}${name ? ` (${name})` : ""}${order}${faulty}`;
}

/**
 * Returns the report of a failed run: the failure, the last steps, and a test to paste.
 *
 * @param name name of the test.
 * @param shrunk the shrunk run.
 *
 * @example
 * ```ts
 * import { describeFailedRun, explore, type Scenario, shrink } from "@troupe/troupe/testing";
 * import assert from "node:assert/strict";
 *
 * const scenario: Scenario = () => { throw new RangeError("out of luck"); };
 * const { failed } = await explore({}, scenario);
 * const report = describeFailedRun("unlucky", await shrink({}, scenario, failed!));
 * assert.match(report, /^scenario "RangeError" at step 0: out of luck\nFound with seed 0 by fifo/);
 * assert.match(report, /simulationTest\("unlucky", \{ seed: 0, deviations: \[\] \}, scenario\);$/);
 * ```
 */
export function describeFailedRun<C>(
  name: string,
  { run, configuration, steps, late, isReplayed }: Shrunk<C>,
): string {
  const { failure, seed, strategy, deviations, faults, waiting } = run;
  const plan = [
    `seed: ${seed}`,
    ...(failure.name === "agreement" ? ["mustAgree: true"] : []),
    ...(configuration === undefined ? [] : [`configuration: ${JSON.stringify(configuration)}`]),
    `deviations: ${JSON.stringify(deviations)}`,
    ...(faults.length === 0 ? [] : [`faults: ${JSON.stringify(faults)}`]),
  ];
  return [
    `${failure.kind} "${failure.name}" at step ${failure.step}: ${failure.message}`,
    ...[...failure.waits, ...waiting].map((wait) => `  ${wait}`),
    `Found with seed ${seed} by ${strategy}; ${deviations.length} deviations from FIFO order.`,
    ...(isReplayed ? [] : ["It did not replay step for step: it is not deterministic."]),
    ...describeSteps(steps, deviations, late),
    "       <-- ERROR HERE",
    "To see it again:",
    `simulationTest(${JSON.stringify(name)}, { ${plan.join(", ")} }, scenario);`,
  ].join("\n");
}

/** Formats the last steps, and earlier steps out of FIFO order. */
function describeSteps(
  steps: readonly StepRecord[],
  deviations: readonly Deviation[],
  late: ReadonlyMap<number, readonly string[]>,
): string[] {
  const chosen = new Set(deviations.flatMap((one) => "choice" in one ? [one.step] : []));
  const lines: string[] = [];
  let left = 0;
  for (const [index, step] of steps.entries()) {
    // While a message is delayed, the candidates after it are in FIFO order.
    const { choice: _, ...plain } = step;
    const line = describeStep(chosen.has(step.n) ? step : plain) +
      (late.get(step.n) ?? []).map((message) => `  <- delayed from here: ${message}`).join("");
    if (index < steps.length - MAX_STEPS_SHOWN && !line.includes("  <- ")) left++;
    else {
      if (left > 0) lines.push(`  ... ${left} steps`);
      left = 0;
      lines.push(line);
    }
  }
  return lines;
}

/**
 * Explores a scenario. A failure is shrunk and thrown with its last steps and a test to paste. With
 * `deviations`, only that run is made.
 *
 * @param name name of the test to paste.
 * @param options options of {@linkcode explore} and {@linkcode shrink}.
 * @param scenario spawns actors, sends messages and adds checks.
 * @throws {SimulationError} (as a rejection) when a run fails.
 *
 * @example
 * ```ts
 * import { checkScenario } from "@troupe/troupe/testing";
 * import assert from "node:assert/strict";
 *
 * const module = `data:text/javascript,export const hasty = () => ({ Go() { Date.now(); } })`;
 * const check = checkScenario("hasty", { runs: 3 }, async ({ system, idle }) => {
 *   const hasty = system.spawn({ module, export: "hasty" }, undefined, { id: "hasty" });
 *   system.send(hasty, { type: "Go" });
 *   await idle();
 * });
 * await assert.rejects(check, /Cannot call Date.now: actor "hasty" must do the same in every run/);
 * ```
 */
export async function checkScenario<T, C = undefined>(
  name: string,
  options: ShrinkOptions<C>,
  scenario: Scenario<T, C>,
): Promise<Exploration> {
  const explored = await explore(options.deviations ? { ...options, runs: 1 } : options, scenario);
  if (!explored.failed) return explored;
  const shrunk = await shrink(options, scenario, explored.failed);
  throw new SimulationError(shrunk.run.failure, describeFailedRun(name, shrunk));
}

/**
 * Registers a test that explores a scenario; see {@linkcode checkScenario}. Every run is repeated, and
 * both must have the same running hash.
 *
 * @param name name of the test.
 * @param options options of {@linkcode explore} and {@linkcode shrink}.
 * @param scenario spawns actors, sends messages and adds checks.
 *
 * @example
 * ```ts ignore
 * import { simulationTest } from "@troupe/troupe/testing";
 *
 * const module = `data:text/javascript,export const mute = () => ({ Note() {} })`;
 * simulationTest("notes are taken", { runs: 10 }, async ({ system, idle }) => {
 *   const mute = system.spawn({ module, export: "mute" }, undefined, { id: "mute" });
 *   system.send(mute, { type: "Note" });
 *   await idle();
 * });
 * ```
 */
export function simulationTest<T, C = undefined>(
  name: string,
  options: ShrinkOptions<C>,
  scenario: Scenario<T, C>,
): void {
  Deno.test(name, async () => void await checkScenario(name, options, scenario));
}
