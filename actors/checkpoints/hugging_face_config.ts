/**
 * The `config.json` of a T5 of Hugging Face's transformers, read and written.
 *
 * @module
 */

import { join } from "node:path";
import {
  checkGpt2,
  checkInputFile,
  type FloatDType,
  GPT2_MAX,
  type LlamaSizes,
  llamaSizes,
  repeatedKey,
  t5Sizes,
} from "../../kernels/internal.ts";
import type { Gpt2Config, LlamaConfig, T5Config } from "../../kernels/mod.ts";
import { BYTES_MAX } from "./format.ts";
import { parseRecord } from "./markers.ts";

/** What else a folder says of its model. */
export interface ModelFacts {
  /** The type of its weights; F32 unless given. */
  readonly dtype?: FloatDType;
  /** The token that begins a text, where its tokenizer has one. */
  readonly bos?: number | undefined;
  /** The token that ends a text, where its tokenizer has one. */
  readonly eos?: number | undefined;
  /** Share of values that training leaves out; 0 unless given. */
  readonly dropout?: number;
}

/** The name of the file. */
const CONFIG_FILE = "config.json";

/** The types of weights as PyTorch calls them. */
const TORCH_DTYPES = { F32: "float32", F16: "float16", BF16: "bfloat16" } as const;

/** A `config.json`, as it was parsed. */
export type ConfigJson = Readonly<Record<string, unknown>>;

/** What `generation_config.json` says, made of the model's own. */
export function generationJson({ bos, eos }: ModelFacts): ConfigJson {
  return {
    _from_model_config: true,
    ...bos !== undefined && { bos_token_id: bos },
    ...eos !== undefined && { eos_token_id: eos },
  };
}

/** Whether a `config.json` is one of transformers, of whatever model; that of a checkpoint is not. */
export const isTransformersConfig = (config: ConfigJson): boolean =>
  Object.hasOwn(config, "model_type");

/**
 * Reads what the `config.json` of a folder says.
 *
 * @throws {TypeError} when there is none that can be read.
 * @throws {SyntaxError} when it is no JSON object, or says something twice.
 */
export function readConfigJson(folder: string): ConfigJson {
  const path = join(folder, CONFIG_FILE);
  checkInputFile(path, BYTES_MAX[CONFIG_FILE]);
  const bytes = Deno.readFileSync(path), config = parseRecord(path, bytes);
  const twice = repeatedKey(new TextDecoder().decode(bytes));
  if (twice === undefined) return config;
  throw new SyntaxError(
    `Cannot read ${path}: its names must be unique, received ${shown(twice)} twice`,
  );
}

/** What reads the values of a `config.json`, and refuses those that cannot be. */
interface ConfigReader {
  /** Refuses a value by its name, in one sentence. */
  refuse(name: string, must: string, Kind?: ErrorConstructor): never;
  /** Makes sure of values that are this, or left out. */
  mustBe(only: ConfigJson): void;
  /** A whole number. */
  size(name: string): number;
  /** Whole numbers, by the names that they have here. */
  sizes<Name extends string>(keys: Readonly<Record<Name, string>>): Record<Name, number>;
  /** Does something with sizes that were read, and says of which file they are where that fails. */
  checked<T>(use: () => T): T;
}

/**
 * Reads values of a `config.json`.
 *
 * @param path for messages.
 */
function configReader(config: ConfigJson, path: string): ConfigReader {
  const refuse = (name: string, must: string, Kind: ErrorConstructor = RangeError): never => {
    const received = Object.hasOwn(config, name) ? shown(config[name]) : "nothing";
    throw new Kind(`Cannot read ${path}: its ${name} must be ${must}, received ${received}`);
  };
  const size = (name: string): number => {
    if (!Number.isSafeInteger(config[name])) refuse(name, "a whole number", TypeError);
    return config[name] as number;
  };
  return {
    refuse,
    size,
    mustBe(values) {
      for (const [name, only] of Object.entries(values)) {
        if ((config[name] ?? only) !== only) refuse(name, `${JSON.stringify(only)}, as here`);
      }
    },
    sizes: <Name extends string>(keys: Readonly<Record<Name, string>>) =>
      Object.fromEntries(
        Object.entries<string>(keys).map(([name, key]) => [name, size(key)]),
      ) as Record<Name, number>,
    checked(use) {
      try {
        return use();
      } catch (cause) {
        throw new RangeError(`Cannot read ${path}: ${(cause as Error).message}`, { cause });
      }
    },
  };
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

/** What else a folder says of its model. */
export type Gpt2Facts = ModelFacts;

/** What `config.json` says of a GPT-2, by the names and in the order of transformers. */
export function gpt2ConfigJson(
  { layers, hidden, heads, seq, vocab, tie = false }: Gpt2Config,
  { dtype = "F32", bos, eos, dropout = 0 }: ModelFacts,
): ConfigJson {
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

/**
 * What is known of a model whose folder says it: each must be this, or left out.
 *
 * `n_inner` may be 4·`n_embd`, and `n_ctx` must be `n_positions`: see below.
 */
const MUST_BE: ConfigJson = {
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

/** The names that a folder's `config.json` has for what a GPT-2 is made of. */
export const GPT2_KEYS = { ...SIZES, tie: "tie_word_embeddings" } as const;

/**
 * The sizes of the GPT-2 in a folder of Hugging Face's, as its `config.json` says them.
 *
 * @throws {TypeError} when there is no such file, or what it says is of the wrong type.
 * @throws {RangeError} when it is of another model, or of a GPT-2 with a feature that is not known here.
 * @throws {SyntaxError} when it is no JSON object.
 */
export function readGpt2Config(folder: string): Gpt2Config {
  return parseGpt2Config(readConfigJson(folder), join(folder, CONFIG_FILE));
}

/**
 * The sizes of a GPT-2, as its `config.json` says them.
 *
 * @param path for messages.
 * @throws as {@linkcode readGpt2Config}.
 */
export function parseGpt2Config(
  config: ConfigJson,
  path: string,
): Gpt2Config {
  const reader = configReader(config, path), { refuse } = reader;
  if (config.model_type !== "gpt2") refuse("model_type", `"gpt2"`);
  reader.mustBe(MUST_BE);
  const sizes = reader.sizes(SIZES);
  const { n_inner: inner, n_ctx: context, tie_word_embeddings: tie = true } = config;
  if ((inner ?? 4 * sizes.hidden) !== 4 * sizes.hidden) {
    refuse("n_inner", `4 times its n_embd, ${4 * sizes.hidden}`);
  }
  if ((context ?? sizes.seq) !== sizes.seq) refuse("n_ctx", `its n_positions, ${sizes.seq}`);
  if (typeof tie !== "boolean") refuse("tie_word_embeddings", "true or false", TypeError);
  reader.checked(() => checkGpt2(sizes, 1));
  return { ...sizes, tie: tie as boolean };
}

/** What `config.json` says of a Llama, by the names and in the order of transformers. */
export function llamaConfigJson(
  config: LlamaConfig,
  { dtype = "F32", bos, eos, dropout = 0 }: ModelFacts,
): ConfigJson {
  const sizes = llamaSizes(config);
  return {
    architectures: ["LlamaForCausalLM"],
    attention_bias: false,
    attention_dropout: dropout,
    bos_token_id: bos ?? null, // transformers takes 1 where nothing is said
    eos_token_id: eos ?? null,
    head_dim: sizes.hidden / sizes.heads,
    hidden_act: "silu",
    hidden_size: sizes.hidden,
    initializer_range: 0.02,
    intermediate_size: sizes.intermediate,
    max_position_embeddings: sizes.seq,
    mlp_bias: false,
    model_type: "llama",
    num_attention_heads: sizes.heads,
    num_hidden_layers: sizes.layers,
    num_key_value_heads: sizes.keyValueHeads,
    pretraining_tp: 1,
    rms_norm_eps: sizes.normEpsilon,
    rope_scaling: null,
    rope_theta: sizes.ropeTheta,
    tie_word_embeddings: sizes.tie,
    torch_dtype: TORCH_DTYPES[dtype],
    use_cache: true,
    vocab_size: sizes.vocab,
  };
}

/** What is known of a model whose folder says it: each must be this, or left out. */
const LLAMA_MUST_BE: ConfigJson = {
  attention_bias: false,
  hidden_act: "silu",
  mlp_bias: false,
  pretraining_tp: 1,
  rope_scaling: null,
};

/** The sizes that a folder must say, by their names here. */
const LLAMA_SIZES = {
  layers: "num_hidden_layers",
  hidden: "hidden_size",
  heads: "num_attention_heads",
  intermediate: "intermediate_size",
  seq: "max_position_embeddings",
  vocab: "vocab_size",
} as const;

/** The names that a folder's `config.json` has for what a Llama is made of. */
export const LLAMA_KEYS = {
  ...LLAMA_SIZES,
  keyValueHeads: "num_key_value_heads",
  ropeTheta: "rope_theta",
  normEpsilon: "rms_norm_eps",
  tie: "tie_word_embeddings",
} as const;

/**
 * The sizes of the Llama in a folder of Hugging Face's, as its `config.json` says them. Positions have
 * no weights: of more than 8,192 the first are taken.
 *
 * @throws {TypeError} when there is no such file, or what it says is of the wrong type.
 * @throws {RangeError} when it is of another model, or of a Llama with a feature that is not known here.
 * @throws {SyntaxError} when it is no JSON object.
 */
export function readLlamaConfig(folder: string): LlamaConfig {
  return parseLlamaConfig(readConfigJson(folder), join(folder, CONFIG_FILE));
}

/**
 * The sizes of a Llama, as its `config.json` says them.
 *
 * @param path for messages.
 * @throws as {@linkcode readLlamaConfig}.
 */
export function parseLlamaConfig(config: ConfigJson, path: string): LlamaConfig {
  const reader = configReader(config, path), { refuse } = reader;
  if (config.model_type !== "llama") refuse("model_type", `"llama"`);
  reader.mustBe(LLAMA_MUST_BE);
  const sizes = reader.sizes(LLAMA_SIZES), ofHead = sizes.hidden / sizes.heads;
  if ((config.head_dim ?? ofHead) !== ofHead) {
    refuse("head_dim", `its hidden_size ÷ its num_attention_heads, ${ofHead}`);
  }
  const { num_key_value_heads, tie_word_embeddings: tie = false } = config;
  const keyValueHeads = (num_key_value_heads ?? undefined) === undefined
    ? sizes.heads
    : reader.size(LLAMA_KEYS.keyValueHeads);
  const number = (name: string, otherwise: number): number => {
    const value = config[name] ?? otherwise;
    return typeof value === "number" ? value : refuse(name, "a number", TypeError);
  };
  const ropeTheta = ropeThetaOf(config, number, refuse);
  const normEpsilon = number(LLAMA_KEYS.normEpsilon, 1e-6);
  if (typeof tie !== "boolean") refuse("tie_word_embeddings", "true or false", TypeError);
  const all = { ...sizes, keyValueHeads, ropeTheta, normEpsilon, tie: tie as boolean };
  const seq = Math.min(sizes.seq, GPT2_MAX.seq);
  const { dropout: _, ...known }: LlamaSizes = reader.checked(() => llamaSizes({ ...all, seq }));
  return known;
}

/** The base of the angles: newer files say it among `rope_parameters`. */
function ropeThetaOf(
  config: ConfigJson,
  number: (name: string, otherwise: number) => number,
  refuse: (name: string, must: string) => never,
): number {
  const { rope_parameters: rope } = config, otherwise = 10_000;
  if ((rope ?? undefined) === undefined) return number(LLAMA_KEYS.ropeTheta, otherwise);
  const { rope_type: type, rope_theta: theta = otherwise } = rope as ConfigJson;
  if (type === "default" && typeof theta === "number") return theta;
  return refuse("rope_parameters", `of the rope_type "default", as here`);
}

/** The sizes of a T5 without those of its samples: positions have no weights but their distances. */
export type T5Shape = Omit<T5Config, "seq" | "targetSeq" | "dropout">;

/** The token that pads, and begins what is written; and the one that ends it. */
const PAD = 0, END = 1;

/** What `config.json` says of a T5, by the names and in the order of transformers. */
export function t5ConfigJson(config: T5Shape, facts: ModelFacts): ConfigJson {
  const { dtype = "F32", eos = END, dropout = 0 } = facts;
  const { layers, hidden, heads, vocab, tie, gated, ...rest } = t5Sizes({ ...config, seq: 1 });
  return {
    architectures: ["T5ForConditionalGeneration"],
    classifier_dropout: 0,
    d_ff: rest.feedForward,
    d_kv: rest.headWidth,
    d_model: hidden,
    decoder_start_token_id: PAD,
    dense_act_fn: gated ? "gelu_new" : "relu",
    dropout_rate: dropout,
    eos_token_id: eos,
    feed_forward_proj: gated ? GATED : "relu",
    initializer_factor: 1,
    is_encoder_decoder: true,
    is_gated_act: gated,
    layer_norm_epsilon: 1e-6,
    model_type: "t5",
    num_decoder_layers: layers,
    num_heads: heads,
    num_layers: layers,
    pad_token_id: PAD,
    relative_attention_max_distance: rest.maxDistance,
    relative_attention_num_buckets: rest.buckets,
    tie_word_embeddings: tie,
    torch_dtype: TORCH_DTYPES[dtype],
    use_cache: true,
    vocab_size: vocab,
  };
}

/** What `generation_config.json` says. */
export const t5GenerationJson = ({ eos = END }: ModelFacts): ConfigJson => ({
  _from_model_config: true,
  decoder_start_token_id: PAD,
  eos_token_id: eos,
  pad_token_id: PAD,
});

/** The feed-forward network of version 1.1. */
const GATED = "gated-gelu";

/** What is known of a model whose folder says it: each must be this, or left out. */
const T5_MUST_BE: ConfigJson = {
  decoder_start_token_id: PAD,
  is_encoder_decoder: true,
  layer_norm_epsilon: 1e-6,
  pad_token_id: PAD,
};

/** The sizes that a folder must say, by their names here. */
const T5_SIZES = {
  layers: "num_layers",
  hidden: "d_model",
  heads: "num_heads",
  headWidth: "d_kv",
  feedForward: "d_ff",
  vocab: "vocab_size",
} as const;

/**
 * The sizes of the T5 in a folder of Hugging Face's, as its `config.json` says them; how many tokens
 * are read and written is for whoever makes the model.
 *
 * @throws {TypeError} when there is no such file, or what it says is of the wrong type.
 * @throws {RangeError} when it is of another model, or of a T5 with a feature that is not known here.
 * @throws {SyntaxError} when it is no JSON object.
 */
export function readT5Config(folder: string): T5Shape {
  const config = readConfigJson(folder), reader = configReader(config, join(folder, CONFIG_FILE));
  const { refuse } = reader;
  if (config.model_type !== "t5") refuse("model_type", `"t5"`);
  const { tie_word_embeddings: tie = true, feed_forward_proj: kind = "relu" } = config;
  if (typeof tie !== "boolean") refuse("tie_word_embeddings", "true or false", TypeError);
  if (kind !== "relu" && kind !== GATED) refuse("feed_forward_proj", `"relu" or "${GATED}"`);
  const sizes = reader.sizes(T5_SIZES);
  // What is scaled before the head is what has the table of the embedding.
  reader.mustBe({
    ...T5_MUST_BE,
    num_decoder_layers: sizes.layers,
    scale_decoder_outputs: tie,
  });
  const optional = (name: string, otherwise: number) =>
    (config[name] ?? undefined) === undefined ? otherwise : reader.size(name);
  const known = {
    ...sizes,
    tie: tie as boolean,
    gated: kind === GATED,
    buckets: optional("relative_attention_num_buckets", 32),
    maxDistance: optional("relative_attention_max_distance", 128),
  };
  reader.checked(() => t5Sizes({ ...known, seq: 1 }));
  return known;
}
