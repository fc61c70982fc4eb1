/**
 * The checkpoint that a command reads a model from.
 *
 * @module
 */

import {
  type Checkpoint,
  locateCheckpoint,
  type TensorSource,
} from "../../actors/checkpoints/mod.ts";
import { inputFileProblem } from "../../kernels/mod.ts";
import { quoted } from "../escape.ts";
import { printError } from "../print.ts";
import { meantRun } from "../run_files/run_folder.ts";

/** What is done with a model, as a refusal says it. */
export type Doing = "generate" | "export";

/**
 * Looks for a checkpoint: the newest whole one of a run, or the one that is named.
 *
 * @param flag what named the folder, for messages.
 * @throws {RangeError} when there is none.
 */
export async function findCheckpoint(
  doing: Doing,
  flag: string,
  path: string,
): Promise<Checkpoint<TensorSource>> {
  const checkpoint = await locateCheckpoint(path, printError);
  if (checkpoint) return checkpoint;
  const more = inputFileProblem(path) === "a folder"
    ? "; a folder of Hugging Face's has a config.json beside its weights"
    : meantRun(path);
  throw new RangeError(
    `Cannot ${doing}: ${flag} must hold a checkpoint, received ${quoted(path)}${more}`,
  );
}
