/**
 * Trained decoders and multilayer perceptrons, in folders of checkpoints or of Hugging Face.
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
  isConv1D,
  isTransformersConfig,
  parseConfig,
  readConfigJson,
} from "../../actors/checkpoints/hugging_face.ts";
import type { Checkpoint } from "../../actors/checkpoints/format.ts";
import {
  adapterParameters,
  locateAdapter,
  mergeAdapter,
  readAdapterConfig,
} from "../../actors/checkpoints/peft.ts";
import { averaged, locateCheckpoint } from "../../actors/checkpoints/read.ts";
import { locateWeights, type NamedShape } from "../../actors/checkpoints/weights.ts";
import { readTensors, type TensorSource } from "../../actors/checkpoints/tensors.ts";
import { check } from "../../actors/options/option.ts";
import { TRAIN } from "../../actors/options/train_table.ts";
import { checkTensors } from "../../actors/run/first_state.ts";
import {
  bytesTokenizer,
  compileModel,
  type FileTokenizer,
  gpt2Tokenizer,
  mlp,
  type MlpConfig,
  parseTokenizer,
  type Tokenizer,
  type TokenizerName,
} from "../../kernels/mod.ts";
import {
  assertInput,
  checkLora,
  inputFileProblem,
  type LoraOptions,
  refusal,
  TOKENIZER_BYTES_MAX,
} from "../../kernels/internal.ts";
import { meantRun } from "../../actors/run_folder/read.ts";
import { ensure, inOneLine, printError, quoted } from "../terminal.ts";

/** The argument that names the folder of a model, by command. */
const NAMED = { generate: "--from", export: "RUN" } as const;

/** The command, for messages. */
type Doing = keyof typeof NAMED;

/**
 * Finds a checkpoint: the newest complete one of a run, or the named one.
 *
 * @param ema True for the averages of the weights.
 * @throws {RangeError} if there is none, or it has no averages.
 */
export async function findCheckpoint(doing: Doing, path: string, ema = false) {
  const checkpoint = await locateCheckpoint(path, printError);
  if (checkpoint) return ema ? averaged(checkpoint) : checkpoint;
  const more = inputFileProblem(path) === "a folder"
    ? "; a folder of Hugging Face has a config.json next to its weights"
    : meantRun(path);
  throw refusal(doing, `${NAMED[doing]} must hold a checkpoint`, `${quoted(path)}${more}`);
}

/** The name of the file of a tokenizer. */
export const TOKENIZER_FILE = "tokenizer.json";

/** Possible paths of a file; the first that exists is read. */
export interface TokenizerPlaces {
  readonly paths: readonly string[];
  /** The required SHA-256, in hexadecimal. */
  readonly sha256?: string | undefined;
}

/** The tokenizer of a model; `none` if it is unknown. */
export type TokenizerSource = TokenizerName | "none" | TokenizerPlaces;

/** Troupe's tokenizers by their number of ids. */
const SIZES: ReadonlyMap<number, TokenizerName> = new Map([[256, "bytes"], [50_257, "gpt2"]]);

/**
 * Returns the tokenizer of a folder with weights: its file, or Troupe's tokenizer with the same number
 * of ids.
 *
 * @param vocab ids of the model.
 */
export function tokenizerOfFolder(folder: string, vocab: number): TokenizerSource {
  const path = join(folder, TOKENIZER_FILE);
  return inputFileProblem(path) === undefined ? { paths: [path] } : SIZES.get(vocab) ?? "none";
}

/** Returns the name of a tokenizer in a checkpoint. */
export const tokenizerName = (source: TokenizerSource): string =>
  typeof source === "object" ? TOKENIZER_FILE : source;

/** The file of a tokenizer. */
export type TokenizerFile = ReturnType<typeof readTokenizerFile>;

/** The flag of the tokenizer; a path names its file or a folder with that file. */
export const TOKENIZER_FLAG = {
  kind: "part",
  choices: ["bytes", "gpt2"] satisfies TokenizerName[],
  value: "bytes|gpt2|PATH",
  help: "tokenizer of texts: bytes, gpt2, or a tokenizer.json or a folder with one",
} as const;

/** The flag of an adapter that is merged into a base model. */
export const ADAPTER_FLAG = {
  kind: "path",
  value: "DIR",
  otherwise: "that of the run",
  help: "adapter of the model: a folder in PEFT's format",
} as const;

/** The flag of averages of the weights. */
export const EMA_FLAG = {
  kind: "switch",
  help: "take the averages of the weights (train --ema) in place of the weights",
} as const;

/** Returns the tokenizer that a value of the flag names. */
export function tokenizerSource(value: string): TokenizerSource {
  if (value === "bytes" || value === "gpt2") return value;
  const isFolder = inputFileProblem(value) === "a folder";
  return { paths: [isFolder ? join(value, TOKENIZER_FILE) : value] };
}

/**
 * Returns the paths of the tokenizer whose hash a checkpoint has: in the folder of the checkpoint, or
 * in that of the run. Undefined if the checkpoint has no hash.
 *
 * @param path the folder of the checkpoint.
 * @throws {TypeError} if the hash is invalid.
 */
export function keptTokenizer(
  path: string,
  config: Readonly<Record<string, unknown>>,
): TokenizerPlaces | undefined {
  if (config.tokenizer !== TOKENIZER_FILE) return undefined;
  const { tokenizer } = (config.files ?? {}) as { tokenizer?: unknown };
  const { sha256 } = (tokenizer ?? {}) as { sha256?: unknown };
  const isHash = typeof sha256 === "string" && /^[0-9a-f]{64}$/.test(sha256);
  ensure(isHash, `read ${path}`, "its tokenizer must have a SHA-256", quoted(tokenizer));
  const full = resolve(path), folders = stepFolder(basename(full)) ? [full, dirname(full)] : [full];
  return { paths: folders.map((folder) => join(folder, TOKENIZER_FILE)), sha256 };
}

/**
 * Reads the file of a tokenizer.
 *
 * @throws {TypeError} if none of the paths can be read.
 * @throws {RangeError} if the hash differs.
 */
export function readTokenizerFile({ paths, sha256 }: TokenizerPlaces) {
  const problems = paths.map((path) => inputFileProblem(path, TOKENIZER_BYTES_MAX));
  const path = paths[problems.indexOf(undefined)];
  const readable = `it must be bytes, gpt2, or a ${TOKENIZER_FILE} that can be read`;
  const received = `${quoted(paths.at(-1))} (${problems.at(-1)}); --tokenizer names it`;
  ensure(path !== undefined, "read a tokenizer", readable, received);
  const content = Deno.readFileSync(path);
  const hash = createHash("sha256").update(content).digest("hex");
  const must = `it must be the tokenizer of the run, with SHA-256 ${sha256}`;
  const isSame = sha256 === undefined || hash === sha256;
  assertInput(isSame, `read ${inOneLine(path)}`, must, `one with ${hash}`);
  return { path, sha256: hash, content };
}

/**
 * Opens a tokenizer; undefined if it is unknown.
 *
 * @throws {TypeError} {@linkcode RangeError} {@linkcode SyntaxError} (as a rejection) if its file
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

/** An adapter of a decoder. */
interface TrainedAdapter {
  readonly lora: LoraOptions;
  readonly parameters: readonly NamedShape[];
  /** The sources of A and B by name. */
  readonly weights: ReadonlyMap<string, TensorSource>;
}

/** A trained decoder. */
export interface TrainedDecoder {
  readonly architecture: DecoderFormat["architecture"];
  readonly format: DecoderFormat;
  /** The folder of the checkpoint, or of Hugging Face. */
  readonly path: string;
  readonly config: DecoderConfig;
  /** The sources of the weights by name; read them with `readTensors`. */
  readonly weights: ReadonlyMap<string, TensorSource>;
  /** Its adapter, which is not part of the weights. */
  readonly adapter?: TrainedAdapter | undefined;
  /** The share of values that training dropped. */
  readonly dropout: number;
  readonly tokenizer: TokenizerSource;
  /** The token that begins a text, if a folder of Hugging Face has it. */
  readonly bos?: number | undefined;
  /** The token that ends a text, if such a folder has it. */
  readonly eos?: number | undefined;
}

/**
 * Finds a decoder: the newest complete checkpoint of a run, the named one, or the model of a folder
 * of Hugging Face. Its weights are checked, but not read.
 *
 * @param ema True for the averages of the weights.
 * @throws {TypeError} {@linkcode RangeError} {@linkcode SyntaxError} in one sentence for the user.
 */
export async function findTrainedDecoder(doing: Doing, path: string, ema?: boolean) {
  return await findDecoderFolder(path, ema) ??
    trainedDecoder(doing, await findCheckpoint(doing, path, ema));
}

/**
 * Returns the decoder of a folder of Hugging Face; undefined without a `config.json` of transformers.
 *
 * @throws {TypeError} {@linkcode RangeError} {@linkcode SyntaxError} in one sentence for the user.
 */
export async function findDecoderFolder(
  path: string,
  ema = false,
): Promise<TrainedDecoder | undefined> {
  const file = join(path, "config.json");
  if (inputFileProblem(file) !== undefined) return undefined;
  const json = readConfigJson(path);
  if (!isTransformersConfig(json)) return undefined;
  const must = "it must be a run with --ema";
  ensure(!ema, `read averages from ${path}`, must, "a model of transformers");
  const format = formatOf(json, file), config = parseConfig(format, json, file);
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

/** Returns the parameters of an adapter of a decoder. */
const parametersOf = (format: DecoderFormat, config: DecoderConfig, lora: LoraOptions) =>
  adapterParameters(format.parameters(config), lora, (name) => isConv1D(format, name));

/**
 * Returns a decoder with the adapter of a folder of PEFT, or as it is without a folder.
 *
 * @throws {TypeError} {@linkcode RangeError} {@linkcode SyntaxError} in one sentence for the user.
 */
export async function withAdapter(
  model: TrainedDecoder,
  folder: string | undefined,
): Promise<TrainedDecoder> {
  if (folder === undefined) return model;
  const { format, config, path, adapter } = model, must = "its run must have trained no adapter";
  ensure(!adapter, `adapt ${path}`, must, `${quoted(folder)} beside one`, RangeError);
  const lora = readAdapterConfig(folder), parameters = parametersOf(format, config, lora);
  checkLora([...format.parameters(config), ...parameters], format.ties(config), lora);
  const weights = await locateAdapter(folder, parameters);
  return { ...model, adapter: { lora, parameters, weights } };
}

/** Returns a decoder with its adapter merged into its weights. */
export function merged({ adapter, ...model }: TrainedDecoder): TrainedDecoder {
  if (!adapter) return model;
  const { format, config, weights } = model, isTurned = (name: string) => isConv1D(format, name);
  const parameters = format.parameters(config), { lora, weights: own } = adapter;
  return { ...model, weights: mergeAdapter(parameters, weights, own, lora, isTurned) };
}

/**
 * Returns the weights of a run with its adapter merged into them; undefined if it has one and is of no
 * decoder.
 *
 * @param about configuration of the model.
 */
export function mergedWeights(
  about: Readonly<Record<string, unknown>>,
  lora: LoraOptions | undefined,
  weights: ReadonlyMap<string, Float32Array>,
): ReadonlyMap<string, Float32Array> | undefined {
  if (!lora) return weights;
  const format = DECODERS.find(({ architecture }) => architecture === about.architecture);
  const isTurned = (name: string) => isConv1D(format!, name);
  const parameters = format?.parameters(about as unknown as DecoderConfig);
  return parameters && readTensors(mergeAdapter(parameters, weights, weights, lora, isTurned));
}

/**
 * Returns the format of the decoder of a `config.json`.
 *
 * @throws {RangeError} if it is unknown.
 */
export function formatOf(json: Readonly<Record<string, unknown>>, file: string): DecoderFormat {
  const format = decoderOf(json), received = quoted(json.model_type);
  const known = DECODERS.map(({ architecture }) => `"${architecture}"`).join(" or ");
  ensure(format, `read ${file}`, `its model_type must be ${known}`, received, RangeError);
  return format;
}

/** Returns the token that a file names; undefined for an invalid one. */
const idOf = (value: unknown, { vocab }: DecoderConfig): number | undefined =>
  Number.isSafeInteger(value) && 0 <= Number(value) && Number(value) < vocab
    ? Number(value)
    : undefined;

/**
 * Returns the decoder of a checkpoint.
 *
 * @throws {TypeError} {@linkcode RangeError} in one sentence for the user.
 */
export function trainedDecoder(doing: Doing, checkpoint: Checkpoint<TensorSource>): TrainedDecoder {
  const { path, config: about, state: { weights } } = checkpoint, { architecture } = about;
  const format = DECODERS.find((one) => one.architecture === architecture);
  const received = inOneLine(String(architecture).slice(0, 80));
  const must = "the checkpoint must be of a gpt or a llama";
  ensure(format, doing, must, `${received} in ${path}`, RangeError);
  const config = configOf(doing, checkpoint, format), tokenizer = tokenizerOf(doing, checkpoint);
  const dropout = shareOf((about.flags as { dropout?: unknown } | undefined)?.dropout);
  const lora = loraOf(checkpoint), own = lora && parametersOf(format, config, lora);
  const isOwn = new Set(own?.map(({ name }) => name));
  const [base, adapter] = [false, true].map((wanted) =>
    new Map([...weights].filter(([name]) => isOwn.has(name) === wanted))
  ) as [Map<string, TensorSource>, Map<string, TensorSource>];
  return {
    ...{ architecture: format.architecture, format, path, config, dropout, tokenizer },
    weights: base,
    ...lora && { adapter: { lora, parameters: own!, weights: adapter } },
  };
}

/** Returns the settings of the adapter that a run trained. */
function loraOf({ path, config: { lora } }: Checkpoint<TensorSource>): LoraOptions | undefined {
  if (lora === undefined) return undefined;
  check(TRAIN.lora.schema, lora, { cannot: `Cannot read ${path}`, name: "lora" });
  return lora as LoraOptions;
}

/** Returns the share of dropout in a file; 0 for an invalid one. */
const shareOf = (value: unknown): number =>
  typeof value === "number" && value >= 0 && value < 1 ? value : 0;

/** Sizes that a checkpoint must have. */
const DECODER_SIZES = ["layers", "hidden", "heads", "seq", "vocab"];

/** Sizes that it may have: of a GPT, and of a Llama. */
const OPTIONAL_SIZES = ["headSlices", "keyValueHeads", "intermediate", "ropeTheta", "normEpsilon"];

/** Sizes that may have a fraction. */
const NUMBERS = ["ropeTheta", "normEpsilon"];

/**
 * Returns the sizes of the decoder of a checkpoint, and checks its weights.
 *
 * @throws {RangeError} if a size or a weight is invalid.
 */
function configOf(
  doing: Doing,
  checkpoint: Checkpoint<TensorSource>,
  format: DecoderFormat,
): DecoderConfig {
  const { path, config, state, shapes } = checkpoint, lora = loraOf(checkpoint);
  const more = OPTIONAL_SIZES.filter((name) => config[name] !== undefined);
  const { tie = false } = config, names = [...DECODER_SIZES, ...more];
  const sizes = sizesOf(doing, { path, config }, names);
  const isRight = typeof tie === "boolean", must = "its tie must be true or false";
  ensure(isRight, `${doing} from ${path}`, must, quoted(tie), RangeError);
  const known = { ...sizes, tie } as unknown as DecoderConfig;
  const all = [...format.parameters(known), ...lora ? parametersOf(format, known, lora) : []];
  checkTensors("weights", all, state.weights, shapes.weights);
  return known;
}

/** Returns sizes of a checkpoint. @throws {RangeError} if one is no number. */
function sizesOf(
  doing: Doing,
  { path, config }: Pick<Checkpoint<TensorSource>, "path" | "config">,
  names: readonly string[],
): Record<string, unknown> {
  return Object.fromEntries(names.map((name) => {
    const size = config[name], mayBreak = NUMBERS.includes(name);
    const isRight = mayBreak ? typeof size === "number" : Number.isSafeInteger(size);
    const must = `its ${name} must be a ${mayBreak ? "number" : "whole number"}`;
    ensure(isRight, `${doing} from ${path}`, must, quoted(size), RangeError);
    return [name, size];
  }));
}

/** Ids of bytes. */
const BYTES = 256;

/**
 * Returns the tokenizer of a checkpoint. If it is a file, the checkpoint has its hash.
 *
 * @throws {RangeError} {@linkcode TypeError} if the checkpoint names an unknown one.
 */
function tokenizerOf(doing: Doing, { path, config }: Checkpoint<TensorSource>): TokenizerSource {
  const { tokenizer = "bytes", vocab, files, flags } = config as {
    readonly tokenizer?: unknown;
    readonly vocab?: unknown;
    readonly files?: { readonly tokens?: unknown };
    readonly flags?: { readonly tokens?: unknown };
  };
  const kept = keptTokenizer(path, config);
  if (kept) return kept;
  // In Troupe 0.1, tokens of any file have the tokenizer "bytes".
  const isOld = (files?.tokens ?? flags?.tokens) !== undefined && Number(vocab) > BYTES;
  if (tokenizer === "bytes") return isOld ? "none" : tokenizer;
  const must = "its tokenizer must be bytes, gpt2, tokenizer.json or none";
  const isKnown = tokenizer === "gpt2" || tokenizer === "none";
  ensure(isKnown, `${doing} from ${path}`, must, quoted(tokenizer), RangeError);
  return tokenizer;
}

/** A trained MLP. */
export type TrainedMlp = ReturnType<typeof trainedMlp>;

const MLP_SIZES = ["inputs", "hidden", "layers", "classes"];

/**
 * Returns the MLP of a checkpoint, and checks its weights.
 *
 * @throws {RangeError} in one sentence for the user, if a size or a weight is invalid.
 */
export function trainedMlp(doing: Doing, checkpoint: Checkpoint<TensorSource>) {
  const { path, state: { weights }, shapes } = checkpoint;
  const config = sizesOf(doing, checkpoint, MLP_SIZES) as unknown as MlpConfig;
  checkTensors("weights", compileModel(mlp(config, 1), "none").parameters, weights, shapes.weights);
  return { architecture: "mlp", path, config, weights } as const;
}
