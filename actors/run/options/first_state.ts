/**
 * The weights and moments that a run begins with, or where they come from.
 *
 * @module
 */

import { completeOptimizer, type ModelProgram, type StateOf } from "../../../kernels/mod.ts";
import {
  readState,
  readTensor,
  type TensorSource,
} from "../../checkpoints/tensors/tensor_source.ts";
import { locateWeights, readWeights } from "../../checkpoints/tensors/weights.ts";
import { checkResume, checkTensors } from "./check_resume.ts";
import type { TrainOptions } from "./train_options.ts";

/** Seed of the first weights unless asked otherwise. */
export const SEED = 1;

/**
 * Weights and moments before the first step: resumed, given, those of the model or to be drawn.
 *
 * @param workersRead whether workers can open a file of weights by themselves.
 * @throws {RangeError} when those that are given are not the model's.
 */
export async function firstState(
  { parameters, ties }: ModelProgram,
  { model, resume, weights = model.weights, seed = SEED, ...options }: TrainOptions,
  workersRead: boolean,
): Promise<StateOf<TensorSource>> {
  const { optimizer, journal, system } = options;
  // Messages must tell all that happened where a journal is written, or the system is another's.
  const isTold = journal !== undefined || system !== undefined;
  if (resume) {
    checkResume({ parameters }, completeOptimizer(optimizer), resume);
    return isTold || !workersRead ? readState(resume.state) : resume.state;
  }
  const moments = new Map();
  if (typeof weights === "string") {
    const read = workersRead && !isTold ? locateWeights : readWeights;
    return { weights: await read(weights, parameters, ties), moments };
  }
  if (weights) {
    checkTensors("weights", parameters, weights);
    return { weights, moments };
  }
  const drawn = parameters.map(({ name, spec }) => {
    const source: TensorSource = { kind: "drawn", spec, name, seed };
    return [name, isTold ? readTensor(source) : source] as const;
  });
  return { weights: new Map(drawn), moments };
}
