/**
 * The decoders that a folder of Hugging Face's may hold.
 *
 * @module
 */

import {
  type Gpt2Config,
  gpt2Parameters,
  gpt2Ties,
  type LlamaConfig,
  llamaParameters,
  llamaTies,
  type ModelParameter,
  type Tie,
} from "../../../kernels/mod.ts";
import type { ConfigJson, ModelFacts } from "./config_file.ts";
import { GPT2_KEYS, gpt2ConfigJson, parseGpt2Config } from "./gpt2_config.ts";
import { LLAMA_KEYS, llamaConfigJson, parseLlamaConfig } from "./llama_config.ts";

/** The sizes of a decoder. */
export type DecoderConfig = Gpt2Config | LlamaConfig;

/** What is known of a kind of decoder. */
export interface DecoderFormat<Config = DecoderConfig> {
  /** What checkpoints call it, and `model_type` of a folder. */
  readonly architecture: "gpt2" | "llama";
  /** What `--model` calls it. */
  readonly model: "gpt" | "llama";
  /** The names that a folder's `config.json` has for its sizes. */
  readonly keys: Readonly<Partial<Record<string, string>>>;
  /** The sizes that a `config.json` says; refuses a feature that is not known here. */
  parse(config: ConfigJson, path: string): Config;
  /** What a `config.json` says. */
  configJson(config: Config, facts: ModelFacts): ConfigJson;
  /** The parameters by name and shape. */
  parameters(config: Config): readonly ModelParameter[];
  /** Parameters that are one. */
  ties(config: Config): readonly Tie[];
}

/** All of them. */
export const DECODERS: readonly DecoderFormat[] = [
  {
    architecture: "gpt2",
    model: "gpt",
    keys: GPT2_KEYS,
    parse: parseGpt2Config,
    configJson: gpt2ConfigJson,
    parameters: gpt2Parameters,
    ties: gpt2Ties,
  },
  {
    architecture: "llama",
    model: "llama",
    keys: LLAMA_KEYS,
    parse: parseLlamaConfig,
    configJson: llamaConfigJson,
    parameters: llamaParameters,
    ties: llamaTies,
  },
];

/** The decoder that a `config.json` is of; undefined for another model. */
export const decoderOf = ({ model_type: type }: ConfigJson): DecoderFormat | undefined =>
  DECODERS.find(({ architecture }) => architecture === type);

/** The decoder that checkpoints call so. */
export const decoderNamed = (architecture: DecoderFormat["architecture"]): DecoderFormat =>
  DECODERS.find((one) => one.architecture === architecture)!;
