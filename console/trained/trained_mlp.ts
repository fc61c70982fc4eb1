/**
 * A multilayer perceptron that was trained, in the folder of a checkpoint.
 *
 * @module
 */

import type { Checkpoint, TensorSource } from "../../actors/checkpoints/mod.ts";
import { checkTensors } from "../../actors/run/options/check_resume.ts";
import { compileModel, mlp, type MlpConfig } from "../../kernels/mod.ts";
import { quoted } from "../escape.ts";
import type { Doing } from "./find_checkpoint.ts";

/** An MLP that was trained. */
export interface TrainedMlp {
  /** What it is. */
  readonly architecture: "mlp";
  /** The folder in which it was found: that of a checkpoint. */
  readonly path: string;
  /** Its sizes. */
  readonly config: MlpConfig;
  /** Where its weights lie, by name; read with `readTensors`. */
  readonly weights: ReadonlyMap<string, TensorSource>;
}

const SIZES = ["inputs", "hidden", "layers", "classes"] as const;

/**
 * The MLP of a checkpoint, whose weights are exactly those of such a model.
 *
 * @throws {RangeError} in one sentence for the user, when the checkpoint says otherwise.
 */
export function trainedMlp(
  doing: Doing,
  { path, config: about, state: { weights }, shapes }: Checkpoint<TensorSource>,
): TrainedMlp {
  for (const name of SIZES) {
    if (Number.isSafeInteger(about[name])) continue;
    throw new RangeError(
      `Cannot ${doing} from ${path}: its ${name} must be a whole number, received ${
        quoted(about[name])
      }`,
    );
  }
  const config = Object.fromEntries(
    SIZES.map((name) => [name, about[name]]),
  ) as unknown as MlpConfig;
  checkTensors("weights", compileModel(mlp(config, 1), "none").parameters, weights, shapes.weights);
  return { architecture: "mlp", path, config, weights };
}
