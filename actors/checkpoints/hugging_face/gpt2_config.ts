/**
 * The `config.json` of a GPT-2 of Hugging Face's transformers, read and written.
 *
 * @module
 */

import { join } from "node:path";
import { checkGpt2, type Gpt2Config } from "../../../kernels/mod.ts";
import {
  CONFIG_FILE,
  type ConfigJson,
  configReader,
  type ModelFacts,
  readConfigJson,
  TORCH_DTYPES,
} from "./config_file.ts";

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
