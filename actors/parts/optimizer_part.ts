/**
 * What a module exports as `optimizer`: the settings of one of the optimizers that there are.
 *
 * Workers step their weights by ONNX models of AdamW and SGD, made where they run; a step of another
 * kind cannot come from a module.
 *
 * @module
 */

import type { PartialOptimizer } from "../../kernels/mod.ts";

/** What the flags of `troupe train` say of the optimizer. */
export interface OptimizerSettings {
  /** Decay of the mean of gradients. */
  readonly beta1: number;
  /** Decay of the mean of their squares. */
  readonly beta2: number;
  /** Decay of the velocity. */
  readonly momentum: number;
  /** Weight decay. */
  readonly weightDecay: number;
}

/**
 * An optimizer that a module exports by the name `optimizer`: AdamW or SGD, with settings of its own.
 */
export interface OptimizerPart {
  /** What it is called: letters, digits, `.`, `_` and `-`. */
  readonly name: string;
  /** Its version, as people read it. */
  readonly version: string;
  /** The optimizer and its settings, as plain data; a setting that is left out has its default. */
  options(settings: OptimizerSettings): PartialOptimizer;
}

/**
 * Gives an optimizer part its types. A package that does not want to import Troupe exports the same
 * record as it is.
 *
 * @example
 * ```ts
 * import { defineOptimizer } from "@troupe/troupe/actors";
 * import assert from "node:assert/strict";
 *
 * export const optimizer = defineOptimizer({
 *   name: "plain",
 *   version: "1.0.0",
 *   options: ({ weightDecay }) => ({ kind: "sgd", momentum: 0, weightDecay }),
 * });
 * assert.equal(optimizer.name, "plain");
 * ```
 */
export function defineOptimizer(part: OptimizerPart): OptimizerPart {
  return part;
}
