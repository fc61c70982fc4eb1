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

export * from "./actions/action.ts";
export { ActionList } from "./actions/action_list.ts";
export * from "./actions/text.ts";
export * from "./actions/torch_csv.ts";
export * from "./compare.ts";
export type { ClosedForm, UniformCosts } from "./definition/closed_form.ts";
export { defineSchedule } from "./definition/define_schedule.ts";
export * from "./definition/from_lists.ts";
export * from "./definition/options.ts";
export * from "./definition/placements.ts";
export {
  type OptionReader,
  readOptions,
  refuseUnread,
  unreadOptions,
} from "./definition/read_options.ts";
export * from "./definition/require_option.ts";
export * from "./definition/rule.ts";
export { edgesOfParts } from "./edges/edges_of_parts.ts";
export { formatEdge, type SkipEdge } from "./edges/skip_edge.ts";
export { type SkipTraffic, skipTraffic } from "./edges/skip_traffic.ts";
export { withEdges } from "./edges/with_edges.ts";
export * from "./execution/analyze.ts";
export * from "./execution/costs.ts";
export * from "./execution/execute.ts";
export * from "./execution/live_activations.ts";
export * from "./execution/simulate.ts";
export { type StageTimes, stageTimes } from "./execution/stage_times.ts";
export * from "./models/axonn_model.ts";
export * from "./models/chimera_model.ts";
export * from "./models/hanayo_model.ts";
export { type LinkModel, messageMs, rabenseifnerMs } from "./models/link_model.ts";
export { formatGrid, type GridOptions } from "./pictures/grid.ts";
export * from "./partition/partition_schedule.ts";
export * from "./pictures/svg.ts";
export { type ElasticOptions, elasticPolicy } from "./policies/elastic_policy.ts";
export type { MemoryCurve } from "./memory/memory_levels.ts";
export { activationLimitOf, type MemoryBudget, memoryWithin } from "./memory/memory_budget.ts";
export * from "./memory/recomputation.ts";
export * from "./memory/schedule_memory.ts";
export * from "./memory/stage_memory.ts";
export * from "./policies/list_policies.ts";
export * from "./policies/message_driven_policy.ts";
export * from "./policies/offers.ts";
export * from "./policies/policy.ts";
export { withPolicy } from "./policies/with_policy.ts";
export * from "./registry.ts";
export * from "./report.ts";
export * from "./schedule.ts";
export { makespanLowerBound } from "./search/lower_bound.ts";
export * from "./simulator/mailbox_choice.ts";
export { simulateStep } from "./simulator/simulate_step.ts";
export * from "./simulator/simulated_step.ts";
export * from "./simulator/step_model.ts";
export * from "./smaller_schedule.ts";
export * from "./stages.ts";
export * from "./validation/deadlock.ts";
export * from "./validation/validate.ts";
export * from "./validation/violation.ts";
