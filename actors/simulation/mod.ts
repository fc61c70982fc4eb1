/**
 * Deterministic simulation of any actors: explore, replay, shrink, record.
 *
 * @module
 */

export { ddmin } from "./shrink/ddmin.ts";
export { Digest, digestOf } from "./digest.ts";
export { DEFAULT_RUNS, type Exploration, explore, type ExploreOptions } from "./explore.ts";
export { classOf, SimulationError, type SimulationFailure } from "./failure.ts";
export type { EventuallyOptions } from "./checks/eventually.ts";
export { type Fault, FAULT_KINDS, type FaultKind, type FaultOptions } from "./faults/faults.ts";
export {
  type Journal,
  JOURNAL_VERSION,
  type JournalHeader,
  readJournal,
} from "./journal/journal.ts";
export {
  beginJournal,
  FLUSH_MS,
  type JournalOptions,
  writeJournal,
} from "./journal/journal_writer.ts";
export { type Pen } from "./journal/pen.ts";
export type { StepRecord } from "./journal/recorder.ts";
export { type InboxOptions, type InboxReplay, replayInbox } from "./replay/replay_inbox.ts";
export { replayJournal, type ReplayOptions } from "./replay/replay_journal.ts";
export { describeFailedRun, describeStep } from "./report.ts";
export {
  type FailedRun,
  shrink,
  SHRINK_MS,
  SHRINK_RUNS,
  type ShrinkOptions,
  type Shrunk,
} from "./shrink/shrink.ts";
export { simulate } from "./simulate.ts";
export {
  HANG_MS,
  MAX_STEPS,
  RACE_MS,
  type Run,
  type Scenario,
  type SimulateOptions,
} from "./simulated_run.ts";
export type { PowerFailure } from "./disk/disk_image.ts";
export {
  type DiskFault,
  PowerFailureError,
  SimulatedDisk,
  type SimulatedDiskOptions,
} from "./disk/simulated_disk.ts";
export { SimulatedFile } from "./disk/simulated_file.ts";
export type { Offers } from "../runtime/mod.ts";
export { checkScenario, simulationTest } from "./simulation_test_case.ts";
export * from "./strategies/mod.ts";
export { TRAPPED, type Trapped, TRAPPED_MODULES, type TrappedModule } from "./traps/trapped.ts";
export { DeterminismError, exempt } from "./traps/guard.ts";
export type { Check, View } from "./view.ts";
export type { Settling, World } from "./world.ts";
