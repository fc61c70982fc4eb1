/**
 * The actors that train, and the actor runtime beneath them.
 *
 * @module
 */

export {
  type Batches,
  type BuiltModel,
  type Data,
  type DataSource,
  defineModel,
  type ModelComponent,
  type ModelOptions,
  type OpenedData,
  type Trained,
} from "./options/model_definition.ts";
export type {
  ActorBytes,
  Best,
  ComputedStep,
  CoreShare,
  Plan,
  RunMemory,
  RuntimeName,
  StagePlan,
  TrainEvent,
  WorkerMemory,
} from "./options/train_events.ts";
export type { Checkpoint, Disk, DiskFile, ManifestEntry } from "./checkpoints/format.ts";
export { readCheckpoint, type ShardOrder, type WrittenShard } from "./checkpoints/read.ts";
export type {
  DrawnTensor,
  FileKind,
  HeldState,
  PlacedTensor,
  Shapes,
  TensorSource,
} from "./checkpoints/tensors.ts";
export { hashWeights, type NamedShape, readWeights } from "./checkpoints/weights.ts";
export type { PlacedFile } from "./checkpoints/write.ts";
export type {
  GradientArray,
  ReduceAlgorithm,
  ReduceMessage,
  ReducePhase,
} from "./gradients/all_reduce.ts";
export type { CopyDigest, GradientSquares } from "./gradients/commit.ts";
export type { ReduceOptions, SyncStrategy, TieEnd } from "./gradients/sync.ts";
export type { SnapshotPlace } from "./options/option.ts";
export type {
  Metrics,
  MpiRunOptions,
  ReduceChoice,
  RunJournal,
  TrainOptions,
} from "./options/train_options.ts";
export type { StageCopy } from "./pipeline/layout.ts";
export type { LinkMessage, LinkOptions } from "./pipeline/links.ts";
export type {
  Fetch,
  PeerMessage,
  Stalled,
  SupervisorMessage,
  WorkerMessage,
  WriteOutcome,
} from "./pipeline/protocol.ts";
export type { CopyInit } from "./pipeline/stage_copies.ts";
export type {
  Doubt,
  LocalUpdates,
  MicroBatchShare,
  PolicyData,
  StepDropout,
  StepPlan,
  StepRequest,
  StepShares,
  TracedAction,
  Verification,
} from "./pipeline/step.ts";
export type { InFlightOptions, SupervisorInit } from "./pipeline/supervisor_state.ts";
export type { WorkerFault, WorkerInit } from "./pipeline/worker_state.ts";
export {
  mnist as MNIST_DATA,
  mobyDick as MOBY_DICK_DATA,
  sotu as SOTU_DATA,
} from "./registry/built_in_data.ts";
export {
  adamw as ADAMW_OPTIMIZER,
  gptModel as GPT_MODEL,
  mlpModel as MLP_MODEL,
  sgd as SGD_OPTIMIZER,
  supervisor as PIPELINE_SUPERVISOR,
  worker as PIPELINE_WORKER,
} from "./registry/built_in_models.ts";
export {
  type ComponentTypes,
  type DataComponent,
  type DataOptions,
  defineData,
  defineOptimizer,
  findComponent,
  type FoundComponent,
  importComponent,
  type ImportedComponent,
  type OptimizerComponent,
  type OptimizerSettings,
} from "./registry/component.ts";
export { openRegistry, type Registry, type Verified } from "./registry/registry.ts";
export { type Component, COMPONENT_KINDS, type ComponentKind } from "./registry/registry_file.ts";
export { openTask, type Task, type TaskOptions } from "./registry/task.ts";
export { type LoadedModel, loadModel, predict } from "./run/load_model.ts";
export { tensorboard, type Tracker } from "./run/metrics.ts";
export { NonFiniteError, train } from "./run/train.ts";
export { type ActorFactory, type Handlers, OTHERS } from "./runtime/actor.ts";
export type {
  AskCall,
  AskOptions,
  Candidate,
  Choose,
  Context,
  DeadLetterEvent,
  PlaceName,
  Reply,
  SendOptions,
  SlowStepEvent,
  SpawnOptions,
  StopOptions,
  Subscription,
  System,
  SystemEvent,
  SystemOptions,
  SystemStopOptions,
} from "./runtime/context.ts";
export {
  ActorFailedError,
  AskTimeoutError,
  type DeadLetter,
  type DeadReason,
  type Down,
  type Failure,
  type Reason,
} from "./runtime/failure.ts";
export type {
  Effect,
  ObservedActor,
  ObservedMessage,
  Observer,
  ObserverFactory,
  ObserverSpec,
} from "./runtime/observer.ts";
export type {
  Addend,
  Collectives,
  Invitation,
  IsolateSide,
  OpenTransport,
  PeerConnector,
  PeerReceiver,
  PeerSender,
  RemoteIsolate,
  StartRequest,
  Transport,
  TransportOptions,
} from "./runtime/transport.ts";
export {
  type ActorRef,
  type ActorSpec,
  type Answers,
  type AnswerTo,
  type Ask,
  type Lane,
  type Message,
  type Questions,
  shouldFail,
  type Undeclared,
} from "./runtime/types.ts";
export {
  type ActorDefinition,
  checkDefinition,
  defineActor,
  type PackageContext,
  type Permissions,
  type Schema,
  type Schemas,
} from "./sandbox/define.ts";
export {
  inspectActor,
  type InspectedActor,
  type InspectOptions,
  packageActor,
  type SandboxOptions,
} from "./sandbox/host.ts";
export {
  type GraphModule,
  type GraphOptions,
  type HashedModule,
  hashModule,
  type Lock,
  type ModuleGraph,
  type NpmPackage,
} from "./sandbox/modules.ts";
export {
  simulatedCheckpoints,
  type SimulatedCheckpointsOptions,
  type SimulatedCheckpointsResult,
} from "./simulated_training/checkpoints.ts";
export {
  simulatedTraining,
  type SimulatedTrainingOptions,
  type SimulatedTrainingResult,
  trainSerially,
} from "./simulated_training/simulated_training.ts";
export { decodeFrame, type EncodedFrame, encodeFrame } from "./transports/codec.ts";
export { type ServedIsolate, serveIsolate } from "./transports/serve.ts";
export { type FrameSink, type FrameSource, Outbox, receiveFrames } from "./transports/stream.ts";
export { createSystem } from "./transports/system.ts";
export type { JobShare, LoraOptions, StageState } from "../kernels/internal.ts";
export type { KernelModule } from "./pipeline/stage_copies.ts";
