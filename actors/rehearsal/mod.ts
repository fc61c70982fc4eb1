/**
 * Rehearsals: training under simulation, with stand-ins for the kernels.
 *
 * @module
 */

export * from "./checkpoints.ts";
export type { RehearsalPlan } from "./plan.ts";
export * from "./rehearsal.ts";
