/**
 * Options of a stage and of its optimizer, with their checks.
 *
 * @module
 */

import type { Ints } from "../graph/shapes.ts";
import type { Precision } from "../precision.ts";
import type { ActivationOptions } from "./activations.ts";

/** Schedules of the learning rate after the warm-up. */
export const LEARNING_RATE_SCHEDULES = ["constant", "linear", "cosine", "one-cycle"] as const;

/** Of one cycle: the highest rate over the first one, that over the last one, and the rise's share. */
const CYCLE = { first: 25, last: 25e4, rise: 0.3 } as const;

/** Learning rate over a run. */
export interface LearningRate {
  /** The highest rate. */
  readonly rate: number;
  /**
   * After the warm-up: constant, or a decrease to `minRate`, linear or along half a cosine. One cycle,
   * as PyTorch's `OneCycleLR`: along half a cosine up from a 25th of the rate, and down.
   */
  readonly schedule: (typeof LEARNING_RATE_SCHEDULES)[number];
  /**
   * Steps of the linear warm-up from zero, or of the rise of one cycle; the last one has the full
   * rate. 0 for one cycle: 0.3 of all steps.
   */
  readonly warmup: number;
  /**
   * Rate at the end of a linear or cosine decrease. As in PyTorch the first step after the warm-up
   * has the full rate, so the last step is one decrement above this. The last step of one cycle has
   * this rate, or a 250,000th of the highest if it is 0. Default 0.
   */
  readonly minRate?: number | undefined;
  /** Number of steps until the last rate, which later steps keep. */
  readonly steps: number;
}

/**
 * Returns the learning rate of step `step`, counted from 1.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { learningRateAt } from "@troupe/troupe/kernels";
 *
 * const cosine = { rate: 1, schedule: "cosine", warmup: 2, steps: 6 } as const;
 * assert.deepEqual([1, 2, 3].map((step) => learningRateAt(cosine, step)), [0.5, 1, 1]);
 * assert.ok(learningRateAt(cosine, 6) < 0.2);
 * const linear = { ...cosine, schedule: "linear", minRate: 0.5 } as const;
 * assert.deepEqual([3, 5, 9].map((step) => learningRateAt(linear, step)), [1, 0.75, 0.5]);
 * ```
 */
export function learningRateAt(
  { rate, schedule, warmup, minRate = 0, steps }: LearningRate,
  step: number,
): number {
  if (schedule === "one-cycle") {
    const rise = (warmup || CYCLE.rise * steps) - 1, at = step - 1, isUp = at <= rise;
    const [from, to] = isUp ? [rate / CYCLE.first, rate] : [rate, minRate || rate / CYCLE.last];
    const progress = isUp ? (rise > 0 ? at / rise : 1) : (at - rise) / (steps - 1 - rise);
    return to + (from - to) * 0.5 * (1 + Math.cos(Math.PI * Math.min(1, progress)));
  }
  if (step <= warmup) return rate * step / warmup;
  if (schedule === "constant") return rate;
  const progress = Math.min(1, (step - warmup - 1) / Math.max(1, steps - warmup));
  const left = schedule === "linear" ? 1 - progress : 0.5 * (1 + Math.cos(Math.PI * progress));
  return minRate + (rate - minRate) * left;
}

/** AdamW (Loshchilov and Hutter, 2019) as in PyTorch, without decay of one-dimensional tensors. */
export interface AdamWOptions {
  /** The optimizer. */
  readonly kind: "adamw";
  /** Decay of the mean of gradients. Default 0.9. */
  readonly beta1: number;
  /** Decay of the mean of squared gradients. Default 0.999. */
  readonly beta2: number;
  /** Added to the root of the second moment. Default 1e-8. */
  readonly epsilon: number;
  /** Decoupled weight decay, for tensors with two or more dimensions only. Default 0.01. */
  readonly weightDecay: number;
  /**
   * Settings of the parameters whose full name is `match`, in which `*` matches any characters; of
   * several groups the first one counts. `rate` is a factor of the learning rate, `weightDecay` applies
   * to all tensors of the group, and `frozen` ones keep their initial values. Default: none.
   */
  readonly groups?:
    | readonly {
      readonly match: string;
      readonly rate?: number | undefined;
      readonly weightDecay?: number | undefined;
      readonly frozen?: boolean | undefined;
    }[]
    | undefined;
  /**
   * Decay of an exponential moving average of the weights, which begins with the first ones: a moment
   * with the name `ema`, which evaluations can use. Default: none.
   */
  readonly ema?: number | undefined;
}

/** PyTorch's defaults of AdamW. */
export const ADAMW_DEFAULTS: AdamWOptions = {
  kind: "adamw",
  beta1: 0.9,
  beta2: 0.999,
  epsilon: 1e-8,
  weightDecay: 0.01,
};

/** SGD with momentum as in PyTorch: v ← μ·v + g + λ·w, w ← w − η·v. */
export interface SgdOptions extends Pick<AdamWOptions, "groups" | "ema"> {
  /** The optimizer. */
  readonly kind: "sgd";
  /** Decay of the velocity, μ. Default 0. */
  readonly momentum: number;
  /** Added to the gradient of tensors with two or more dimensions. Default 0. */
  readonly weightDecay: number;
}

/** PyTorch's defaults of SGD: no momentum and no weight decay. */
export const SGD_DEFAULTS: SgdOptions = { kind: "sgd", momentum: 0, weightDecay: 0 };

/**
 * An optimizer and its settings, as plain data. Lion (Chen et al. 2023) is w ← w·(1 − ηλ) − η·sign(β₁·m
 * + (1 − β₁)·g), m ← β₂·m + (1 − β₂)·g; its defaults are 0.9, 0.99 and no weight decay.
 *
 * Adafactor (Shazeer and Stern, 2018) is that of PyTorch. Of tensors with two or more dimensions it
 * keeps the means of squared gradients of rows and of columns only, whose decay at step t is 1 −
 * t^`beta2Decay` (−0.8). An update has a root mean square of at most `clipThreshold` (1), times the
 * learning rate, at most 1/√t, times that of the weights, at least `epsilon` (1e-3).
 */
export type OptimizerOptions =
  | AdamWOptions
  | SgdOptions
  | Omit<AdamWOptions, "kind" | "epsilon"> & { readonly kind: "lion" }
  | Omit<AdamWOptions, "kind" | "beta1" | "beta2"> & {
    readonly kind: "adafactor";
    readonly beta2Decay: number;
    readonly clipThreshold: number;
  };

/** The options of Adafactor. */
export type AdafactorOptions = Extract<OptimizerOptions, { readonly kind: "adafactor" }>;

/** Optimizer options with optional settings; without `kind` it is AdamW. */
export type PartialOptimizer =
  | Partial<AdamWOptions>
  | Partial<SgdOptions> & { kind: "sgd" }
  | Partial<Omit<AdamWOptions, "kind" | "epsilon">> & { kind: "lion" }
  | Partial<Extract<OptimizerOptions, { kind: "adafactor" }>> & { kind: "adafactor" };

/**
 * Fills in {@linkcode ADAMW_DEFAULTS} or {@linkcode SGD_DEFAULTS} for settings that are not given.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { ADAMW_DEFAULTS } from "@troupe/troupe/kernels";
 *
 * assert.deepEqual(completeOptimizer({ weightDecay: 0.1 }), { ...ADAMW_DEFAULTS, weightDecay: 0.1 });
 * ```
 */
export function completeOptimizer(given: PartialOptimizer = {}): OptimizerOptions {
  const settings = Object.fromEntries(Object.entries(given).filter(([, one]) => one !== undefined));
  const { kind = "adamw" } = given;
  return { ...DEFAULTS[kind], ...settings } as OptimizerOptions;
}

const DEFAULTS = {
  adamw: ADAMW_DEFAULTS,
  sgd: SGD_DEFAULTS,
  lion: { kind: "lion", beta1: 0.9, beta2: 0.99, weightDecay: 0 },
  adafactor: {
    ...{ kind: "adafactor", beta2Decay: -0.8, epsilon: 1e-3, clipThreshold: 1, weightDecay: 0 },
  },
} as const;

/** Names of the moments of each optimizer, as in PyTorch's state dictionaries. */
export const MOMENTS = {
  adamw: ["exp_avg", "exp_avg_sq"],
  sgd: ["momentum_buffer"],
  lion: ["exp_avg"],
  adafactor: ["row_var", "col_var", "variance"],
} as const;

/** The moment with the average of the weights. */
export const AVERAGE = "ema";

/** Returns the moments that an optimizer keeps of a parameter. */
export function momentsOf({ kind, ema }: OptimizerOptions, shape: Ints) {
  const average = { name: AVERAGE, shape, index: stateCount({ kind }) };
  const averages = ema === undefined ? [] : [average];
  if (kind !== "adafactor") {
    return [...MOMENTS[kind].map((name, index) => ({ name, shape, index })), ...averages];
  }
  if (shape.length < 2) return [{ name: "variance", shape, index: 0 }, ...averages];
  const columns = [...shape.slice(0, -2), shape.at(-1)!];
  return [
    { name: "row_var", shape: shape.slice(0, -1), index: 0 },
    { name: "col_var", shape: columns, index: 1 },
    ...averages,
  ];
}

/** Returns the number of states of an optimizer, each with a moment of every parameter, or of some. */
export const stateCount = ({ kind, ema }: Pick<OptimizerOptions, "kind" | "ema">): number =>
  (kind === "adafactor" ? 2 : MOMENTS[kind].length) + (ema === undefined ? 0 : 1);

/** Returns the index of the group of a parameter, by its full name; undefined if it is in none. */
export function groupOf({ groups = [] }: OptimizerOptions, name: string): number | undefined {
  const index = groups.findIndex(({ match }) =>
    new RegExp(`^${match.split("*").map(RegExp.escape).join(".*")}$`, "s").test(name)
  );
  return index < 0 ? undefined : index;
}

/** Options of the memory for adding on a device with separate memory. */
export interface SumOptions {
  /** Number of gradients that are added, including the stage's own. Default 1. */
  readonly addends?: number;
  /** True if this device computes the copies of the stage one after the other, and adds them. */
  readonly collects?: boolean;
}

/** Options of a stage on a device. */
export interface StageOptions extends ActivationOptions, SumOptions {
  /** The optimizer and its settings. */
  readonly optimizer: OptimizerOptions;
  /**
   * Elements of an optimizer bucket, at most those of the stage. Default 65,536, or all of them.
   */
  readonly bucketSize?: number;
  /** Precision, which must be that of the program. Default: that of the program. */
  readonly precision?: Precision;
  /** Stores master weights and moments on the host and copies them to the device by bucket. */
  readonly offload?: boolean;
  /** Versions of the weights that are kept for micro-batches in flight. Default 1. */
  readonly versions?: number;
  /** True if forwards can use the average of the weights, `ema` of the optimizer. */
  readonly average?: boolean;
}
