/**
 * Simulated tests for `deno test`.
 *
 * @module
 */

import { type Exploration, explore } from "./explore.ts";
import { SimulationError } from "./failure.ts";
import { describeFailedRun } from "./report.ts";
import type { Scenario } from "./simulated_run.ts";
import { shrink, type ShrinkOptions } from "./shrink/shrink.ts";

/**
 * Explores a scenario, and throws what a person needs when it fails: the failure made small, its
 * last steps, and a test to paste. With `deviations` it makes that one run.
 *
 * @param name as it stands in the test to paste.
 * @param options those of {@linkcode explore} and {@linkcode shrink}.
 * @param scenario what happens.
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
 * Registers a test that explores a scenario; see {@linkcode checkScenario}. Every run is made
 * twice, and both must have the same running hash.
 *
 * @param name name of the test.
 * @param options those of {@linkcode explore} and {@linkcode shrink}.
 * @param scenario what happens.
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
