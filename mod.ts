/**
 * Troupe: message-driven pipeline-parallel training.
 *
 * A model is a list of layers; `train()` cuts it into stages, makes each worker an actor, and
 * streams micro-batches through under a schedule. What a training script or a study of schedules
 * needs is exported here; the rest has entries of its own: `@troupe/troupe/actors`, `/schedules`,
 * `/kernels`, `/testing` and `/cli`.
 *
 * @module
 */

export { createSystem, hashWeights, NonFiniteError, readCheckpoint, train } from "./actors/mod.ts";
export type {
  ActorFactory,
  ActorRef,
  ActorSpec,
  Checkpoint,
  TrainEvent,
  TrainOptions,
} from "./actors/mod.ts";

export {
  bytesTokenizer,
  digitBatches,
  generateText,
  gpt2,
  gpt2Tokenizer,
  heldOutBatches,
  loadDigits,
  loadText,
  mlp,
  mlpLogits,
  openDevice,
  openPredictor,
  rowCount,
  shuffledOrder,
  splitTokens,
  tokenBatches,
} from "./kernels/mod.ts";
export type {
  Batch,
  Gpt2Config,
  Layer,
  LayerGraph,
  MlpConfig,
  Model,
  Tokenizer,
  Value,
} from "./kernels/mod.ts";

export {
  analyze,
  assertValid,
  B,
  compareSchedules,
  createSchedule,
  defineSchedule,
  F,
  formatComparison,
  formatGrid,
  formatSvg,
  I,
  parseCsv,
  scheduleNames,
  W,
  withLists,
} from "./schedules/mod.ts";
export type { Action, Analysis, Costs, Schedule, ScheduleOptions } from "./schedules/mod.ts";
