/**
 * What the parts of a simulated run have in common.
 *
 * @module
 */

import type { Isolate } from "../../runtime/isolate/isolate.ts";
import type { Recorder } from "../journal/recorder.ts";
import type { SimulateOptions } from "../simulated_run.ts";
import type { Chooser } from "./chooser.ts";
import type { Outside } from "./outside.ts";
import type { ScenarioWaits } from "./scenario_waits.ts";
import type { Verdict } from "./verdict.ts";
import type { VirtualClock } from "./virtual_clock.ts";

/**
 * What is done with messages: the strategy chooses and faults happen; or the scenario has them
 * handled in plain order (settle); or nothing of them counts any more (close).
 */
export type Mode = "explore" | "settle" | "close";

/** A run under way. */
export interface RunState {
  readonly options: SimulateOptions<unknown>;
  readonly isolate: Isolate;
  readonly clock: VirtualClock;
  readonly chooser: Chooser;
  readonly recorder: Recorder;
  readonly verdict: Verdict;
  readonly waits: ScenarioWaits;
  readonly outside: Outside;
  /** What the last step was. */
  readonly last: { actor: string; type: string; name: string };
  mode: Mode;
  /** Number of steps after which the settling ends. */
  settleUntil: number;
  /** Who waits for a message when nobody can do anything any more. */
  idle: readonly string[];
}

/** From now on messages are handled in plain order, for so many steps at the most. */
export function settle(run: RunState, steps: number): void {
  run.mode = "settle";
  run.settleUntil = run.recorder.steps + steps;
}

/** What was to be settled is; the strategy chooses again. */
export function explore(run: RunState): void {
  run.mode = "explore";
}

/** The run is over: what is left only has to end. */
export function close(run: RunState): void {
  run.mode = "close";
  run.waits.close();
  // Timers that start again and again must not keep the loop from its end.
  run.clock.limit = run.clock.now();
}
