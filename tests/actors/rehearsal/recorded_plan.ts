/**
 * The training run whose journal is kept for later releases.
 *
 * @module
 */

import type { RehearsalPlan } from "../../../actors/mod.ts";

/** Two copies of each stage, so that there is an all-reduce; two steps. */
export const RECORDED_PLAN: RehearsalPlan = {
  schedule: "chimera",
  workers: 2,
  microBatches: 2,
  replicas: 1,
  steps: 2,
};
