/**
 * The optimizers and their settings.
 *
 * @module
 */

/** AdamW (Loshchilov and Hutter, 2019), as in PyTorch but that one-dimensional tensors do not decay. */
export interface AdamWOptions {
  /** Which optimizer. */
  readonly kind: "adamw";
  /** Decay of the mean of gradients. */
  readonly beta1: number;
  /** Decay of the mean of their squares. */
  readonly beta2: number;
  /** Added to the root of the second moment. */
  readonly epsilon: number;
  /** Decoupled; on tensors with two or more dimensions only. */
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
  /** Decay of the velocity, μ. */
  readonly momentum: number;
  /** Added to the gradient; on tensors with two or more dimensions only. */
  readonly weightDecay: number;
}

/** An optimizer and its settings, as plain data. */
export type OptimizerOptions = AdamWOptions | SgdOptions;

/** Names of the moments of each optimizer, as PyTorch's state dictionaries call them. */
export const MOMENTS = {
  adamw: ["exp_avg", "exp_avg_sq"],
  sgd: ["momentum_buffer"],
} as const;
