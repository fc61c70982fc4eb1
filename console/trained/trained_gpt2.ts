/**
 * A GPT-2 that was trained: in the folder of a run or of a checkpoint, or in one of Hugging Face's.
 *
 * @module
 */

import { join } from "node:path";
import { type Gpt2Config, gpt2Parameters, gpt2Ties, inputFileProblem } from "../../kernels/mod.ts";
import {
  isTransformersConfig,
  parseGpt2Config,
  readConfigJson,
} from "../../actors/checkpoints/hugging_face/gpt2_config.ts";
import { type Checkpoint, locateWeights, type TensorSource } from "../../actors/checkpoints/mod.ts";
import { checkTensors } from "../../actors/run/options/check_resume.ts";
import { inOneLine, quoted } from "../escape.ts";
import { type Doing, findCheckpoint } from "./find_checkpoint.ts";
import { keptTokenizer, tokenizerOfFolder, type TokenizerSource } from "./tokenizer_source.ts";

/** A GPT-2 that was trained. */
export interface TrainedGpt2 {
  /** What it is. */
  readonly architecture: "gpt2";
  /** The folder in which it was found: that of a checkpoint, or of Hugging Face's. */
  readonly path: string;
  /** Its sizes. */
  readonly config: Gpt2Config;
  /** Where its weights lie, by name; read with `readTensors`. */
  readonly weights: ReadonlyMap<string, TensorSource>;
  /** Share of values that its training left out. */
  readonly dropout: number;
  /** What made its tokens. */
  readonly tokenizer: TokenizerSource;
  /** The token that begins a text, where a folder of Hugging Face's says it. */
  readonly bos?: number | undefined;
  /** The token that ends a text, where such a folder says it. */
  readonly eos?: number | undefined;
}

/**
 * Looks for a GPT-2: the newest whole checkpoint of a run, the one that is named, or the model of a
 * folder of Hugging Face's. Its weights are checked, and stay where they are.
 *
 * @param flag what named the folder, for messages.
 * @throws {TypeError} {@linkcode RangeError} {@linkcode SyntaxError} in one sentence for the user.
 */
export async function findTrainedGpt2(
  doing: Doing,
  flag: string,
  path: string,
): Promise<TrainedGpt2> {
  return await findGpt2Folder(path) ?? trainedGpt2(doing, await findCheckpoint(doing, flag, path));
}

/**
 * The GPT-2 of a folder of Hugging Face's; undefined where that has no `config.json` of transformers.
 *
 * @throws {TypeError} {@linkcode RangeError} {@linkcode SyntaxError} in one sentence for the user.
 */
export async function findGpt2Folder(path: string): Promise<TrainedGpt2 | undefined> {
  const file = join(path, "config.json");
  if (inputFileProblem(file) !== undefined) return undefined;
  const json = readConfigJson(path);
  if (!isTransformersConfig(json)) return undefined;
  const config = parseGpt2Config(json, file);
  return {
    architecture: "gpt2",
    path,
    config,
    weights: await locateWeights(path, gpt2Parameters(config), gpt2Ties(config)),
    dropout: shareOf(json.resid_pdrop),
    tokenizer: tokenizerOfFolder(path, config.vocab),
    bos: idOf(json.bos_token_id, config),
    eos: idOf(json.eos_token_id, config),
  };
}

/** A token as a file says it; undefined for what can be none. */
const idOf = (value: unknown, { vocab }: Gpt2Config): number | undefined =>
  Number.isSafeInteger(value) && 0 <= Number(value) && Number(value) < vocab
    ? Number(value)
    : undefined;

/**
 * The GPT-2 of a checkpoint.
 *
 * @throws {TypeError} {@linkcode RangeError} in one sentence for the user.
 */
export function trainedGpt2(doing: Doing, checkpoint: Checkpoint<TensorSource>): TrainedGpt2 {
  const { path, state: { weights } } = checkpoint;
  const config = modelOf(doing, checkpoint), tokenizer = tokenizerOf(doing, checkpoint);
  const { dropout } = (checkpoint.config.flags ?? {}) as { dropout?: unknown };
  return { architecture: "gpt2", path, config, weights, dropout: shareOf(dropout), tokenizer };
}

/** A share of dropout as a file says it; 0 for what can be none. */
const shareOf = (value: unknown): number =>
  typeof value === "number" && value >= 0 && value < 1 ? value : 0;

/** Sizes that a checkpoint of a GPT-2 must have. */
const SIZES = ["layers", "hidden", "heads", "seq", "vocab"] as const;

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
  const { architecture, tie = false, headSlices = 1 } = config;
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
  if (typeof tie !== "boolean") refuse("tie must be true or false", tie);
  const sizes = { ...numbers, tie } as unknown as Gpt2Config;
  checkTensors("weights", gpt2Parameters(sizes), state.weights, shapes.weights);
  return sizes;
}

/** How many tokens bytes are. */
const BYTES = 256;

/**
 * What made the tokens of a checkpoint's run. A tokenizer of its own lies beside the checkpoint or in
 * it, and is the one whose hash it remembers.
 *
 * @throws {RangeError} {@linkcode TypeError} when the checkpoint says something else.
 */
function tokenizerOf(
  doing: Doing,
  { path, config }: Checkpoint<TensorSource>,
): TokenizerSource {
  const { tokenizer = "bytes", vocab, files, flags } = config as {
    tokenizer?: unknown;
    vocab?: unknown;
    files?: { tokens?: unknown };
    flags?: { tokens?: unknown };
  };
  const kept = keptTokenizer(path, config);
  if (kept) return kept;
  // Troupe 0.1 called tokens of any file bytes.
  const isOld = (files?.tokens ?? flags?.tokens) !== undefined && Number(vocab) > BYTES;
  if (tokenizer === "bytes") return isOld ? "none" : tokenizer;
  if (tokenizer === "gpt2" || tokenizer === "none") return tokenizer;
  throw new RangeError(
    `Cannot ${doing} from ${path}: its tokenizer must be bytes, gpt2, tokenizer.json or none, received ${
      quoted(tokenizer)
    }`,
  );
}
