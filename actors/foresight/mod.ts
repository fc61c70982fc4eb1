/**
 * Foresight: what a machine costs, and what that says of runs that have not been.
 *
 * @module
 */

export { type CheckOptions, checkProfile } from "./check/check_profile.ts";
export * from "./check/checked_step.ts";
export { type Configuration, configurationsFor } from "./check/configurations.ts";
export type { StepParts } from "./check/step_parts.ts";
export * from "./predict.ts";
export { type Meter, type MeterOptions, openMeter } from "./profile/meter.ts";
export * from "./profile/profile.ts";
export * from "./profile/read_profile.ts";
