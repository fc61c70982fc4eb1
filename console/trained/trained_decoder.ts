/**
 * A decoder that was trained: in the folder of a run or of a checkpoint, or in one of Hugging Face's.
 *
 * @module
 */

import { join } from "node:path";
import { inputFileProblem } from "../../kernels/mod.ts";
import {
  isTransformersConfig,
  readConfigJson,
} from "../../actors/checkpoints/hugging_face/config_file.ts";
import {
  type DecoderConfig,
  type DecoderFormat,
  decoderOf,
  DECODERS,
} from "../../actors/checkpoints/hugging_face/decoders.ts";
import { type Checkpoint, locateWeights, type TensorSource } from "../../actors/checkpoints/mod.ts";
import { checkTensors } from "../../actors/run/options/check_resume.ts";
import { inOneLine, quoted } from "../escape.ts";
import { type Doing, findCheckpoint } from "./find_checkpoint.ts";
import { keptTokenizer, tokenizerOfFolder, type TokenizerSource } from "./tokenizer_source.ts";

/** A decoder that was trained. */
export interface TrainedDecoder {
  /** What it is. */
  readonly architecture: DecoderFormat["architecture"];
  /** What is known of such a decoder. */
  readonly format: DecoderFormat;
  /** The folder in which it was found: that of a checkpoint, or of Hugging Face's. */
  readonly path: string;
  /** Its sizes. */
  readonly config: DecoderConfig;
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
 * Looks for a decoder: the newest whole checkpoint of a run, the one that is named, or the model of a
 * folder of Hugging Face's. Its weights are checked, and stay where they are.
 *
 * @param flag what named the folder, for messages.
 * @throws {TypeError} {@linkcode RangeError} {@linkcode SyntaxError} in one sentence for the user.
 */
export async function findTrainedDecoder(
  doing: Doing,
  flag: string,
  path: string,
): Promise<TrainedDecoder> {
  return await findDecoderFolder(path) ??
    trainedDecoder(doing, await findCheckpoint(doing, flag, path));
}

/**
 * The decoder of a folder of Hugging Face's; undefined where that has no `config.json` of transformers.
 *
 * @throws {TypeError} {@linkcode RangeError} {@linkcode SyntaxError} in one sentence for the user.
 */
export async function findDecoderFolder(path: string): Promise<TrainedDecoder | undefined> {
  const file = join(path, "config.json");
  if (inputFileProblem(file) !== undefined) return undefined;
  const json = readConfigJson(path);
  if (!isTransformersConfig(json)) return undefined;
  const format = formatOf(json, file), config = format.parse(json, file);
  return {
    architecture: format.architecture,
    format,
    path,
    config,
    weights: await locateWeights(path, format.parameters(config), format.ties(config)),
    dropout: shareOf(json.resid_pdrop ?? json.attention_dropout),
    tokenizer: tokenizerOfFolder(path, config.vocab),
    bos: idOf(json.bos_token_id, config),
    eos: idOf(json.eos_token_id, config),
  };
}

/**
 * The decoder that a `config.json` is of.
 *
 * @throws {RangeError} when it is none that is known here.
 */
export function formatOf(json: Readonly<Record<string, unknown>>, file: string): DecoderFormat {
  const format = decoderOf(json);
  if (format) return format;
  const known = DECODERS.map(({ architecture }) => `"${architecture}"`).join(" or ");
  throw new RangeError(
    `Cannot read ${file}: its model_type must be ${known}, received ${quoted(json.model_type)}`,
  );
}

/** A token as a file says it; undefined for what can be none. */
const idOf = (value: unknown, { vocab }: DecoderConfig): number | undefined =>
  Number.isSafeInteger(value) && 0 <= Number(value) && Number(value) < vocab
    ? Number(value)
    : undefined;

/**
 * The decoder of a checkpoint.
 *
 * @throws {TypeError} {@linkcode RangeError} in one sentence for the user.
 */
export function trainedDecoder(
  doing: Doing,
  checkpoint: Checkpoint<TensorSource>,
): TrainedDecoder {
  const { path, state: { weights } } = checkpoint, format = formatOfCheckpoint(doing, checkpoint);
  const config = configOf(doing, checkpoint, format), tokenizer = tokenizerOf(doing, checkpoint);
  const { dropout: given } = (checkpoint.config.flags ?? {}) as { dropout?: unknown };
  const { architecture } = format, dropout = shareOf(given);
  return { architecture, format, path, config, weights, dropout, tokenizer };
}

/** The decoder that a checkpoint is of. */
function formatOfCheckpoint(
  doing: Doing,
  { path, config: { architecture } }: Checkpoint<TensorSource>,
): DecoderFormat {
  const format = DECODERS.find((one) => one.architecture === architecture);
  if (format) return format;
  throw new RangeError(
    `Cannot ${doing}: the checkpoint must be of a gpt or a llama, received ${
      inOneLine(String(architecture).slice(0, 80))
    } in ${path}`,
  );
}

/** A share of dropout as a file says it; 0 for what can be none. */
const shareOf = (value: unknown): number =>
  typeof value === "number" && value >= 0 && value < 1 ? value : 0;

/** Sizes that a checkpoint must have, and those that it may. */
const SIZES = ["layers", "hidden", "heads", "seq", "vocab"] as const;
const MORE = {
  gpt2: { whole: ["headSlices"], numbers: [] },
  llama: { whole: ["keyValueHeads", "intermediate"], numbers: ["ropeTheta", "normEpsilon"] },
} as const;

/**
 * The sizes of the decoder of a checkpoint, whose weights are exactly those of such a model.
 *
 * @throws {RangeError} when the checkpoint says otherwise.
 */
function configOf(
  doing: Doing,
  { path, config, state, shapes }: Checkpoint<TensorSource>,
  format: DecoderFormat,
): DecoderConfig {
  const refuse = (must: string, received: unknown) => {
    throw new RangeError(`Cannot ${doing} from ${path}: its ${must}, received ${quoted(received)}`);
  };
  const { whole, numbers } = MORE[format.architecture], { tie = false } = config;
  const more = [...whole, ...numbers].filter((name) => config[name] !== undefined);
  for (const name of [...SIZES, ...more]) {
    const size = config[name], isNumber = (numbers as readonly string[]).includes(name);
    if (isNumber ? typeof size === "number" : Number.isSafeInteger(size)) continue;
    refuse(`${name} must be a ${isNumber ? "number" : "whole number"}`, size);
  }
  if (typeof tie !== "boolean") refuse("tie must be true or false", tie);
  const known = Object.fromEntries([...SIZES, ...more].map((name) => [name, config[name]]));
  const sizes = { ...known, tie } as unknown as DecoderConfig;
  checkTensors("weights", format.parameters(sizes), state.weights, shapes.weights);
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
