/**
 * Deterministic tests of actors: simulation under a virtual clock, exploration of orders and
 * faults, shrinking, journals and replay.
 *
 * @module
 */

export type { Offers } from "./actors/runtime/mod.ts";
export {
  DeterminismError,
  exempt,
  FORBIDDEN_GLOBALS,
  FORBIDDEN_MODULES,
  type ForbiddenGlobal,
  type ForbiddenModule,
} from "./actors/simulation/determinism_guard.ts";
export {
  type DiskFault,
  type PowerFailure,
  PowerFailureError,
  SimulatedDisk,
  type SimulatedDiskOptions,
  SimulatedFile,
} from "./actors/simulation/disk.ts";
export { type Exploration, explore, type ExploreOptions } from "./actors/simulation/explore.ts";
export {
  type Fault,
  FAULT_KINDS,
  type FaultKind,
  type FaultOptions,
} from "./actors/simulation/faults.ts";
export {
  type Journal,
  JOURNAL_VERSION,
  type JournalHeader,
  readJournal,
} from "./actors/simulation/journal.ts";
export {
  beginJournal,
  type JournalFile,
  type JournalOptions,
  writeJournal,
} from "./actors/simulation/journal_writer.ts";
export type { StepRecord } from "./actors/simulation/recorder.ts";
export { replayJournal, type ReplayOptions } from "./actors/simulation/replay.ts";
export {
  type InboxOptions,
  type InboxReplay,
  replayInbox,
} from "./actors/simulation/replay_actor.ts";
export {
  checkScenario,
  ddmin,
  describeFailedRun,
  type FailedRun,
  shrink,
  type ShrinkOptions,
  type Shrunk,
  simulationTest,
} from "./actors/simulation/shrink.ts";
export {
  type Check,
  type EventuallyOptions,
  type Run,
  type Scenario,
  type Settling,
  type SimulateOptions,
  SimulationError,
  type SimulationFailure,
  type View,
  type World,
} from "./actors/simulation/run.ts";
export { simulate } from "./actors/simulation/simulate.ts";
export {
  delay,
  deviate,
  type Deviation,
  type Dfs,
  dfs,
  fifo,
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
} from "./actors/simulation/strategies.ts";
