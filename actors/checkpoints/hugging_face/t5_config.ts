/**
 * The `config.json` of a T5 of Hugging Face's transformers, read and written.
 *
 * @module
 */

import { join } from "node:path";
import { type T5Config, t5Sizes } from "../../../kernels/mod.ts";
import {
  CONFIG_FILE,
  type ConfigJson,
  configReader,
  type ModelFacts,
  readConfigJson,
  TORCH_DTYPES,
} from "./config_file.ts";

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
const MUST_BE: ConfigJson = {
  decoder_start_token_id: PAD,
  is_encoder_decoder: true,
  layer_norm_epsilon: 1e-6,
  pad_token_id: PAD,
};

/** The sizes that a folder must say, by their names here. */
const SIZES = {
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
  const sizes = reader.sizes(SIZES);
  // What is scaled before the head is what has the table of the embedding.
  reader.mustBe({ ...MUST_BE, num_decoder_layers: sizes.layers, scale_decoder_outputs: tie });
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
