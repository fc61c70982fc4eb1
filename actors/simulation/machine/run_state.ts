/**
 * What the parts of a simulated run have in common.
 *
 * @module
 */

import type { Isolate } from "../../runtime/isolate/isolate.ts";
import type { System } from "../../runtime/mod.ts";
import type { SimulatedDisk } from "../disk/simulated_disk.ts";
import type { Dying } from "../faults/crash.ts";
import type { Recorder } from "../journal/recorder.ts";
import type { SimulateOptions } from "../simulated_run.ts";
import type { RunView } from "../view.ts";
import type { Chooser } from "./chooser.ts";
import type { Outside } from "./outside.ts";
import type { ScenarioWaits } from "./scenario_waits.ts";
import type { Verdict } from "./verdict.ts";
import type { VirtualClock } from "./virtual_clock.ts";

/**
 * What is done with messages: the strategy chooses and faults happen; or the scenario has them
 * handled in plain order (settle); or nothing of them counts any more (close).
 */
type Mode = "explore" | "settle" | "close";

/** A simulated run. */
export interface RunState {
  readonly options: SimulateOptions<unknown>;
  /** The system whose actors it plays with. */
  readonly system: System;
  readonly isolate: Isolate;
  /** The disk that actors may write to. */
  readonly disk: SimulatedDisk;
  readonly clock: VirtualClock;
  readonly chooser: Chooser;
  readonly recorder: Recorder;
  readonly view: RunView;
  readonly verdict: Verdict;
  readonly waits: ScenarioWaits;
  readonly outside: Outside;
  /** Gives the world back what was trapped. */
  readonly removeTraps: () => void;
  mode: Mode;
  /** Number of steps after which the settling ends. */
  settleUntil: number;
  /** The actor at work, if it crashes before the end of its handler. */
  dying: Dying | undefined;
  /** A handler or the scenario does not end, and nothing waits for it any longer. */
  isHanging: boolean;
  /** Who waits for a message when nobody can do anything any more. */
  idle: readonly string[];
}
