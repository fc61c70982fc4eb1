/**
 * `--optimizer adamw` and `sgd`.
 *
 * @module
 */

import { ADAMW_DEFAULTS } from "../../../kernels/mod.ts";
import { defineOptimizer, type OptimizerPart } from "../optimizer_part.ts";

/** AdamW. */
export const adamw: OptimizerPart = defineOptimizer({
  name: "adamw",
  version: "1",
  options: ({ beta1, beta2, weightDecay }) => ({ ...ADAMW_DEFAULTS, beta1, beta2, weightDecay }),
});

/** SGD with momentum. */
export const sgd: OptimizerPart = defineOptimizer({
  name: "sgd",
  version: "1",
  options: ({ momentum, weightDecay }) => ({ kind: "sgd", momentum, weightDecay }),
});
