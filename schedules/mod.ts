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

export * from "./action.ts";
export { ActionList } from "./action_list.ts";
export * from "./analyze.ts";
export type { ClosedForm, UniformCosts } from "./closed_form.ts";
export * from "./command.ts";
export * from "./compare.ts";
export * from "./costs.ts";
export * from "./deadlock.ts";
export * from "./define_schedule.ts";
export { type ElasticOptions, elasticPolicy } from "./elastic_policy.ts";
export * from "./execute.ts";
export * from "./from_lists.ts";
export { followList, listPolicies, type ListPolicy, withPolicy } from "./list_policies.ts";
export * from "./lower.ts";
export * from "./match_transfers.ts";
export { formatGrid, type GridOptions } from "./pictures/grid.ts";
export * from "./pictures/svg.ts";
export * from "./placements.ts";
export * from "./policy.ts";
export * from "./registry.ts";
export * from "./report.ts";
export * from "./schedule.ts";
export { makespanLowerBound } from "./search/search.ts";
export * from "./simulate.ts";
export * from "./smaller_schedule.ts";
export * from "./text.ts";
export * from "./validate.ts";
