/**
 * A GPT-2 that was trained, in the folder of a run or of a checkpoint.
 *
 * @module
 */

import { type Gpt2Config, gpt2Parameters } from "../../kernels/mod.ts";
import type { Checkpoint, TensorSource } from "../../actors/checkpoints/mod.ts";
import { checkTensors } from "../../actors/run/options/check_resume.ts";
import { inOneLine, quoted } from "../escape.ts";
import { type Doing, findCheckpoint } from "./find_checkpoint.ts";

/** A GPT-2 that was trained. */
export interface TrainedGpt2 {
  /** What it is. */
  readonly architecture: "gpt2";
  /** The folder in which it was found: that of a checkpoint. */
  readonly path: string;
  /** Its sizes. */
  readonly config: Gpt2Config;
  /** Where its weights lie, by name; read with `readTensors`. */
  readonly weights: ReadonlyMap<string, TensorSource>;
  /** What its `config.json` says of the rest. */
  readonly about: Readonly<Record<string, unknown>>;
}

/**
 * Looks for a GPT-2: the newest whole checkpoint of a run, or the one that is named. Its weights are
 * checked, and stay where they are.
 *
 * @param flag what named the folder, for messages.
 * @throws {TypeError} {@linkcode RangeError} {@linkcode SyntaxError} in one sentence for the user.
 */
export async function findTrainedGpt2(
  doing: Doing,
  flag: string,
  path: string,
): Promise<TrainedGpt2> {
  return trainedGpt2(doing, await findCheckpoint(doing, flag, path));
}

/**
 * The GPT-2 of a checkpoint.
 *
 * @throws {TypeError} {@linkcode RangeError} in one sentence for the user.
 */
export function trainedGpt2(doing: Doing, checkpoint: Checkpoint<TensorSource>): TrainedGpt2 {
  const { path, config: about, state: { weights } } = checkpoint;
  return { architecture: "gpt2", path, config: modelOf(doing, checkpoint), weights, about };
}

/** Sizes that a checkpoint of a GPT-2 must have. */
const SIZES = ["layers", "hidden", "heads", "seq", "vocab"] as const;

/** What it may say of its tokens. */
const TOKENIZERS: readonly string[] = ["bytes", "gpt2", "none"];

/**
 * The sizes of the GPT-2 of a checkpoint, whose weights are exactly those of such a model.
 *
 * @throws {RangeError} when the checkpoint says otherwise.
 */
function modelOf(
  doing: Doing,
  { path, config, state, shapes }: Checkpoint<TensorSource>,
): Gpt2Config {
  const refuse = (must: string, received: unknown) => {
    throw new RangeError(
      `Cannot ${doing} from ${path}: its ${must}, received ${quoted(received)}`,
    );
  };
  const { architecture, tokenizer = "bytes", tie = false, headSlices = 1 } = config;
  if (architecture !== "gpt2") {
    throw new RangeError(
      `Cannot ${doing}: the checkpoint must be of a gpt, received ${
        inOneLine(String(architecture).slice(0, 80))
      } in ${path}`,
    );
  }
  const numbers = { ...Object.fromEntries(SIZES.map((name) => [name, config[name]])), headSlices };
  for (const [name, size] of Object.entries(numbers)) {
    if (!Number.isSafeInteger(size)) refuse(`${name} must be a whole number`, size);
  }
  if (!TOKENIZERS.includes(String(tokenizer))) {
    refuse("tokenizer must be bytes, gpt2 or none", tokenizer);
  }
  if (typeof tie !== "boolean") refuse("tie must be true or false", tie);
  const sizes = { ...numbers, tie } as unknown as Gpt2Config;
  checkTensors("weights", gpt2Parameters(sizes), state.weights, shapes.weights);
  return sizes;
}
