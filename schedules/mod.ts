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
export { formatCsv, parseAction, parseCsv } from "./action_text.ts";
export { formatTorchCsv } from "./action_text.ts";
export * from "./analysis/compare.ts";
export type { ClosedForm, UniformCosts } from "./define.ts";
export { defineSchedule } from "./define.ts";
export * from "./from_lists.ts";
export type { ChimeraScale, ScheduleOption, ScheduleOptions } from "./define.ts";
export { bidirectional, evenShare, linear, looped, wave } from "./define.ts";
export { type OptionReader, readOptions, refuseUnread, unreadOptions } from "./define.ts";
export { requireOption } from "./define.ts";
export type { Place, PolicyRule, ScheduleDefinition, ScheduleRule } from "./define.ts";
export { edgesOfParts } from "./schedule.ts";
export { formatEdge, type SkipEdge } from "./skip_edges.ts";
export { type SkipTraffic, skipTraffic } from "./analysis/skip_memory.ts";
export { withEdges } from "./schedule.ts";
export { type Analysis, analyze, type Bubble, bubbles } from "./analysis/analyze.ts";
export type { Cost, Costs } from "./costs.ts";
export { type AwaitedInput, execute, type Execution, type Timeline } from "./execute.ts";
export { type LiveActivations, liveActivations } from "./analysis/analyze.ts";
export { withLists } from "./simulator/simulate.ts";
export { type StageTimes, stageTimes } from "./costs.ts";
export {
  checkpointedOutputs,
  mixedPrecisionBytes,
  printedOutputs,
  recomputedStepFlops,
  type TransformerSizes,
} from "./analysis/paper_models.ts";
export {
  type ChimeraStep,
  chimeraStep,
  type ChimeraStepTime,
  type CriticalPath,
  criticalPath,
  unoverlappedReduce,
} from "./analysis/paper_models.ts";
export { hanayoBubbleRatio, hanayoPrintedRatio, type HanayoStep } from "./analysis/paper_models.ts";
export { type LinkModel, messageMs, rabenseifnerMs } from "./analysis/paper_models.ts";
export { formatGrid, type GridOptions } from "./pictures/grid.ts";
export {
  type Fits,
  type LayerSkip,
  type LayerTimes,
  partitionForSchedule,
  type SchedulePartition,
} from "./analysis/partition.ts";
export { formatSvg } from "./pictures/svg.ts";
export { type ElasticOptions, elasticPolicy } from "./policies.ts";
export type { MemoryCurve } from "./analysis/memory.ts";
export { activationLimitOf, type MemoryBudget, memoryWithin } from "./analysis/memory.ts";
export * from "./analysis/recomputation.ts";
export { fullestWorker, scheduleMemory, type WorkerBytes } from "./analysis/memory.ts";
export { type MemoryCosts, stageMemories, type StageMemory } from "./analysis/memory.ts";
export { followList, listPolicies, type ListPolicy, listPolicy } from "./policies.ts";
export { type MailboxOrder, messageDrivenPolicy } from "./policies.ts";
export { isOffered, takeOffers } from "./policies.ts";
export type { DispatchPolicy, StepPolicy } from "./policies.ts";
export { withPolicy } from "./schedule.ts";
export * from "./built_in/registry.ts";
export * from "./analysis/report.ts";
export type {
  ListedSchedule,
  PeakBounds,
  PlacedStage,
  Schedule,
  WeightUpdates,
} from "./schedule.ts";
export { makespanLowerBound } from "./search/lower_bound.ts";
export * from "./simulator/mailbox_choice.ts";
export { simulateStep } from "./simulator/simulate.ts";
export type { ClosingSpan, SimulatedStep, WorkerTimes } from "./simulator/model.ts";
export {
  type Closing,
  type Jitter,
  type Link,
  modelOfCosts,
  type Network,
  type Offload,
  type StageModel,
  type StepModel,
} from "./simulator/model.ts";
export * from "./built_in/last_step.ts";
export { activationParts, hostTable, pipelineWorkers } from "./schedule.ts";
export { findDeadlock } from "./validate.ts";
export { assertValid, validate, type ValidationLimits, violationError } from "./validate.ts";
export type { Violation, ViolationReason } from "./validate.ts";
