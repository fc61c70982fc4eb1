/**
 * Rehearsals: training under simulation, with stand-ins for the kernels.
 *
 * @module
 */

export * from "./checkpoints.ts";
export {
  simulatedTraining,
  type SimulatedTrainingOptions,
  type SimulatedTrainingResult,
  trainSerially,
} from "./simulated_training.ts";
