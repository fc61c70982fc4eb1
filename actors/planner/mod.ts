/**
 * Plans runs: profiles of a machine, predicted steps and the runs with the shortest steps.
 *
 * @module
 */

export { type CutRun, type RecommendedLayout, recommendLayout } from "./costs.ts";
export { type Prediction, type PredictOptions, predictStep } from "./predict.ts";
export {
  type LayerCost,
  type LinearCost,
  linearMs,
  type LinkCost,
  type LoadCost,
  parseProfile,
  type Profile,
  PROFILE_BYTES_MAX,
  PROFILE_FORMAT,
  PROFILE_VERSION,
  type ProfiledMachine,
  type ProfileSource,
  readProfile,
  type Spread,
  type StepEndCosts,
} from "./profile.ts";
