/**
 * A model as a folder that Hugging Face's transformers reads: names, shapes and layouts are those of
 * its `GPT2LMHeadModel`, `LlamaForCausalLM` and `T5ForConditionalGeneration`.
 *
 * @module
 */

import {
  compileModel,
  type Gpt2Config,
  gpt2Parameters,
  layoutSafetensors,
  type LlamaConfig,
  llamaParameters,
  type ModelParameter,
  t5,
  type Tie,
} from "../../kernels/mod.ts";
import {
  decodeFloats,
  encodeFloats,
  type FloatDType,
  gpt2Ties,
  llamaTies,
} from "../../kernels/internal.ts";
import {
  type ConfigJson,
  generationJson,
  GPT2_KEYS,
  gpt2ConfigJson,
  LLAMA_KEYS,
  llamaConfigJson,
  type ModelFacts,
  parseGpt2Config,
  parseLlamaConfig,
  t5ConfigJson,
  t5GenerationJson,
  type T5Shape,
} from "./hugging_face_config.ts";
import { piecesOf, type TensorSource } from "./tensors.ts";
import { HEAD_SLICE, type NamedShape } from "./weights.ts";
import { type NewFiles, writeJson, writeNewFolder } from "./write.ts";

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
const decoderNamed = (architecture: DecoderFormat["architecture"]): DecoderFormat =>
  DECODERS.find((one) => one.architecture === architecture)!;

/** What is written. */
export interface ExportedDecoder<Config = DecoderConfig> extends ModelFacts {
  /** The sizes of the model. */
  readonly config: Config;
  /** Its weights, or where they come from, by name. */
  readonly weights: ReadonlyMap<string, TensorSource>;
  /** Files that stand beside it, such as those of its tokenizer, by name. */
  readonly files?: ReadonlyMap<string, Uint8Array>;
}

/** A GPT-2 that is written. */
export type ExportedGpt2 = ExportedDecoder<Gpt2Config>;

/** A T5 that is written. */
export type ExportedT5 = ExportedDecoder<T5Shape>;

/** A Llama that is written. */
export type ExportedLlama = ExportedDecoder<LlamaConfig>;

/**
 * Writes a GPT-2 as a new folder: `config.json`, `generation_config.json`, `model.safetensors`, and the
 * files that stand beside them. A head in slices is joined; one that is tied to the embedding is left
 * out, as its table is there.
 *
 * @param signal ends it, and nothing is left.
 * @throws {RangeError} when there is something of that name, or a weight is beyond what F16 holds.
 * @throws {Error} saying what is in the way, such as a full disk; nothing is left there then.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { readWeights } from "@troupe/troupe/actors";
 * import { readGpt2Config } from "./hugging_face_config.ts";
 * import { compileModel, gpt2 } from "@troupe/troupe/kernels";
 * import { initialValues } from "../../kernels/layers/layer.ts";
 *
 * const config = { layers: 1, hidden: 8, heads: 2, seq: 4, vocab: 16, tie: true };
 * const { parameters, ties } = compileModel(gpt2(config, 1), "none");
 * const weights = new Map(parameters.map(({ name, spec }) => [name, initialValues(spec, name, 1)]));
 * const folder = await Deno.makeTempDir();
 * await writeGpt2Folder(`${folder}/mine`, { config, weights });
 * assert.deepEqual(readGpt2Config(`${folder}/mine`), config);
 * assert.deepEqual(await readWeights(`${folder}/mine`, parameters, ties), weights);
 * await Deno.remove(folder, { recursive: true });
 * ```
 */
export async function writeGpt2Folder(
  path: string,
  model: ExportedGpt2,
  signal?: AbortSignal,
): Promise<void> {
  await writeDecoderFolder(decoderNamed("gpt2"), path, model, signal);
}

/**
 * Writes a Llama as a new folder, with the files of {@linkcode writeGpt2Folder}.
 *
 * @param signal ends it, and nothing is left.
 * @throws as {@linkcode writeGpt2Folder}.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { readWeights } from "@troupe/troupe/actors";
 * import { readLlamaConfig } from "./hugging_face_config.ts";
 * import { compileModel, llama } from "@troupe/troupe/kernels";
 * import { initialValues } from "../../kernels/layers/layer.ts";
 * import { llamaSizes } from "../../kernels/layers/llama.ts";
 *
 * const { dropout, ...config } = llamaSizes({ layers: 1, hidden: 8, heads: 2, seq: 4, vocab: 16 });
 * const { parameters } = compileModel(llama(config, 1), "none");
 * const weights = new Map(parameters.map(({ name, spec }) => [name, initialValues(spec, name, 1)]));
 * const folder = await Deno.makeTempDir();
 * await writeLlamaFolder(`${folder}/mine`, { config, weights });
 * assert.deepEqual(readLlamaConfig(`${folder}/mine`), config);
 * assert.deepEqual(await readWeights(`${folder}/mine`, parameters), weights);
 * await Deno.remove(folder, { recursive: true });
 * ```
 */
export async function writeLlamaFolder(
  path: string,
  model: ExportedLlama,
  signal?: AbortSignal,
): Promise<void> {
  await writeDecoderFolder(decoderNamed("llama"), path, model, signal);
}

/**
 * Writes a T5 as a new folder, with the files of {@linkcode writeGpt2Folder}.
 *
 * @param signal ends it, and nothing is left.
 * @throws as {@linkcode writeGpt2Folder}.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { readWeights } from "@troupe/troupe/actors";
 * import { readT5Config } from "./hugging_face_config.ts";
 * import { compileModel, t5 } from "@troupe/troupe/kernels";
 * import { initialValues } from "../../kernels/layers/layer.ts";
 * import { t5Ties } from "../../kernels/layers/t5.ts";
 *
 * const config = { layers: 1, hidden: 8, heads: 2, vocab: 16, tie: true };
 * const { parameters } = compileModel(t5({ ...config, seq: 4 }, 1), "none");
 * const weights = new Map(parameters.map(({ name, spec }) => [name, initialValues(spec, name, 1)]));
 * const folder = await Deno.makeTempDir();
 * await writeT5Folder(`${folder}/mine`, { config, weights });
 * const read = readT5Config(`${folder}/mine`);
 * assert.deepEqual(read, {
 *   ...config, headWidth: 4, feedForward: 32, gated: false, buckets: 32, maxDistance: 128,
 * });
 * const ties = t5Ties({ ...read, seq: 4 });
 * assert.deepEqual(await readWeights(`${folder}/mine`, parameters, ties), weights);
 * await Deno.remove(folder, { recursive: true });
 * ```
 */
export async function writeT5Folder(
  path: string,
  model: ExportedT5,
  signal?: AbortSignal,
): Promise<void> {
  const parameters = (config: T5Shape) =>
    compileModel(t5({ ...config, seq: 1 }, 1), "none").parameters;
  const format = { configJson: t5ConfigJson, generationJson: t5GenerationJson, parameters };
  await writeDecoderFolder(format, path, model, signal);
}

/** What is known of a model whose folder is written. */
type WrittenFormat<Config> =
  & Pick<DecoderFormat<Config>, "configJson" | "parameters">
  & { readonly generationJson?: (facts: ModelFacts) => ConfigJson };

/** Writes a model as a new folder. */
export async function writeDecoderFolder<Config extends HeadSizes>(
  format: WrittenFormat<Config>,
  path: string,
  model: ExportedDecoder<Config>,
  signal?: AbortSignal,
): Promise<void> {
  const { config, weights, dtype = "F32", files: others = new Map() } = model;
  await writeNewFolder(path, async (files) => {
    await writeJson(files, "config.json", format.configJson(config, model));
    const { generationJson: ofGeneration = generationJson } = format;
    await writeJson(files, "generation_config.json", ofGeneration(model));
    for (const [name, bytes] of others) await files.write(name, [bytes]);
    await writeWeights(files, joinSlices(weights, format.parameters(config), config), dtype);
  }, signal);
}

/** A tensor of the file, and the parameters that it is made of, one below the other. */
interface JoinedTensor {
  readonly shape: readonly number[];
  readonly parts: readonly TensorSource[];
}

/** What the table of a head follows from. */
type HeadSizes = Pick<DecoderConfig, "vocab" | "hidden">;

function joinSlices(
  weights: ReadonlyMap<string, TensorSource>,
  parameters: readonly NamedShape[],
  { vocab, hidden }: HeadSizes,
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

/** Numbers that are converted and written at once. */
const PIECE_ELEMENTS = 1 << 20;

async function writeWeights(
  files: NewFiles,
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
  await files.write("model.safetensors", bytes());
}

function encoded(name: string, values: Float32Array, dtype: FloatDType): Uint8Array {
  const bytes = encodeFloats(dtype, values);
  const lost = decodeFloats(dtype, bytes).findIndex((value) => !Number.isFinite(value));
  if (lost < 0) return bytes;
  throw new RangeError(
    `Cannot write ${name} in ${dtype}: its numbers must be among those of that type, received ${
      values[lost]
    }`,
  );
}
