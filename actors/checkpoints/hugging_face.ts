/**
 * Folders of Hugging Face's transformers, read and written: names, shapes and layouts are those of
 * its `GPT2LMHeadModel` and `LlamaForCausalLM`.
 *
 * @module
 */

import { join } from "node:path";
import {
  type FloatDType,
  type Gpt2Config,
  gpt2Parameters,
  type LlamaConfig,
  llamaParameters,
  type ModelParameter,
  type Tie,
} from "../../kernels/mod.ts";
import {
  checkGpt2,
  checkInputFile,
  decodeFloats,
  encodeFloats,
  GPT2_MAX,
  gpt2Ties,
  layoutSafetensors,
  llamaSizes,
  llamaTies,
  refusal,
} from "../../kernels/internal.ts";
import { BYTES_MAX } from "./format.ts";
import { parseUnique } from "./markers.ts";
import { PIECE_ELEMENTS, piecesOf, type TensorSource } from "./tensors.ts";
import { HEAD_SLICE, type NamedShape } from "./weights.ts";
import { type NewFiles, writeJson, writeNewFolder } from "./write.ts";

/** Properties of the model of a folder other than its sizes. */
interface ModelFacts {
  /** Type of its weights. Default F32. */
  readonly dtype?: FloatDType;
  /** The token that begins a text, if its tokenizer has one. */
  readonly bos?: number | undefined;
  /** The token that ends a text, if its tokenizer has one. */
  readonly eos?: number | undefined;
  /** Dropout rate. Default 0. */
  readonly dropout?: number;
}

/** Types of weights by their names in PyTorch. */
const TORCH_DTYPES = { F32: "float32", F16: "float16", BF16: "bfloat16" } as const;

/** A parsed `config.json`. */
type ConfigJson = Readonly<Record<string, unknown>>;

/** Names in a `config.json` of the sizes of a model. */
type Keys = Readonly<Partial<Record<string, string>>>;

/** Sizes of a decoder. */
export type DecoderConfig = Gpt2Config | LlamaConfig;

/** A family of decoders with the format of its folders. */
export interface DecoderFormat<Config = DecoderConfig> {
  /** `model_type` of a folder. */
  readonly architecture: "gpt2" | "llama";
  /** Name of the family in `--model`. */
  readonly model: "gpt" | "llama";
  /** The class in transformers. */
  readonly className: string;
  /** Values of a `config.json` that must be these, or left out. */
  readonly fixed: ConfigJson;
  /** Names in a `config.json` of the sizes. */
  readonly keys: Keys;
  /** Reads the sizes; refuses unknown features. */
  read(reader: ConfigReader): Config;
  /** Returns the sizes with their defaults. */
  complete(config: Config): Readonly<Record<string, unknown>>;
  /** Returns the other values of a `config.json`. */
  more(config: Config, facts: ModelFacts): ConfigJson;
  /** Returns the parameters. */
  parameters(config: Config): readonly ModelParameter[];
  /** Returns the tied parameters. */
  ties(config: Config): readonly Tie[];
}

const CONFIG_FILE = "config.json";

/** Returns whether a `config.json` is one of transformers, not of a checkpoint. */
export const isTransformersConfig = (config: ConfigJson): boolean =>
  Object.hasOwn(config, "model_type");

/**
 * Reads the `config.json` of a folder.
 *
 * @throws {TypeError} when the file cannot be read.
 * @throws {SyntaxError} when it is not a JSON object, or has a name twice.
 */
export function readConfigJson(folder: string): ConfigJson {
  const path = join(folder, CONFIG_FILE);
  checkInputFile(path, BYTES_MAX[CONFIG_FILE]);
  return parseUnique(path, Deno.readFileSync(path));
}

/** Reads and checks values of a `config.json`, or of an adapter. */
export class ConfigReader {
  constructor(readonly json: ConfigJson, private readonly path: string) {}

  /** Refuses a value. */
  refuse(name: string, must: string, Kind: ErrorConstructor = RangeError): never {
    const received = Object.hasOwn(this.json, name) ? shown(this.json[name]) : "nothing";
    throw refusal(`read ${this.path}`, `its ${name} must be ${must}`, received, Kind);
  }

  /** Requires values to be these, or left out. */
  require(values: ConfigJson): void {
    for (const [name, only] of Object.entries(values)) {
      if ((this.json[name] ?? only) !== only) this.refuse(name, `${JSON.stringify(only)}, as here`);
    }
  }

  /** Reads a whole number. */
  size(name: string, otherwise?: number): number {
    const value = this.json[name] ?? otherwise;
    return Number.isSafeInteger(value)
      ? value as number
      : this.refuse(name, "a whole number", TypeError);
  }

  /** Reads whole numbers by the names of their sizes. */
  sizes<Name extends string>(keys: Readonly<Record<Name, string>>): Record<Name, number> {
    const entries = Object.entries<string>(keys).map(([name, key]) => [name, this.size(key)]);
    return Object.fromEntries(entries) as Record<Name, number>;
  }

  number(name: string, otherwise: number): number {
    const value = this.json[name] ?? otherwise;
    return typeof value === "number" ? value : this.refuse(name, "a number", TypeError);
  }

  boolean(name: string, otherwise: boolean): boolean {
    const { [name]: value = otherwise } = this.json;
    return typeof value === "boolean" ? value : this.refuse(name, "true or false", TypeError);
  }

  /** Adds the path to an error of a function that checks sizes. */
  checked<T>(use: () => T): T {
    try {
      return use();
    } catch (cause) {
      throw new RangeError(`Cannot read ${this.path}: ${(cause as Error).message}`, { cause });
    }
  }
}

/** Maximum number of characters of a value in a message. */
const SHOWN_MAX = 80;

/** Describes a value; a list or an object may be too deep to be written out. */
const shown = (value: unknown): string => {
  if (typeof value === "object" && value !== null) {
    return Array.isArray(value) ? "a list" : "an object";
  }
  return JSON.stringify(typeof value === "string" ? value.slice(0, SHOWN_MAX) : value);
};

/** Special tokens of a decoder. Without a value transformers uses its default. */
const decoderTokens = ({ bos, eos }: ModelFacts) => ({
  bos_token_id: bos ?? null,
  eos_token_id: eos ?? null,
});

const GPT2_SIZES = {
  layers: "n_layer",
  hidden: "n_embd",
  heads: "n_head",
  seq: "n_positions",
  vocab: "vocab_size",
} as const;

/** GPT-2. */
export const GPT2: DecoderFormat<Gpt2Config> = {
  architecture: "gpt2",
  model: "gpt",
  className: "GPT2LMHeadModel",
  fixed: {
    activation_function: "gelu_new",
    layer_norm_epsilon: 1e-5,
    scale_attn_by_inverse_layer_idx: false,
    scale_attn_weights: true,
  },
  keys: { ...GPT2_SIZES, tie: "tie_word_embeddings" },
  read(reader) {
    reader.require({ add_cross_attention: false });
    const sizes = reader.sizes(GPT2_SIZES), { hidden, seq } = sizes;
    const { n_inner: inner, n_ctx: context } = reader.json;
    if ((inner ?? 4 * hidden) !== 4 * hidden) {
      reader.refuse("n_inner", `4 times its n_embd, ${4 * hidden}`);
    }
    if ((context ?? seq) !== seq) reader.refuse("n_ctx", `its n_positions, ${seq}`);
    const tie = reader.boolean("tie_word_embeddings", true);
    reader.checked(() => checkGpt2(sizes, 1));
    return { ...sizes, tie };
  },
  complete: ({ tie = false, ...sizes }) => ({ ...sizes, tie }),
  more: ({ seq }, { dropout = 0, ...facts }) => ({
    ...decoderTokens(facts),
    attn_pdrop: dropout,
    embd_pdrop: dropout,
    initializer_range: 0.02,
    n_ctx: seq,
    n_inner: null,
    reorder_and_upcast_attn: false,
    resid_pdrop: dropout,
    summary_activation: null,
    summary_first_dropout: 0.1,
    summary_proj_to_labels: true,
    summary_type: "cls_index",
    summary_use_proj: true,
  }),
  parameters: gpt2Parameters,
  ties: gpt2Ties,
};

const LLAMA_SIZES = {
  layers: "num_hidden_layers",
  hidden: "hidden_size",
  heads: "num_attention_heads",
  intermediate: "intermediate_size",
  seq: "max_position_embeddings",
  vocab: "vocab_size",
} as const;

/** Llama. */
export const LLAMA: DecoderFormat<LlamaConfig> = {
  architecture: "llama",
  model: "llama",
  className: "LlamaForCausalLM",
  fixed: {
    attention_bias: false,
    hidden_act: "silu",
    mlp_bias: false,
    pretraining_tp: 1,
    rope_scaling: null,
  },
  keys: {
    ...LLAMA_SIZES,
    keyValueHeads: "num_key_value_heads",
    ropeTheta: "rope_theta",
    normEpsilon: "rms_norm_eps",
    tie: "tie_word_embeddings",
  },
  read(reader) {
    const sizes = reader.sizes(LLAMA_SIZES), ofHead = sizes.hidden / sizes.heads;
    if ((reader.json.head_dim ?? ofHead) !== ofHead) {
      reader.refuse("head_dim", `its hidden_size ÷ its num_attention_heads, ${ofHead}`);
    }
    const all = {
      ...sizes,
      keyValueHeads: reader.size("num_key_value_heads", sizes.heads),
      ropeTheta: ropeThetaOf(reader),
      normEpsilon: reader.number("rms_norm_eps", 1e-6),
      tie: reader.boolean("tie_word_embeddings", false),
      // Positions have no weights: of many, the first are used.
      seq: Math.min(sizes.seq, GPT2_MAX.seq),
    };
    const { dropout: _, ...known } = reader.checked(() => llamaSizes(all));
    return known;
  },
  complete: (config) => ({ ...llamaSizes(config) }),
  more: ({ hidden, heads }, { dropout = 0, ...facts }) => ({
    ...decoderTokens(facts),
    attention_dropout: dropout,
    head_dim: hidden / heads,
    initializer_range: 0.02,
  }),
  parameters: llamaParameters,
  ties: llamaTies,
};

/** Returns the base of the angles, which newer files have in `rope_parameters`. */
function ropeThetaOf(reader: ConfigReader): number {
  const { rope_parameters: rope } = reader.json, otherwise = 10_000;
  if ((rope ?? undefined) === undefined) return reader.number("rope_theta", otherwise);
  const { rope_type: type, rope_theta: theta = otherwise } = rope as ConfigJson;
  if (type === "default" && typeof theta === "number") return theta;
  return reader.refuse("rope_parameters", `of the rope_type "default", as here`);
}

/** Returns whether the weight of a dense layer is [in, out], as transformers' `Conv1D` has it. */
export const isConv1D = ({ architecture }: Pick<DecoderFormat, "architecture">, weight: string) =>
  architecture === "gpt2" && !weight.startsWith("lm_head.");

/** The families that are trained and generated from. */
export const DECODERS: readonly DecoderFormat[] = [GPT2, LLAMA];

/** Returns the decoder of a `config.json`; undefined for another model. */
export const decoderOf = ({ model_type: type }: ConfigJson): DecoderFormat | undefined =>
  DECODERS.find(({ architecture }) => architecture === type);

/**
 * Returns the sizes in a `config.json`.
 *
 * @param path for errors.
 * @throws {TypeError} when a value has the wrong type.
 * @throws {RangeError} when it is of another model, or has an unknown feature.
 */
export function parseConfig<Config>(
  family: DecoderFormat<Config>,
  json: ConfigJson,
  path: string,
): Config {
  const reader = new ConfigReader(json, path), { architecture, fixed } = family;
  if (json.model_type !== architecture) reader.refuse("model_type", `"${architecture}"`);
  reader.require(fixed);
  return family.read(reader);
}

/** Returns the `config.json` of a model, in the alphabetical order of transformers. */
function configJson<Config>(
  family: DecoderFormat<Config>,
  config: Config,
  facts: ModelFacts,
): ConfigJson {
  const { architecture, className, fixed, keys } = family, sizes = family.complete(config);
  const values = {
    ...fixed,
    ...Object.fromEntries(Object.entries(keys).map(([name, key]) => [key!, sizes[name]])),
    ...family.more(sizes as Config, facts),
    architectures: [className],
    model_type: architecture,
    torch_dtype: TORCH_DTYPES[facts.dtype ?? "F32"],
    use_cache: true,
  };
  return Object.fromEntries(Object.entries(values).sort(([a], [b]) => a < b ? -1 : 1));
}

/** A model to be written. */
interface ExportedModel<Config> extends ModelFacts {
  /** Sizes of the model. */
  readonly config: Config;
  /** Its weights, or their sources, by name. */
  readonly weights: ReadonlyMap<string, TensorSource>;
  /** Other files of the folder, such as those of its tokenizer, by name. */
  readonly files?: ReadonlyMap<string, Uint8Array>;
}

/**
 * Writes a model as a new folder: `config.json`, `generation_config.json`, `model.safetensors`, and
 * other files. The slices of a head are joined; a head that is tied to the embedding is left out.
 *
 * @param signal stops the export; nothing is left then.
 * @throws {RangeError} when the path exists, or a weight is too large for F16.
 * @throws {Error} when the disk fails; nothing is left then.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { compileModel, gpt2 } from "../../kernels/mod.ts";
 * import { initialValues } from "../../kernels/internal.ts";
 * import { readWeights } from "./weights.ts";
 *
 * const config = { layers: 1, hidden: 8, heads: 2, seq: 4, vocab: 16, tie: true };
 * const { parameters, ties } = compileModel(gpt2(config, 1), "none");
 * const weights = new Map(parameters.map(({ name, spec }) => [name, initialValues(spec, name, 1)]));
 * const folder = await Deno.makeTempDir();
 * await writeModelFolder(GPT2, `${folder}/mine`, { config, weights });
 * assert.deepEqual(parseConfig(GPT2, readConfigJson(`${folder}/mine`), "mine"), config);
 * assert.deepEqual(await readWeights(`${folder}/mine`, parameters, ties), weights);
 * await Deno.remove(folder, { recursive: true });
 * ```
 */
export async function writeModelFolder<Config extends DecoderConfig>(
  family: DecoderFormat<Config>,
  path: string,
  model: ExportedModel<Config>,
  signal?: AbortSignal,
): Promise<void> {
  const { config, weights, dtype = "F32", files: others = new Map(), bos, eos } = model;
  const generation = {
    _from_model_config: true,
    ...bos !== undefined && { bos_token_id: bos },
    ...eos !== undefined && { eos_token_id: eos },
  };
  await writeNewFolder(path, async (files) => {
    await writeJson(files, CONFIG_FILE, configJson(family, config, model));
    await writeJson(files, "generation_config.json", generation);
    for (const [name, bytes] of others) await files.write(name, [bytes]);
    const tensors = joinSlices(weights, family.parameters(config), config);
    await writeWeights(files, "model.safetensors", tensors, dtype);
  }, signal);
}

/** A tensor of the file, made of the rows of one parameter or of several. */
interface JoinedTensor {
  readonly shape: readonly number[];
  readonly parts: readonly TensorSource[];
}

function joinSlices(
  weights: ReadonlyMap<string, TensorSource>,
  parameters: readonly NamedShape[],
  { vocab, hidden }: DecoderConfig,
): ReadonlyMap<string, JoinedTensor> {
  const joined = new Map<string, JoinedTensor>();
  for (const { name, shape } of parameters) {
    const isSlice = HEAD_SLICE.test(name), whole = isSlice ? "lm_head.weight" : name;
    const { parts = [] } = joined.get(whole) ?? {};
    joined.set(whole, {
      shape: isSlice ? [vocab, hidden] : shape,
      parts: [...parts, weights.get(name)!],
    });
  }
  return joined;
}

/**
 * Writes tensors to a file of safetensors.
 *
 * @throws {RangeError} when a value is too large for the type.
 */
export async function writeWeights(
  files: NewFiles,
  file: string,
  tensors: ReadonlyMap<string, JoinedTensor>,
  dtype: FloatDType,
): Promise<void> {
  const infos = new Map(Array.from(tensors, ([name, { shape }]) => [name, { dtype, shape }]));
  const { header, names } = layoutSafetensors(infos, { format: "pt" });
  const piece = new Float32Array(PIECE_ELEMENTS);
  function* bytes() {
    yield header;
    for (const name of names) {
      for (const part of tensors.get(name)!.parts) {
        for (const { values } of piecesOf(part, piece)) yield encoded(name, values, dtype);
      }
    }
  }
  await files.write(file, bytes());
}

function encoded(name: string, values: Float32Array, dtype: FloatDType): Uint8Array {
  const bytes = encodeFloats(dtype, values);
  const lost = decodeFloats(dtype, bytes).findIndex((value) => !Number.isFinite(value));
  if (lost < 0) return bytes;
  const must = "its numbers must be among those of that type";
  throw refusal(`write ${name} in ${dtype}`, must, values[lost]);
}
