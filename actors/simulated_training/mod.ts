/**
 * Rehearsals: training under simulation, with stand-ins for the kernels.
 *
 * @module
 */

export * from "./checkpoints.ts";
export {
  rehearsal,
  type RehearsalPlan,
  type Rehearsed,
  rehearseSerially,
} from "./simulated_training.ts";
