/**
 * A multilayer perceptron that was trained, in the folder of a checkpoint.
 *
 * @module
 */

import { createHash } from "node:crypto";
import { basename, dirname, join, resolve } from "node:path";
import { stepFolder } from "../../actors/checkpoints/format.ts";
import {
  type DecoderConfig,
  type DecoderFormat,
  decoderOf,
  DECODERS,
} from "../../actors/checkpoints/hugging_face.ts";
import {
  isTransformersConfig,
  readConfigJson,
} from "../../actors/checkpoints/hugging_face_config.ts";
import {
  type Checkpoint,
  locateCheckpoint,
  locateWeights,
  type TensorSource,
} from "../../actors/checkpoints/mod.ts";
import { checkTensors } from "../../actors/run/first_state.ts";
import {
  bytesTokenizer,
  compileModel,
  type FileTokenizer,
  gpt2Tokenizer,
  inputFileProblem,
  mlp,
  type MlpConfig,
  parseTokenizer,
  type Tokenizer,
  TOKENIZER_BYTES_MAX,
  type TokenizerName,
} from "../../kernels/mod.ts";
import { meantRun } from "../run_files/run_folder.ts";
import { inOneLine, printError, quoted } from "../terminal.ts";

/** What is done with a model, as a refusal says it. */
type Doing = "generate" | "export";

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

/** The name that such a file has in a folder. */
export const TOKENIZER_FILE = "tokenizer.json";

/** Places of a file, of which the first that is there is taken. */
export interface TokenizerPlaces {
  readonly paths: readonly string[];
  /** SHA-256 that it must have, in hexadecimal. */
  readonly sha256?: string | undefined;
}

/** What made the tokens of a model, where that is known. */
export type TokenizerSource = TokenizerName | "none" | TokenizerPlaces;

/** The numbers of ids of Troupe's tokenizers. */
const SIZES: ReadonlyMap<number, TokenizerName> = new Map([[256, "bytes"], [50_257, "gpt2"]]);

/**
 * What made the tokens of a model whose folder has weights: the file that is there, or else the
 * tokenizer of Troupe's that has as many ids.
 *
 * @param folder of the weights.
 * @param vocab ids of the model.
 */
export function tokenizerOfFolder(folder: string, vocab: number): TokenizerSource {
  const path = join(folder, TOKENIZER_FILE);
  return inputFileProblem(path) === undefined ? { paths: [path] } : SIZES.get(vocab) ?? "none";
}

/** What it is called, as a checkpoint says it. */
export const tokenizerName = (source: TokenizerSource): string =>
  typeof source === "object" ? TOKENIZER_FILE : source;

/** A file of a tokenizer that was read. */
export interface TokenizerFile {
  /** Where it lay. */
  readonly path: string;
  /** SHA-256 of its bytes, in hexadecimal. */
  readonly sha256: string;
  /** Its bytes. */
  readonly content: Uint8Array;
}

/** The flag that says it; a path is of a file, or of a folder that has one. */
export const TOKENIZER_FLAG = {
  kind: "part",
  choices: ["bytes", "gpt2"] satisfies TokenizerName[],
  value: "bytes|gpt2|PATH",
  help: "what the tokens of a text are: bytes, gpt2, or a tokenizer.json or a folder with one",
} as const;

/** What a value of the flag names. */
export function tokenizerSource(value: string): TokenizerSource {
  if (value === "bytes" || value === "gpt2") return value;
  const isFolder = inputFileProblem(value) === "a folder";
  return { paths: [isFolder ? join(value, TOKENIZER_FILE) : value] };
}

/**
 * Where the file lies whose hash the checkpoint of a run remembers: in the checkpoint's folder, or in
 * the run's.
 *
 * @param path the folder of the checkpoint.
 * @param config what it says.
 * @returns undefined where it remembers none.
 * @throws {TypeError} when it says something else than a hash.
 */
export function keptTokenizer(
  path: string,
  config: Readonly<Record<string, unknown>>,
): TokenizerPlaces | undefined {
  if (config.tokenizer !== TOKENIZER_FILE) return undefined;
  const { tokenizer } = (config.files ?? {}) as { tokenizer?: unknown };
  const { sha256 } = (tokenizer ?? {}) as { sha256?: unknown };
  if (typeof sha256 !== "string" || !/^[0-9a-f]{64}$/.test(sha256)) {
    throw new TypeError(
      `Cannot read ${path}: its tokenizer must have a SHA-256, received ${quoted(tokenizer)}`,
    );
  }
  const full = resolve(path), folders = stepFolder(basename(full)) ? [full, dirname(full)] : [full];
  return { paths: folders.map((folder) => join(folder, TOKENIZER_FILE)), sha256 };
}

/**
 * Reads the file of a tokenizer.
 *
 * @throws {TypeError} when none of its places has one that can be read.
 * @throws {RangeError} when its bytes are others.
 */
export function readTokenizerFile({ paths, sha256 }: TokenizerPlaces): TokenizerFile {
  const problems = paths.map((path) => inputFileProblem(path, TOKENIZER_BYTES_MAX));
  const path = paths[problems.indexOf(undefined)];
  if (path === undefined) {
    throw new TypeError(
      `Cannot read a tokenizer: it must be bytes, gpt2, or a ${TOKENIZER_FILE} that can be read, received ${
        quoted(paths.at(-1))
      } (${problems.at(-1)}); --tokenizer names it`,
    );
  }
  const content = Deno.readFileSync(path);
  const received = createHash("sha256").update(content).digest("hex");
  if (sha256 === undefined || received === sha256) return { path, sha256: received, content };
  throw new RangeError(
    `Cannot read ${
      inOneLine(path)
    }: it must be the tokenizer of the run, with SHA-256 ${sha256}, received one with ${received}`,
  );
}

/**
 * Opens a tokenizer.
 *
 * @returns undefined where nobody knows which one.
 * @throws {TypeError} {@linkcode RangeError} {@linkcode SyntaxError} (as a rejection) when its file
 * cannot be read.
 */
export async function openTokenizer(
  source: TokenizerSource,
): Promise<Tokenizer | FileTokenizer | undefined> {
  if (source === "none") return undefined;
  if (source === "bytes") return bytesTokenizer();
  if (source === "gpt2") return await gpt2Tokenizer(printError);
  const { content, path } = readTokenizerFile(source);
  return await parseTokenizer(content, inOneLine(path));
}

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
const DECODER_SIZES = ["layers", "hidden", "heads", "seq", "vocab"] as const;
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
  for (const name of [...DECODER_SIZES, ...more]) {
    const size = config[name], isNumber = (numbers as readonly string[]).includes(name);
    if (isNumber ? typeof size === "number" : Number.isSafeInteger(size)) continue;
    refuse(`${name} must be a ${isNumber ? "number" : "whole number"}`, size);
  }
  if (typeof tie !== "boolean") refuse("tie must be true or false", tie);
  const known = Object.fromEntries([...DECODER_SIZES, ...more].map((name) => [name, config[name]]));
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

const MLP_SIZES = ["inputs", "hidden", "layers", "classes"] as const;

/**
 * The MLP of a checkpoint, whose weights are exactly those of such a model.
 *
 * @throws {RangeError} in one sentence for the user, when the checkpoint says otherwise.
 */
export function trainedMlp(
  doing: Doing,
  { path, config: about, state: { weights }, shapes }: Checkpoint<TensorSource>,
): TrainedMlp {
  for (const name of MLP_SIZES) {
    if (Number.isSafeInteger(about[name])) continue;
    throw new RangeError(
      `Cannot ${doing} from ${path}: its ${name} must be a whole number, received ${
        quoted(about[name])
      }`,
    );
  }
  const config = Object.fromEntries(
    MLP_SIZES.map((name) => [name, about[name]]),
  ) as unknown as MlpConfig;
  checkTensors("weights", compileModel(mlp(config, 1), "none").parameters, weights, shapes.weights);
  return { architecture: "mlp", path, config, weights };
}
