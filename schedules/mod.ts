/**
 * Schedules: who computes what, when. Pure functions; nothing here runs a model.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { createSchedule } from "@troupe/troupe/schedules";
 *
 * const { lists } = createSchedule("gpipe", { workers: 2, microBatches: 2 });
 * strictEqual(String(lists?.[0]), "0F0,0F1,0B0,0B1");
 * ```
 *
 * @module
 */

export {
  type Action,
  type ActionKind,
  B,
  F,
  formatAction,
  I,
  isPlain,
  overlap,
  parts,
  R,
  sliced,
  W,
} from "./action.ts";
export { ActionList } from "./action_list.ts";
export { formatCsv, formatTorchCsv, parseAction, parseCsv } from "./action_text.ts";
export { type Cost, type Costs, type StageTimes, stageTimes } from "./costs.ts";
export {
  bidirectional,
  type ChimeraScale,
  type ClosedForm,
  defineSchedule,
  evenShare,
  linear,
  looped,
  type OptionReader,
  type Place,
  type PolicyRule,
  readOptions,
  refuseUnread,
  requireOption,
  type ScheduleDefinition,
  type ScheduleOption,
  type ScheduleOptions,
  type ScheduleRule,
  type UniformCosts,
  unreadOptions,
  wave,
} from "./define.ts";
export { Readiness } from "./dependencies.ts";
export { type AwaitedInput, execute, type Execution, type Timeline } from "./execute.ts";
export * from "./from_lists.ts";
export {
  type DispatchPolicy,
  type ElasticOptions,
  elasticPolicy,
  followList,
  isOffered,
  listPolicies,
  type ListPolicy,
  listPolicy,
  type MailboxOrder,
  messageDrivenPolicy,
  type StepPolicy,
  takeOffers,
} from "./policies.ts";
export {
  activationParts,
  edgesOfParts,
  hostTable,
  type ListedSchedule,
  type PeakBounds,
  pipelineWorkers,
  type PlacedStage,
  type Schedule,
  type WeightUpdates,
  withEdges,
  withPolicy,
} from "./schedule.ts";
export { formatEdge, type SkipEdge } from "./skip_edges.ts";
export {
  assertValid,
  findDeadlock,
  validate,
  type ValidationLimits,
  type Violation,
  violationError,
  type ViolationReason,
} from "./validate.ts";
export {
  type Analysis,
  analyze,
  type Bubble,
  bubbles,
  type LiveActivations,
  liveActivations,
} from "./analysis/analyze.ts";
export * from "./analysis/compare.ts";
export {
  activationLimitOf,
  fullestWorker,
  type MemoryBudget,
  type MemoryCosts,
  type MemoryCurve,
  memoryWithin,
  scheduleMemory,
  stageMemories,
  type StageMemory,
  type WorkerBytes,
} from "./analysis/memory.ts";
export {
  checkpointedOutputs,
  type ChimeraStep,
  chimeraStep,
  type ChimeraStepTime,
  type CriticalPath,
  criticalPath,
  hanayoBubbleRatio,
  hanayoPrintedRatio,
  type HanayoStep,
  type LinkModel,
  messageMs,
  mixedPrecisionBytes,
  printedOutputs,
  rabenseifnerMs,
  recomputedStepFlops,
  type TransformerSizes,
  unoverlappedReduce,
} from "./analysis/paper_models.ts";
export {
  type Fits,
  type LayerSkip,
  type LayerTimes,
  partitionForSchedule,
  type SchedulePartition,
} from "./analysis/partition.ts";
export * from "./analysis/recomputation.ts";
export * from "./analysis/report.ts";
export { type SkipTraffic, skipTraffic } from "./analysis/skip_memory.ts";
export * from "./built_in/last_step.ts";
export * from "./built_in/registry.ts";
export { formatGrid, type GridOptions } from "./pictures/grid.ts";
export { formatSvg } from "./pictures/svg.ts";
export { makespanLowerBound } from "./search/lower_bound.ts";
export * from "./simulator/mailbox_choice.ts";
export {
  type Jitter,
  type Link,
  modelOfCosts,
  type Network,
  type Offload,
  type SimulatedStep,
  type StageModel,
  type StepEndModel,
  type StepEndSpan,
  type StepModel,
  type WorkerTimes,
} from "./simulator/model.ts";
export { simulateStep, withLists } from "./simulator/simulate.ts";
