/**
 * The `config.json` of a GPT-2 of Hugging Face's transformers, read and written. One that is read may
 * be a stranger's: it says sizes, within bounds, and names nothing.
 *
 * @module
 */

import { join } from "node:path";
import {
  checkGpt2,
  checkInputFile,
  type FloatDType,
  type Gpt2Config,
  repeatedKey,
} from "../../../kernels/mod.ts";
import { BYTES_MAX } from "../checkpoint_format.ts";
import { parseRecord } from "../whole_files.ts";

/** What else a folder says of its model. */
export interface Gpt2Facts {
  /** The type of its weights; F32 unless given. */
  readonly dtype?: FloatDType;
  /** The token that begins a text, where its tokenizer has one. */
  readonly bos?: number | undefined;
  /** The token that ends a text, where its tokenizer has one. */
  readonly eos?: number | undefined;
  /** Share of values that training leaves out; 0 unless given. */
  readonly dropout?: number;
}

/** The types of weights as PyTorch calls them. */
const TORCH_DTYPES = { F32: "float32", F16: "float16", BF16: "bfloat16" } as const;

/** What `config.json` says of a GPT-2, by the names and in the order of transformers. */
export function gpt2ConfigJson(
  { layers, hidden, heads, seq, vocab, tie = false }: Gpt2Config,
  { dtype = "F32", bos, eos, dropout = 0 }: Gpt2Facts,
): Readonly<Record<string, unknown>> {
  return {
    activation_function: "gelu_new",
    architectures: ["GPT2LMHeadModel"],
    attn_pdrop: dropout,
    bos_token_id: bos ?? null, // transformers takes 50256 where nothing is said
    embd_pdrop: dropout,
    eos_token_id: eos ?? null,
    initializer_range: 0.02,
    layer_norm_epsilon: 1e-5,
    model_type: "gpt2",
    n_ctx: seq,
    n_embd: hidden,
    n_head: heads,
    n_inner: null,
    n_layer: layers,
    n_positions: seq,
    reorder_and_upcast_attn: false,
    resid_pdrop: dropout,
    scale_attn_by_inverse_layer_idx: false,
    scale_attn_weights: true,
    summary_activation: null,
    summary_first_dropout: 0.1,
    summary_proj_to_labels: true,
    summary_type: "cls_index",
    summary_use_proj: true,
    tie_word_embeddings: tie,
    torch_dtype: TORCH_DTYPES[dtype],
    use_cache: true,
    vocab_size: vocab,
  };
}

/** What `generation_config.json` says, made of the model's own. */
export function gpt2GenerationJson({ bos, eos }: Gpt2Facts): Readonly<Record<string, unknown>> {
  return {
    _from_model_config: true,
    ...bos !== undefined && { bos_token_id: bos },
    ...eos !== undefined && { eos_token_id: eos },
  };
}

/** The name of the file. */
const NAME = "config.json";

/**
 * What is known of a model whose folder says it: each must be this, or left out.
 *
 * `n_inner` may be 4·`n_embd`, and `n_ctx` must be `n_positions`: see below.
 */
const MUST_BE: Readonly<Record<string, unknown>> = {
  activation_function: "gelu_new",
  add_cross_attention: false,
  layer_norm_epsilon: 1e-5,
  scale_attn_by_inverse_layer_idx: false,
  scale_attn_weights: true,
};

/** The sizes, by their names here. */
const SIZES = {
  layers: "n_layer",
  hidden: "n_embd",
  heads: "n_head",
  seq: "n_positions",
  vocab: "vocab_size",
} as const;

/** The name that a folder's `config.json` has for a size of a GPT-2. */
export const gpt2ConfigKey = (name: keyof typeof SIZES | "tie"): string =>
  name === "tie" ? "tie_word_embeddings" : SIZES[name];

/** Whether a `config.json` is one of transformers, of whatever model; that of a checkpoint is not. */
export const isTransformersConfig = (config: Readonly<Record<string, unknown>>): boolean =>
  Object.hasOwn(config, "model_type");

/**
 * Reads what the `config.json` of a folder says.
 *
 * @throws {TypeError} when there is none that can be read.
 * @throws {SyntaxError} when it is no JSON object, or says something twice.
 */
export function readConfigJson(folder: string): Readonly<Record<string, unknown>> {
  const path = join(folder, NAME);
  checkInputFile(path, BYTES_MAX[NAME]);
  const bytes = Deno.readFileSync(path), config = parseRecord(path, bytes);
  const twice = repeatedKey(new TextDecoder().decode(bytes));
  if (twice === undefined) return config;
  throw new SyntaxError(
    `Cannot read ${path}: its names must be unique, received ${shown(twice)} twice`,
  );
}

/**
 * The sizes of the GPT-2 in a folder of Hugging Face's, as its `config.json` says them.
 *
 * @throws {TypeError} when there is no such file, or what it says is of the wrong type.
 * @throws {RangeError} when it is of another model, or of a GPT-2 with a feature that is not known here.
 * @throws {SyntaxError} when it is no JSON object.
 */
export function readGpt2Config(folder: string): Gpt2Config {
  return parseGpt2Config(readConfigJson(folder), join(folder, NAME));
}

/**
 * The sizes of a GPT-2, as its `config.json` says them.
 *
 * @param path for messages.
 * @throws as {@linkcode readGpt2Config}.
 */
export function parseGpt2Config(
  config: Readonly<Record<string, unknown>>,
  path: string,
): Gpt2Config {
  const refuse = (name: string, must: string, Kind = RangeError): never => {
    const received = Object.hasOwn(config, name) ? shown(config[name]) : "nothing";
    throw new Kind(`Cannot read ${path}: its ${name} must be ${must}, received ${received}`);
  };
  if (config.model_type !== "gpt2") refuse("model_type", `"gpt2"`);
  for (const [name, only] of Object.entries(MUST_BE)) {
    if ((config[name] ?? only) !== only) refuse(name, `${JSON.stringify(only)}, as here`);
  }
  const size = (name: string): number => {
    if (!Number.isSafeInteger(config[name])) refuse(name, "a whole number", TypeError);
    return config[name] as number;
  };
  const sizes = Object.fromEntries(
    Object.entries(SIZES).map(([name, key]) => [name, size(key)]),
  ) as Record<keyof typeof SIZES, number>;
  const { n_inner: inner, n_ctx: context, tie_word_embeddings: tie = true } = config;
  if ((inner ?? 4 * sizes.hidden) !== 4 * sizes.hidden) {
    refuse("n_inner", `4 times its n_embd, ${4 * sizes.hidden}`);
  }
  if ((context ?? sizes.seq) !== sizes.seq) refuse("n_ctx", `its n_positions, ${sizes.seq}`);
  if (typeof tie !== "boolean") refuse("tie_word_embeddings", "true or false", TypeError);
  try {
    checkGpt2(sizes, 1);
  } catch (cause) {
    throw new RangeError(`Cannot read ${path}: ${(cause as Error).message}`, { cause });
  }
  return { ...sizes, tie: tie as boolean };
}

/** Characters of a value that are shown. */
const SHOWN_MAX = 80;

/** A value in a few words: a list or an object may be too deep to be written out. */
const shown = (value: unknown): string => {
  if (typeof value === "object" && value !== null) {
    return Array.isArray(value) ? "a list" : "an object";
  }
  return JSON.stringify(typeof value === "string" ? value.slice(0, SHOWN_MAX) : value);
};
