/**
 * Foresight: what a machine costs, and what that says of runs that have not been.
 *
 * @module
 */

export { type CutRun, type RecommendedLayout, recommendLayout } from "./partition.ts";
export { type Prediction, type PredictOptions, predictStep } from "./predict.ts";
export * from "./profile/profile.ts";
export * from "./profile/read_profile.ts";
