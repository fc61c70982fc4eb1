/**
 * The weights and moments that a run begins with.
 *
 * @module
 */

import {
  ADAMW_DEFAULTS,
  initialValues,
  type ModelProgram,
  type StageState,
} from "../../../kernels/mod.ts";
import { readWeights } from "../../checkpoints/weights.ts";
import { checkResume, checkTensors } from "./check_resume.ts";
import type { TrainOptions } from "./train_options.ts";

/** Seed of the first weights unless asked otherwise. */
export const SEED = 1;

/**
 * Weights and moments before the first step: resumed, given or drawn.
 *
 * @throws {RangeError} when those that are given are not the model's.
 */
export async function firstState(
  { parameters, ties }: ModelProgram,
  { resume, weights, seed = SEED, optimizer = ADAMW_DEFAULTS }: TrainOptions,
): Promise<StageState> {
  if (resume) {
    checkResume({ parameters }, optimizer, resume);
    return resume.state;
  }
  const moments = new Map();
  if (typeof weights === "string") {
    return { weights: await readWeights(weights, parameters, ties), moments };
  }
  if (weights) {
    checkTensors("weights", parameters, weights);
    return { weights, moments };
  }
  const drawn = parameters.map(({ name, spec }) =>
    [name, initialValues(spec, name, seed)] as const
  );
  return { weights: new Map(drawn), moments };
}
