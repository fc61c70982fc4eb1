/**
 * Deterministic simulation of any actors: explore, replay, shrink, record.
 *
 * @module
 */

export { ddmin } from "./shrink.ts";
export { Digest, digestOf } from "./digest.ts";
export { DEFAULT_RUNS, type Exploration, explore, type ExploreOptions } from "./explore.ts";
export { classOf, SimulationError, type SimulationFailure } from "./run.ts";
export type { EventuallyOptions } from "./run.ts";
export { type Fault, FAULT_KINDS, type FaultKind, type FaultOptions } from "./faults.ts";
export { type Journal, JOURNAL_VERSION, type JournalHeader, readJournal } from "./journal.ts";
export { beginJournal, FLUSH_MS, type JournalOptions, writeJournal } from "./journal_writer.ts";
export { type Pen } from "./journal_writer.ts";
export type { StepRecord } from "./recorder.ts";
export { type InboxOptions, type InboxReplay, replayInbox } from "./replay_actor.ts";
export { replayJournal, type ReplayOptions } from "./replay.ts";
export { describeFailedRun, describeStep } from "./report.ts";
export {
  type FailedRun,
  shrink,
  SHRINK_MS,
  SHRINK_RUNS,
  type ShrinkOptions,
  type Shrunk,
} from "./shrink.ts";
export { simulate } from "./simulate.ts";
export {
  HANG_MS,
  MAX_STEPS,
  RACE_MS,
  type Run,
  type Scenario,
  type SimulateOptions,
} from "./run.ts";
export type { PowerFailure } from "./disk.ts";
export {
  type DiskFault,
  PowerFailureError,
  SimulatedDisk,
  type SimulatedDiskOptions,
} from "./disk.ts";
export { SimulatedFile } from "./disk.ts";
export type { Offers } from "../runtime/mod.ts";
export { checkScenario, simulationTest } from "./report.ts";
export {
  delay,
  deviate,
  type Deviation,
  type Dfs,
  dfs,
  fifo,
  FIRST_EXPECTED_STEPS,
  type NextTimer,
  pct,
  portfolio,
  pos,
  PRUNE,
  random,
  ReplayError,
  replayOf,
  type RunStart,
  type Strategy,
  WAIT,
} from "./strategies.ts";
export { TRAPPED, type Trapped, TRAPPED_MODULES, type TrappedModule } from "./traps.ts";
export { DeterminismError, exempt } from "./traps.ts";
export type { Check, View } from "./run.ts";
export type { Settling, World } from "./run.ts";
