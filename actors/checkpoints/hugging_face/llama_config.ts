/**
 * The `config.json` of a Llama of Hugging Face's transformers, read and written.
 *
 * @module
 */

import { join } from "node:path";
import { GPT2_MAX, type LlamaConfig, type LlamaSizes, llamaSizes } from "../../../kernels/mod.ts";
import {
  CONFIG_FILE,
  type ConfigJson,
  configReader,
  type ModelFacts,
  readConfigJson,
  TORCH_DTYPES,
} from "./config_file.ts";

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
const MUST_BE: ConfigJson = {
  attention_bias: false,
  hidden_act: "silu",
  mlp_bias: false,
  pretraining_tp: 1,
  rope_scaling: null,
};

/** The sizes that a folder must say, by their names here. */
const SIZES = {
  layers: "num_hidden_layers",
  hidden: "hidden_size",
  heads: "num_attention_heads",
  intermediate: "intermediate_size",
  seq: "max_position_embeddings",
  vocab: "vocab_size",
} as const;

/** The names that a folder's `config.json` has for what a Llama is made of. */
export const LLAMA_KEYS = {
  ...SIZES,
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
  reader.mustBe(MUST_BE);
  const sizes = reader.sizes(SIZES), ofHead = sizes.hidden / sizes.heads;
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
