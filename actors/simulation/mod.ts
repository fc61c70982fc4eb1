/**
 * Deterministic simulation of any actors: explore, replay, shrink, record.
 *
 * @module
 */

export {
  ddmin,
  type FailedRun,
  shrink,
  SHRINK_MS,
  SHRINK_RUNS,
  type ShrinkOptions,
  type Shrunk,
} from "./shrink.ts";
export { Digest, digestOf } from "./digest.ts";
export { DEFAULT_RUNS, type Exploration, explore, type ExploreOptions } from "./explore.ts";
export {
  type Check,
  classOf,
  type EventuallyOptions,
  HANG_MS,
  MAX_STEPS,
  RACE_MS,
  type Run,
  type Scenario,
  type Settling,
  type SimulateOptions,
  SimulationError,
  type SimulationFailure,
  type View,
  type World,
} from "./run.ts";
export { type Fault, FAULT_KINDS, type FaultKind, type FaultOptions } from "./faults.ts";
export { type Journal, JOURNAL_VERSION, type JournalHeader, readJournal } from "./journal.ts";
export {
  beginJournal,
  FLUSH_MS,
  type JournalFile,
  type JournalOptions,
  writeJournal,
} from "./journal_writer.ts";
export type { StepRecord } from "./recorder.ts";
export { type InboxOptions, type InboxReplay, replayInbox } from "./replay_actor.ts";
export { replayJournal, type ReplayOptions } from "./replay.ts";
export { checkScenario, describeFailedRun, describeStep, simulationTest } from "./report.ts";
export { simulate } from "./simulate.ts";
export {
  type DiskFault,
  type PowerFailure,
  PowerFailureError,
  SimulatedDisk,
  type SimulatedDiskOptions,
  SimulatedFile,
} from "./disk.ts";
export type { Offers } from "../runtime/mod.ts";
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
export {
  DeterminismError,
  exempt,
  FORBIDDEN_GLOBALS,
  FORBIDDEN_MODULES,
  type ForbiddenGlobal,
  type ForbiddenModule,
} from "./determinism_guard.ts";
