/**
 * Rehearsals: training under simulation, with stand-ins for the kernels.
 *
 * @module
 */

export * from "./checkpoints.ts";
export type { RehearsalPlan } from "./simulated_training.ts";
export { rehearsal, type Rehearsed, rehearseSerially } from "./simulated_training.ts";
