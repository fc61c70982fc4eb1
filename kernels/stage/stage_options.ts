/**
 * How a stage is opened: its options, checked at the door.
 *
 * @module
 */

import type { Precision } from "../layers/precision.ts";
import {
  layersOf,
  parametersOf,
  precisionOf,
  type StageProgram,
} from "../compile/stage_program.ts";
import type { OptimizerOptions } from "../optimizer/optimizer_options.ts";
import type { SumOptions } from "../optimizer/gradient_sums.ts";
import { flatLength } from "../optimizer/parameters.ts";
import type { ActivationOptions } from "./activations/activations.ts";
import { checkInterval } from "./recompute_interval.ts";

/** Options of {@linkcode openStage}. */
export interface StageOptions extends ActivationOptions, SumOptions {
  /** Which optimizer, with its settings. */
  readonly optimizer: OptimizerOptions;
  /**
   * Elements of an optimizer bucket, at most those of the stage; 65,536 or all of them where not
   * given.
   */
  readonly bucketSize?: number;
  /** That of the program; told again, it must be the same. */
  readonly precision?: Precision;
  /** Whether master weights and moments rest on the host and visit the device in buckets. */
  readonly offload?: boolean;
  /** Versions of the weights that are kept for micro-batches in flight; 1 where not given. */
  readonly versions?: number;
}

/**
 * Checks options against a stage, at the door.
 *
 * @throws {RangeError} when the bucket or the recompute interval is not a positive integer, or the
 * bucket is larger than the stage.
 * @throws {TypeError} when the precision is not that of the program.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { ADAMW_DEFAULTS, checkStageOptions, compileModel, mlp } from "@troupe/troupe/kernels";
 *
 * const stage = compileModel(mlp({ inputs: 16, hidden: 32, layers: 1, classes: 4 }, 1), "none");
 * const options = { optimizer: ADAMW_DEFAULTS, backward: "whole", precision: "fp16" } as const;
 * assert.throws(() => checkStageOptions(stage, options), /that of its program, fp32, received fp16/);
 * ```
 */
export function checkStageOptions(program: StageProgram, options: StageOptions): void {
  checkInterval(options.recomputeInterval);
  const layers = layersOf(program), compiled = precisionOf(layers);
  const { precision = compiled, bucketSize } = options;
  if (precision !== compiled) {
    throw new TypeError(
      `Cannot open stage: precision must be that of its program, ${compiled}, received ${precision}`,
    );
  }
  if (bucketSize !== undefined) checkBucketSize(program, bucketSize);
}

/**
 * Checks the size of buckets that a user asks for; the default fits any stage.
 *
 * @param bucketSize in elements.
 * @throws {RangeError} when it is not a positive integer, or larger than a stage that is trained.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { checkBucketSize, compileModel, mlp } from "@troupe/troupe/kernels";
 *
 * const stage = compileModel(mlp({ inputs: 16, hidden: 32, layers: 2, classes: 4 }, 1), "none");
 * checkBucketSize(stage, 256);
 * assert.throws(() => checkBucketSize(stage, 1e6), /at most \d+, the elements of the stage/);
 * ```
 */
export function checkBucketSize(program: StageProgram, bucketSize: number): void {
  if (!Number.isSafeInteger(bucketSize) || bucketSize < 1) {
    throw new RangeError(
      `Cannot open stage: bucketSize must be a positive integer, received ${bucketSize}`,
    );
  }
  const trained = parametersOf(layersOf(program)).filter(({ frozen }) => !frozen);
  const elements = flatLength(trained);
  if (trained.length === 0 || bucketSize <= elements) return;
  throw new RangeError(
    `Cannot open stage: bucketSize must be at most ${elements}, the elements of the stage, received ${bucketSize}`,
  );
}
