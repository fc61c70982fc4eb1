/**
 * The flags of `troupe train` that say what is trained.
 *
 * @module
 */

import { builtInNames } from "../../../actors/registry/mod.ts";
import type { ModelOptions } from "../../../actors/parts/model_part.ts";
import { GPT2_MAX } from "../../../kernels/mod.ts";
import type { FlagValues } from "../../flags/flag.ts";
import { TOKENIZER_FLAG } from "../../trained/tokenizer_source.ts";

/** What stands for a part in the help. */
export const PART = "NAME|MODULE";

/** A model that a part builds. */
export const BUILT_MODEL_FLAG = {
  kind: "part",
  choices: builtInNames("model"),
  value: PART,
  default: "gpt",
  help: `what to train: ${builtInNames("model").join(", ")}, or one of your own`,
} as const;

/** The model and its sizes: these cannot change when a run goes on. */
export const MODEL_FLAGS = {
  model: {
    ...BUILT_MODEL_FLAG,
    value: `${PART}|FILE.onnx`,
    help: `what to train: ${builtInNames("model").join(", ")}, one of your own, or an ONNX file`,
  },
  layers: {
    kind: "integer",
    aliases: ["n_layer", "num_hidden_layers"],
    maximum: GPT2_MAX.layers,
    default: 4,
    help:
      "transformer blocks (t5: of encoder and decoder each), hidden layers of the mlp, or resolutions of resnet and unet",
  },
  hidden: {
    kind: "integer",
    aliases: ["n_embd", "hidden_size"],
    maximum: GPT2_MAX.hidden,
    default: 128,
    help: "width of the layers; of resnet and unet, channels of the coarsest resolution",
  },
  heads: {
    kind: "integer",
    aliases: ["n_head", "num_attention_heads"],
    maximum: GPT2_MAX.heads,
    default: 4,
    help: "attention heads",
  },
  "kv-heads": {
    kind: "integer",
    aliases: ["num_key_value_heads"],
    maximum: GPT2_MAX.heads,
    otherwise: "as many as --heads",
    help: "llama: attention heads of keys and values, each for several of the queries'",
  },
  intermediate: {
    kind: "integer",
    aliases: ["intermediate_size"],
    otherwise: "8/3 of --hidden, up to a multiple of 32",
    help: "llama: width within a feed-forward network",
  },
  "rope-theta": {
    kind: "number",
    otherwise: "10000",
    help: "llama: base of the angles of rotary positions",
  },
  "norm-epsilon": {
    kind: "number",
    aliases: ["rms_norm_eps"],
    otherwise: "0.000001",
    help: "llama: what is added to the mean square in a norm",
  },
  experts: {
    kind: "integer",
    maximum: GPT2_MAX.heads,
    otherwise: "what the model says",
    help: "models of your own: experts of a mixture",
  },
  seq: {
    kind: "integer",
    aliases: ["block_size", "max_position_embeddings"],
    maximum: GPT2_MAX.seq,
    default: 64,
    help: "tokens of a sample",
  },
  vocab: {
    kind: "integer",
    aliases: ["vocab_size"],
    maximum: GPT2_MAX.vocab,
    otherwise: "that of the tokenizer",
    help: "number of token ids",
  },
  tokenizer: {
    ...TOKENIZER_FLAG,
    otherwise: "bytes, or that of the weights' folder; of --tokens with --vocab none",
  },
  tie: {
    kind: "switch",
    aliases: ["tie_word_embeddings"],
    help: "gpt, llama, t5: the head's weight is that of the token embedding",
  },
  "head-slices": {
    kind: "integer",
    maximum: GPT2_MAX.headSlices,
    otherwise: "1",
    help: "gpt: layers that share the head, each with a slice of the vocabulary",
  },
} as const;

/** The sizes among the flags, by what a part calls them. */
export const SIZES = {
  layers: "layers",
  hidden: "hidden",
  heads: "heads",
  "kv-heads": "keyValueHeads",
  intermediate: "intermediate",
  "rope-theta": "ropeTheta",
  "norm-epsilon": "normEpsilon",
  experts: "experts",
  seq: "seq",
  vocab: "vocab",
  tie: "tie",
  "head-slices": "headSlices",
} as const;

/** The sizes that flags say of a model, as its part is asked for them. */
export function sizesOfFlags(
  { tie = false, ...flags }: Omit<FlagValues<typeof MODEL_FLAGS>, "tokenizer">,
): Omit<ModelOptions, "data" | "microBatch"> {
  const given: Readonly<Record<string, unknown>> = { ...flags, tie };
  return Object.fromEntries(
    Object.entries(SIZES).map(([flag, option]) => [option, given[flag]]),
  ) as unknown as Omit<ModelOptions, "data" | "microBatch">;
}

/** Options that note which of them are read. */
export const noteReads = <T extends object>(options: T, read: Set<unknown>): T =>
  new Proxy(options, { get: (all, name) => (read.add(name), Reflect.get(all, name)) });

/**
 * Refuses sizes that neither a model nor its data reads.
 *
 * @param cannot the begin of the sentence.
 * @param given the flags that were typed.
 */
export function refuseUnread(
  cannot: string,
  given: Readonly<Record<string, unknown>>,
  read: ReadonlySet<unknown>,
): void {
  const [flag] = Object.entries(SIZES)
    .find(([flag, option]) => given[flag] !== undefined && !read.has(option)) ?? [];
  if (flag === undefined) return;
  throw new TypeError(
    `${cannot}: --${flag} must be left out, as the model does not read it, received ${given[flag]}`,
  );
}
