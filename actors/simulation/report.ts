/**
 * Formats a failed run, with the call that replays it.
 *
 * @module
 */

import { type Exploration, explore } from "./explore.ts";
import { stepName, type StepRecord } from "./recorder.ts";
import { type Scenario, SimulationError } from "./run.ts";
import { shrink, type ShrinkOptions, type Shrunk } from "./shrink.ts";
import type { Deviation } from "./strategies.ts";

/** Number of steps printed before the failure, in addition to those that differ from FIFO order. */
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

/** Formats the last steps, and earlier ones that differ from FIFO order. */
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
