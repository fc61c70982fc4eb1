/**
 * Foresight: what a machine costs, and what that says of runs that have not been.
 *
 * @module
 */

export { type CutRun, type RecommendedLayout, recommendLayout } from "./costs.ts";
export { type Prediction, type PredictOptions, predictStep } from "./predict.ts";
export {
  type ClosingCost,
  type LayerCost,
  type LinearCost,
  linearMs,
  type LinkCost,
  type LoadCost,
  type Profile,
  PROFILE_FORMAT,
  PROFILE_VERSION,
  type ProfiledMachine,
  type ProfileSource,
  type Spread,
} from "./profile.ts";
export { parseProfile, PROFILE_BYTES_MAX, readProfile } from "./profile.ts";
