/**
 * Schedules: the actions of each worker and their order. Pure functions; nothing here runs a model.
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
  type Part,
  R,
  sliced,
  W,
} from "./action.ts";
export { ActionList } from "./action_list.ts";
export { formatCsv, formatTorchCsv, parseAction, parseCsv } from "./action_list.ts";
export {
  type Analysis,
  analyze,
  type Bubble,
  bubbles,
  type CriticalPath,
  criticalPath,
  type LiveActivations,
  liveActivations,
} from "./analysis/analyze.ts";
export {
  type MemoryBudget,
  type MemoryCosts,
  type MemoryCurve,
  stageMemories,
  type StageMemory,
  type WorkerBytes,
} from "./analysis/memory.ts";
export {
  type Fits,
  type LayerSkip,
  type LayerTimes,
  partitionForSchedule,
  type SchedulePartition,
} from "./analysis/partition.ts";
export { withRecomputation } from "./analysis/recomputation.ts";
export {
  type ComparedWith,
  compareSchedules,
  type Comparison,
  formatComparison,
  longestBubbles,
} from "./analysis/report.ts";
export { smallerSchedule } from "./built_in/last_step.ts";
export {
  createSchedule,
  findSchedule,
  scheduleDefinitions,
  scheduleNames,
} from "./built_in/registry.ts";
export type { Cost, Costs } from "./costs.ts";
export {
  bidirectional,
  type ChimeraScale,
  defineSchedule,
  linear,
  looped,
  type OptionReader,
  type Place,
  type PolicyRule,
  readOptions,
  requireOption,
  type ScheduleDefinition,
  type ScheduleOptions,
  type ScheduleRule,
  wave,
} from "./define.ts";
export { type AwaitedInput, execute, type Execution, type Timeline } from "./execute.ts";
export { scheduleFromLists, withOrders } from "./schedule.ts";
export { formatGrid, type GridOptions } from "./pictures/grid.ts";
export { formatSvg } from "./pictures/svg.ts";
export {
  type DispatchPolicy,
  type ElasticOptions,
  elasticPolicy,
  type ListPolicy,
  listPolicy,
  type MailboxOrder,
  type ReadinessOptions,
  readinessPolicy,
  type StepPolicy,
} from "./policies.ts";
export {
  type ListedSchedule,
  type PeakBounds,
  pipelineWorkers,
  type PlacedStage,
  type Schedule,
  type WeightUpdates,
  withPolicy,
} from "./schedule.ts";
export { makespanLowerBound } from "./search/lower_bound.ts";
export {
  type Jitter,
  type Link,
  type MicroBatchLoad,
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
export {
  type Candidate,
  type Trial,
  type TrialOptions,
  tryCandidates,
} from "./simulator/trials.ts";
export type { SkipEdge } from "./skip_edges.ts";
export {
  assertValid,
  findDeadlock,
  validate,
  type ValidationLimits,
  type Violation,
  type ViolationReason,
} from "./validate.ts";
