/**
 * What the folder of first weights says of their model, so that no flag has to.
 *
 * @module
 */

import { dirname, join } from "node:path";
import {
  gpt2ConfigKey,
  isTransformersConfig,
  parseGpt2Config,
  readConfigJson,
} from "../../actors/checkpoints/hugging_face/gpt2_config.ts";
import { checkWeights } from "../../actors/checkpoints/tensors/weights.ts";
import { type Gpt2Config, gpt2Parameters, gpt2Ties, inputFileProblem } from "../../kernels/mod.ts";
import { quoted } from "../escape.ts";
import type { GivenTrainFlags } from "./train_flags.ts";

/** What a folder of weights says. */
export type FolderSizes = Pick<
  GivenTrainFlags,
  "layers" | "hidden" | "heads" | "seq" | "vocab" | "tie"
>;

/** The flags that a `config.json` says, but that of positions, of which fewer may be used. */
const FIXED = ["layers", "hidden", "heads", "vocab"] as const;

/**
 * The sizes of the model that a path of weights is of: those of the `config.json` in a folder of
 * Hugging Face's, or beside a file in one. A checkpoint's folder, and a file alone, say none.
 *
 * @param given what was typed.
 * @param takenBack the switches that were typed with `--no`.
 * @throws {TypeError} when a folder has no `config.json`.
 * @throws {RangeError} when the model is none that is known here, or a size that was typed is another.
 * @throws as `checkWeights`.
 */
export async function sizesOfWeights(
  path: string,
  given: GivenTrainFlags,
  takenBack: readonly string[],
): Promise<FolderSizes> {
  const isFolder = inputFileProblem(path) === "a folder";
  const folder = isFolder ? path : dirname(path), file = join(folder, "config.json");
  const problem = inputFileProblem(file);
  if (problem !== undefined) {
    if (!isFolder) return {};
    throw new TypeError(
      `Cannot use --weights: its folder must have a config.json, which says the sizes of the model, received ${
        quoted(path)
      } (${problem}); name the file of the weights to say them by flags`,
    );
  }
  const config = readConfigJson(folder);
  if (!isTransformersConfig(config)) return {};
  if (!isFolder && config.model_type !== "gpt2") return {};
  const sizes = parseGpt2Config(config, file);
  checkTyped(file, sizes, given, takenBack, isFolder);
  const model = { ...sizes, seq: given.seq ?? sizes.seq };
  // A model is compiled for what is there, and for nobody's word alone.
  await checkWeights(path, gpt2Parameters(model), gpt2Ties(model));
  return model;
}

function checkTyped(
  file: string,
  sizes: Gpt2Config,
  given: GivenTrainFlags,
  takenBack: readonly string[],
  isFolder: boolean,
): void {
  const refuse = (name: "seq" | "tie" | typeof FIXED[number], received: unknown, more = "") => {
    throw new RangeError(
      `Cannot use --${name}: it must be ${sizes[name]}, the ${
        gpt2ConfigKey(name)
      } of ${file}, received ${received}${more}`,
    );
  };
  for (const name of FIXED) {
    if ((given[name] ?? sizes[name]) !== sizes[name]) refuse(name, given[name]);
  }
  const tie = takenBack.includes("tie") ? false : given.tie ?? sizes.tie;
  if (tie !== sizes.tie) refuse("tie", tie);
  const { seq = sizes.seq } = given;
  if (seq === sizes.seq || (seq < sizes.seq && !isFolder)) return;
  refuse(
    "seq",
    seq,
    seq < sizes.seq ? "; name the file of the weights, not its folder, to leave out positions" : "",
  );
}
