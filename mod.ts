/**
 * Troupe: message-driven pipeline-parallel training.
 *
 * A model is a list of layers; `train()` cuts it into stages, makes each worker an actor, and
 * streams micro-batches through under a schedule. What a training script or a study of schedules
 * needs is exported here; the rest has other entries: `@troupe/troupe/actors`, `/schedules`,
 * `/kernels`, `/predict`, `/testing` and `/cli`.
 *
 * @module
 */

export {
  type ActorFactory,
  type ActorRef,
  type ActorSpec,
  type Checkpoint,
  createSystem,
  defineModel,
  hashWeights,
  loadModel,
  NonFiniteError,
  predict,
  readCheckpoint,
  train,
  type TrainEvent,
  type TrainOptions,
} from "./actors/mod.ts";

export {
  accuracy,
  type Batch,
  bytesTokenizer,
  Dataset,
  digitBatches,
  generateText,
  gpt2,
  type Gpt2Config,
  gpt2Tokenizer,
  heldOutBatches,
  type Layer,
  type LayerGraph,
  loadDigits,
  loadText,
  mlp,
  type MlpConfig,
  mlpLogits,
  type Model,
  openDevice,
  openPredictor,
  rowCount,
  shuffledOrder,
  splitTokens,
  tokenBatches,
  type Tokenizer,
  type Value,
} from "./kernels/mod.ts";

export {
  type Action,
  type Analysis,
  analyze,
  assertValid,
  B,
  compareSchedules,
  type Costs,
  createSchedule,
  defineSchedule,
  F,
  formatComparison,
  formatGrid,
  formatSvg,
  I,
  type Schedule,
  scheduleNames,
  type ScheduleOptions,
  W,
  withLists,
} from "./schedules/mod.ts";
