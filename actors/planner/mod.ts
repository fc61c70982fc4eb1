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
  parseProfile,
  type Profile,
  PROFILE_BYTES_MAX,
  PROFILE_FORMAT,
  PROFILE_VERSION,
  type ProfiledMachine,
  type ProfileSource,
  readProfile,
  type Spread,
} from "./profile.ts";
