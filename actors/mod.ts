/**
 * The actors that train, and the actor runtime beneath them.
 *
 * @module
 */

export {
  type GradientArray,
  openReducer,
  type ReduceAlgorithm,
  type ReduceMessage,
  type ReducePhase,
  type Reducer,
  type ReducerOptions,
} from "./gradients/all_reduce.ts";
export * from "./checkpoints/mod.ts";
export type { SyncStrategy } from "./gradients/sync.ts";
export { clipFactor, gradientNorm, type GradientSquares, meanNorm } from "./gradients/commit.ts";
export { meanLoss } from "./gradients/commit.ts";
export { areFinite } from "./gradients/commit.ts";
export * from "./planner/mod.ts";
export type { StageState } from "../kernels/mod.ts";
export type { Engine, EngineOptions } from "./run/engine.ts";
export type { ReduceChoice } from "./options/train_options.ts";
export { trainedTies, withoutAliases } from "./run/engine.ts";
export type { WorkerFault } from "./pipeline/worker_state.ts";
export { copiesOf, pipesOf, type StageCopy } from "./pipeline/layout.ts";
export {
  type EmulatedLink,
  type LinkMessage,
  type LinkOptions,
  openEmulatedLink,
} from "./pipeline/links.ts";
export {
  firstLossScale,
  type LossScale,
  type LossScaleState,
  nextLossScale,
  SCALE_MAX,
  SCALE_MIN,
  SKIPS_MAX,
} from "./gradients/commit.ts";
export { limitedBytes, planWorkers, totalMemory, type WorkerMemory } from "./run/memory.ts";
export type { ActorBytes, RunMemory } from "./run/memory.ts";
export * from "./run/plan.ts";
export type { CompileOptions } from "./run/compile.ts";
export type { PolicyData } from "./pipeline/step.ts";
export {
  type Answer,
  type Fetch,
  type PeerMessage,
  PROTOCOL_VERSION,
  type Stalled,
  type SupervisorMessage,
  type WorkerLost,
  type WorkerMessage,
  type WorkerReport,
  type WriteOutcome,
} from "./pipeline/protocol.ts";
export type { InFlightOptions } from "./pipeline/supervisor_state.ts";
export type { CompiledStages, CopyInit } from "./pipeline/stage_copies.ts";
export type { CompiledRun } from "./run/memory.ts";
export type { SupervisorInit } from "./pipeline/supervisor_state.ts";
export type { WorkerInit } from "./pipeline/worker_state.ts";
export type { ReduceOptions, TieEnd } from "./gradients/sync.ts";
export type { StepOutcome, StepRequest, TracedAction } from "./pipeline/step.ts";
export { sumMemory } from "./pipeline/stage_copies.ts";
export {
  dropoutOf,
  type MicroBatchShare,
  openStepPlanner,
  type PlanOptions,
  shareMicroBatches,
  shareStep,
  type StepDropout,
  type StepPlan,
  type StepPlanner,
  type StepShares,
} from "./pipeline/step.ts";
export { type LocalUpdates, UPDATE_POLICIES, type UpdatePolicy } from "./pipeline/step.ts";
export {
  type Kept,
  openRecovering,
  type RecoveringEngine,
  type RecoveryOptions,
} from "./run/recovery.ts";
export type { RetryOptions } from "./run/recovery.ts";
export type { Snapshots } from "./run/recovery.ts";
export type { SnapshotPlace } from "./options/option.ts";
export {
  ADAMW_OPTIMIZER,
  type BuiltModel,
  type DataOptions,
  type DataPart,
  defineData,
  defineModel,
  defineOptimizer,
  findPart,
  type FoundPart,
  GPT_MODEL,
  type ImportedPart,
  importPart,
  MLP_MODEL,
  MNIST_DATA,
  MOBY_DICK_DATA,
  type ModelOptions,
  type ModelPart,
  type OpenedData,
  openTask,
  type OptimizerPart,
  type OptimizerSettings,
  type PartTypes,
  PIPELINE_SUPERVISOR,
  PIPELINE_WORKER,
  SGD_OPTIMIZER,
  SOTU_DATA,
  type Task,
  type TaskOptions,
  type Trained,
} from "./registry/mod.ts";
export {
  builtInNames,
  checkNewPart,
  type Chosen,
  type NewPart,
  openRegistry,
  packageVersion,
  type Part,
  PART_KINDS,
  type PartKind,
  type PreparedPart,
  preparePart,
  type Registry,
  removePart,
  type Verified,
} from "./registry/mod.ts";
export * from "./simulated_training/mod.ts";
export * from "./runtime/mod.ts";
export * from "./sandbox/mod.ts";
export type { JournaledRun, OpenJournal } from "./run/run_journal.ts";
export type { RunJournal } from "./options/train_options.ts";
export type { Batches, Data, DataSource } from "./options/train_options.ts";
export type { Metrics } from "./options/train_options.ts";
export type { Best } from "./run/events.ts";
export type { RateOf } from "./run/events.ts";
export { tensorboard, type Tracker } from "./run/metrics.ts";
export type { MpiRunOptions } from "./options/train_options.ts";
export {
  type Flow,
  type Gap,
  type GapKind,
  readSpan,
  readStep,
  type Span,
  type StepTimeline,
  type WorkerTimeline,
} from "./run/timeline.ts";
export { NonFiniteError, train } from "./run/train.ts";
export type { TrainEvent } from "./run/events.ts";
export type { CoreShare } from "./run/devices.ts";
export { prepareRun } from "./run/prepare.ts";
export { type PreparedRun } from "./run/prepared_run.ts";
export type { RuntimeName, TrainOptions } from "./options/train_options.ts";
export {
  assertRecomputable,
  assertServable,
  assertTrainable,
  type CommitOptions,
} from "./run/prepare.ts";
export { createSystem } from "./transports/system.ts";
export { decodeFrame, type EncodedFrame, encodeFrame } from "./transports/codec.ts";
export { type ServedIsolate, serveIsolate } from "./transports/serve.ts";
export { type FrameSink, type FrameSource, Outbox, receiveFrames } from "./transports/stream.ts";
