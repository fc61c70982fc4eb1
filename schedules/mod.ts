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
export * from "./execution/analyze.ts";
export type { ClosedForm, UniformCosts } from "./definition/closed_form.ts";
export * from "./command.ts";
export * from "./compare.ts";
export * from "./execution/costs.ts";
export * from "./validation/deadlock.ts";
export * from "./definition/define_schedule.ts";
export { type ElasticOptions, elasticPolicy } from "./policies/elastic_policy.ts";
export * from "./execution/execute.ts";
export * from "./definition/from_lists.ts";
export { followList, listPolicies, type ListPolicy, withPolicy } from "./policies/list_policies.ts";
export * from "./validation/lower.ts";
export * from "./validation/match_transfers.ts";
export { formatGrid, type GridOptions } from "./pictures/grid.ts";
export * from "./pictures/svg.ts";
export * from "./definition/placements.ts";
export * from "./policies/policy.ts";
export * from "./registry.ts";
export * from "./report.ts";
export * from "./schedule.ts";
export { makespanLowerBound } from "./search/search.ts";
export * from "./execution/simulate.ts";
export * from "./smaller_schedule.ts";
export * from "./actions/text.ts";
export * from "./validation/validate.ts";
