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
export type { ReduceOptions, SyncStrategy, TieEnd } from "./gradients/sync.ts";
export {
  areFinite,
  clipFactor,
  firstLossScale,
  gradientNorm,
  type GradientSquares,
  type LossScale,
  type LossScaleState,
  meanLoss,
  meanNorm,
  nextLossScale,
  SCALE_MAX,
  SCALE_MIN,
  SKIPS_MAX,
} from "./gradients/commit.ts";
export * from "./planner/mod.ts";
export type { StageState } from "../kernels/mod.ts";
export { type Engine, type EngineOptions, trainedTies, withoutAliases } from "./run/engine.ts";
export type {
  Batches,
  Data,
  DataSource,
  Metrics,
  MpiRunOptions,
  ReduceChoice,
  RunJournal,
  RuntimeName,
  TrainOptions,
} from "./options/train_options.ts";
export type { WorkerFault, WorkerInit } from "./pipeline/worker_state.ts";
export { copiesOf, pipesOf, type StageCopy } from "./pipeline/layout.ts";
export {
  type EmulatedLink,
  type LinkMessage,
  type LinkOptions,
  openEmulatedLink,
} from "./pipeline/links.ts";
export {
  type ActorBytes,
  type CompiledRun,
  limitedBytes,
  planWorkers,
  type RunMemory,
  totalMemory,
  type WorkerMemory,
} from "./run/memory.ts";
export * from "./run/plan.ts";
export type { CompileOptions } from "./run/compile.ts";
export {
  dropoutOf,
  type LocalUpdates,
  type MicroBatchShare,
  openStepPlanner,
  type PlanOptions,
  type PolicyData,
  shareMicroBatches,
  shareStep,
  type StepDropout,
  type StepOutcome,
  type StepPlan,
  type StepPlanner,
  type StepRequest,
  type StepShares,
  type TracedAction,
  UPDATE_POLICIES,
  type UpdatePolicy,
} from "./pipeline/step.ts";
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
export type { InFlightOptions, SupervisorInit } from "./pipeline/supervisor_state.ts";
export { type CompiledStages, type CopyInit, sumMemory } from "./pipeline/stage_copies.ts";
export {
  type Kept,
  openRecovering,
  type RecoveringEngine,
  type RecoveryOptions,
  type RetryOptions,
  type Snapshots,
} from "./run/recovery.ts";
export type { SnapshotPlace } from "./options/option.ts";
export {
  ADAMW_OPTIMIZER,
  builtInNames,
  type BuiltModel,
  checkNewComponent,
  type Chosen,
  type Component,
  COMPONENT_KINDS,
  type ComponentKind,
  type ComponentTypes,
  type DataComponent,
  type DataOptions,
  defineData,
  defineModel,
  defineOptimizer,
  findComponent,
  type FoundComponent,
  GPT_MODEL,
  importComponent,
  type ImportedComponent,
  MLP_MODEL,
  MNIST_DATA,
  MOBY_DICK_DATA,
  type ModelComponent,
  type ModelOptions,
  type NewComponent,
  type OpenedData,
  openRegistry,
  openTask,
  type OptimizerComponent,
  type OptimizerSettings,
  packageVersion,
  PIPELINE_SUPERVISOR,
  PIPELINE_WORKER,
  prepareComponent,
  type PreparedComponent,
  type Registry,
  removeComponent,
  SGD_OPTIMIZER,
  SOTU_DATA,
  type Task,
  type TaskOptions,
  type Trained,
  type Verified,
} from "./registry/mod.ts";
export * from "./simulated_training/mod.ts";
export * from "./runtime/mod.ts";
export * from "./sandbox/mod.ts";
export type { JournaledRun, OpenJournal } from "./run/run_journal.ts";
export type { Best, RateOf, TrainEvent } from "./run/events.ts";
export { tensorboard, type Tracker } from "./run/metrics.ts";
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
export type { CoreShare } from "./run/devices.ts";
export {
  assertRecomputable,
  assertServable,
  assertTrainable,
  type CommitOptions,
  prepareRun,
} from "./run/prepare.ts";
export type { PreparedRun } from "./run/prepared_run.ts";
export { createSystem } from "./transports/system.ts";
export { decodeFrame, type EncodedFrame, encodeFrame } from "./transports/codec.ts";
export { type ServedIsolate, serveIsolate } from "./transports/serve.ts";
export { type FrameSink, type FrameSource, Outbox, receiveFrames } from "./transports/stream.ts";
