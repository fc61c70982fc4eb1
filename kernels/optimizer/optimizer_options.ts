/**
 * The optimizers and their settings.
 *
 * @module
 */

/** AdamW (Loshchilov and Hutter, 2019), as in PyTorch but that one-dimensional tensors do not decay. */
export interface AdamWOptions {
  /** Which optimizer. */
  readonly kind: "adamw";
  /** Decay of the mean of gradients. Default 0.9. */
  readonly beta1: number;
  /** Decay of the mean of their squares. Default 0.999. */
  readonly beta2: number;
  /** Added to the root of the second moment. Default 1e-8. */
  readonly epsilon: number;
  /** Decoupled; on tensors with two or more dimensions only. Default 0.01. */
  readonly weightDecay: number;
}

/** PyTorch's defaults of AdamW, with its weight decay. */
export const ADAMW_DEFAULTS: AdamWOptions = {
  kind: "adamw",
  beta1: 0.9,
  beta2: 0.999,
  epsilon: 1e-8,
  weightDecay: 0.01,
};

/** SGD with momentum as in PyTorch: v ← μ·v + g + λ·w, w ← w − η·v. */
export interface SgdOptions {
  /** Which optimizer. */
  readonly kind: "sgd";
  /** Decay of the velocity, μ. Default 0. */
  readonly momentum: number;
  /** Added to the gradient; on tensors with two or more dimensions only. Default 0. */
  readonly weightDecay: number;
}

/** PyTorch's defaults of SGD: no momentum and no weight decay. */
export const SGD_DEFAULTS: SgdOptions = { kind: "sgd", momentum: 0, weightDecay: 0 };

/** An optimizer and its settings, as plain data. */
export type OptimizerOptions = AdamWOptions | SgdOptions;

/** The same, where settings may be left out; without `kind` it is AdamW. */
export type PartialOptimizer = Partial<AdamWOptions> | Partial<SgdOptions> & { kind: "sgd" };

/**
 * Adds the defaults, {@linkcode ADAMW_DEFAULTS} or {@linkcode SGD_DEFAULTS}, for settings that are
 * left out.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { ADAMW_DEFAULTS, completeOptimizer } from "@troupe/troupe/kernels";
 *
 * assert.deepEqual(completeOptimizer({ weightDecay: 0.1 }), { ...ADAMW_DEFAULTS, weightDecay: 0.1 });
 * ```
 */
export function completeOptimizer(given: PartialOptimizer = {}): OptimizerOptions {
  const settings = Object.fromEntries(Object.entries(given).filter(([, one]) => one !== undefined));
  return { ...given.kind === "sgd" ? SGD_DEFAULTS : ADAMW_DEFAULTS, ...settings };
}

/** Names of the moments of each optimizer, as PyTorch's state dictionaries call them. */
export const MOMENTS = {
  adamw: ["exp_avg", "exp_avg_sq"],
  sgd: ["momentum_buffer"],
} as const;
