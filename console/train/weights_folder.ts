/**
 * What the folder of first weights says of their model, so that no flag has to.
 *
 * @module
 */

import { dirname, join } from "node:path";
import {
  isTransformersConfig,
  readConfigJson,
} from "../../actors/checkpoints/hugging_face/config_file.ts";
import { type DecoderConfig, decoderOf } from "../../actors/checkpoints/hugging_face/decoders.ts";
import { checkWeights } from "../../actors/checkpoints/tensors/weights.ts";
import { inputFileProblem } from "../../kernels/mod.ts";
import { quoted } from "../escape.ts";
import { formatOf } from "../trained/trained_decoder.ts";
import { SIZES } from "./flags/model_flags.ts";
import type { GivenTrainFlags } from "./train_flags.ts";

/** The flags that a `config.json` says, by what a model calls them. */
const { experts: _experts, "head-slices": _slices, ...FLAGS } = SIZES;

/** What a folder of weights says. */
export type FolderSizes = Pick<GivenTrainFlags, "model" | keyof typeof FLAGS>;

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
  if (!isFolder && !decoderOf(config)) return {};
  const format = formatOf(config, file), sizes = format.parse(config, file);
  if ((given.model ?? format.model) !== format.model) {
    throw new RangeError(
      `Cannot use --model: it must be ${format.model}, the model_type of ${file}, received ${given.model}`,
    );
  }
  const flags = flagsOf(sizes);
  const positions = Number(config[format.keys.seq!]), isLearned = format.model === "gpt";
  checkTyped(flags, given, takenBack, {
    keyOf: (name) => `${format.keys[FLAGS[name]]} of ${file}`,
    positions,
    mayBeFewer: !isLearned || !isFolder,
  });
  const seq = given.seq ?? sizes.seq, model = { ...sizes, seq };
  // A model is compiled for what is there, and for nobody's word alone.
  await checkWeights(path, format.parameters(model), format.ties(model));
  return { ...flags, model: format.model, seq };
}

/** The flags that say these sizes. */
const flagsOf = (sizes: DecoderConfig): FolderSizes =>
  Object.fromEntries(
    Object.entries(FLAGS).map(([flag, name]) =>
      [flag, (sizes as unknown as Record<string, unknown>)[name]] as const
    ).filter(([, value]) => value !== undefined),
  );

/** What sizes that were typed are measured by. */
interface FolderFacts {
  /** What the folder calls a size. */
  keyOf(name: keyof typeof FLAGS): string;
  /** Tokens that the model can see. */
  readonly positions: number;
  /** Whether it may see fewer. */
  readonly mayBeFewer: boolean;
}

function checkTyped(
  sizes: FolderSizes,
  given: GivenTrainFlags,
  takenBack: readonly string[],
  { keyOf, positions, mayBeFewer }: FolderFacts,
): void {
  const refuse = (name: keyof typeof FLAGS, must: unknown, received: unknown, more = "") => {
    throw new RangeError(
      `Cannot use --${name}: it must be ${must}, the ${keyOf(name)}, received ${received}${more}`,
    );
  };
  const typed = { ...given, tie: takenBack.includes("tie") ? false : given.tie };
  for (const name of Object.keys(FLAGS) as (keyof typeof FLAGS)[]) {
    const value = typed[name];
    if (name === "seq" || value === undefined || value === sizes[name]) continue;
    if (sizes[name] !== undefined) refuse(name, sizes[name], value);
  }
  const { seq = sizes.seq! } = given;
  if (seq === sizes.seq || (seq < positions && mayBeFewer)) return;
  refuse(
    "seq",
    mayBeFewer ? `at most ${positions}` : positions,
    seq,
    seq < positions ? "; name the file of the weights, not its folder, to leave out positions" : "",
  );
}
