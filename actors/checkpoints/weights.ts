/**
 * Reads and locates weights for a model in safetensors files, such as those of Hugging Face.
 *
 * @module
 */

import {
  builtin,
  checkInputFile,
  decodeFloats,
  elementCount,
  FROM_START,
  inputFileProblem,
  isFloatDType,
  openBytes,
  readFull,
  readHeader,
  refusal,
  type SafetensorsFile,
  sameShape,
} from "../../kernels/internal.ts";
import { type ModelParameter, SAFETENSORS_DTYPE_BYTES, type Tie } from "../../kernels/mod.ts";
import { BYTES_MAX, fileName, indexName } from "./format.ts";
import { parseIndex } from "./read.ts";
import { hashPart, type PlacedTensor, wrongDType } from "./tensors.ts";

export { type Floats, readFloats } from "./tensors.ts";
export { bytesOf, hashWeights } from "./format.ts";

const { dirname, join, resolve } = builtin("node:path");

/**
 * Tensors in files of Hugging Face that are not parameters: causal masks, rotary angles, the second name
 * of a T5's embedding, and position biases that the first T5 releases do not use.
 */
const IGNORED =
  /(^|\.)(attn\.(masked_)?bias|rotary_emb\.inv_freq|EncDecAttention\.relative_attention_bias\.weight)$|^encoder\.embed_tokens\.weight$/;

/** A parameter by its name and shape. */
export type NamedShape = Pick<ModelParameter, "name" | "shape">;

/** The place of a parameter in a file. */
type Place = Pick<PlacedTensor, "path" | "at" | "bytes" | "dtype">;

/**
 * Reads weights for a model from a safetensors file, such as Hugging Face's GPT-2 or Llama: names with
 * or without `transformer.` or `model.`, `attn.bias` and `inv_freq` buffers ignored, tables with more rows than the model has
 * (positions) cut to its rows, aliases of ties passed over, a head cut into its slices. F16 and BF16
 * become F32, exactly.
 *
 * @param path of a file, of an index of shards (`model.safetensors.index.json`), or of a folder that
 * has one of them; or the URL of a file or of an index.
 * @throws {TypeError} when a parameter is missing, a tensor is unknown, or a dtype is none of
 * F32, F16 and BF16.
 * @throws {RangeError} when a shape differs, or a number is not finite.
 * @throws {SyntaxError} when the file is not a safetensors file, or shards are not as their index
 * says.
 */
export async function readWeights(
  path: string | URL,
  parameters: readonly NamedShape[],
  ties: readonly Tie[] = [],
): Promise<Map<string, Float32Array>> {
  return await openEach(
    path,
    parameters,
    ties,
    async (file, { path, at, bytes, dtype = "F32" }, check) => {
      const data = new Uint8Array(bytes);
      await file.seek(at, FROM_START);
      if (await readFull(file, data)) return check(decodeFloats(dtype, data));
      throw new RangeError(`Cannot read ${path}: it must have ${at + bytes} bytes, was cut`);
    },
  );
}

/**
 * Locates the weights that {@linkcode readWeights} reads.
 *
 * @throws as {@linkcode readWeights}.
 */
export async function locateWeights(
  path: string,
  parameters: readonly NamedShape[],
  ties: readonly Tie[] = [],
): Promise<Map<string, PlacedTensor>> {
  return await openEach(path, parameters, ties, async (file, place, check) => {
    const sha256 = await hashPart(file, place, check);
    return { kind: "placed", ...place, path: resolve(place.path), sha256 };
  });
}

/**
 * Checks that {@linkcode readWeights} could read the weights of a path, by the headers of its files:
 * names, shapes and types. No values are read.
 *
 * @throws as {@linkcode readWeights}.
 */
export async function checkWeights(
  path: string,
  parameters: readonly NamedShape[],
  ties: readonly Tie[] = [],
): Promise<void> {
  await openEach(path, parameters, ties, () => Promise.resolve());
}

/** Finds all parameters in a file or in shards, and calls `use` with the place of each. */
async function openEach<T>(
  path: string | URL,
  parameters: readonly NamedShape[],
  ties: readonly Tie[],
  use: (
    file: SafetensorsFile,
    place: Place,
    check: (values: Float32Array) => Float32Array,
  ) => Promise<T>,
): Promise<Map<string, T>> {
  const found = new Map<string, T>();
  for (const { file: name, expects } of await filesOf(path)) {
    using file = await openWeights(name);
    const places = await findParameters(file, `${name}`, parameters, ties, expects);
    for (const [parameter, place] of places) {
      if (found.has(parameter)) throw twice(path, parameter);
      found.set(parameter, await use(file, place, (values) => finite(path, parameter, values)));
    }
  }
  for (const { name } of parameters) {
    if (found.has(name)) continue;
    const isHead = name === "lm_head.weight";
    const tied = isHead ? "; is it of a model with tied embeddings (--tie)?" : "";
    throw new TypeError(`Cannot read weights from ${path}: it must hold "${name}"${tied}`);
  }
  return found;
}

async function openWeights(path: string | URL): Promise<SafetensorsFile> {
  if (path instanceof URL) return openBytes(await fetchBytes(path));
  checkInputFile(path);
  return await Deno.open(path);
}

/**
 * Fetches a file, such as a page reads.
 *
 * @throws {RangeError} with the reason.
 */
export async function fetchBytes(url: URL): Promise<Uint8Array> {
  const response = await fetch(url).catch((error: Error) => error);
  if (response instanceof Response && response.ok) {
    return new Uint8Array(await response.arrayBuffer());
  }
  const isAnswer = response instanceof Response;
  if (isAnswer) await response.body?.cancel();
  const received = isAnswer ? `status ${response.status}` : response.message;
  throw refusal(`read ${url}`, "it must be a file", received);
}

/** Checks that all values are finite; others would make the loss NaN. */
function finite(path: string | URL, name: string, values: Float32Array): Float32Array {
  const wrong = values.find((value) => !Number.isFinite(value));
  if (wrong === undefined) return values;
  throw refused(path, "all must be finite", `${wrong} in "${name}"`);
}

/** Returns the error of invalid weights. */
const refused = (path: string | URL, must: string, received: string, Kind?: ErrorConstructor) =>
  refusal(`read weights from ${path}`, must, received, Kind);

const twice = (path: string | URL, name: string) =>
  refused(path, `it must hold "${name}" once`, "it twice", SyntaxError);

/** A file of weights, and the tensors that an index says it has. */
interface WeightsFile {
  readonly file: string | URL;
  readonly expects?: ReadonlySet<string>;
}

const SHARDS_BESIDE = "its shards must be safetensors files beside it";

/** Name of a file in the folder of its index. */
const SHARD = /^[\w-][\w.-]*\.safetensors$/;

/** The files of weights that a path names. */
async function filesOf(path: string | URL): Promise<WeightsFile[]> {
  if (path instanceof URL || inputFileProblem(path) !== "a folder") {
    return `${path}`.endsWith(".index.json") ? await shardsOf(path) : [{ file: path }];
  }
  const [file, index] = [fileName("model"), indexName("model")].map((name) => join(path, name));
  // The order of transformers: a folder may have both.
  if (inputFileProblem(file!) === undefined) return [{ file: file! }];
  if (inputFileProblem(index!) === undefined) return await shardsOf(index!);
  const must = `the folder must hold ${fileName("model")} or ${indexName("model")}`;
  throw refused(path, must, "neither; a checkpoint's own folder does (step-…)", TypeError);
}

async function shardsOf(path: string | URL): Promise<WeightsFile[]> {
  const isFetched = path instanceof URL, shards = new Map<string, Set<string>>();
  if (!isFetched) checkInputFile(path, BYTES_MAX.index);
  const bytes = isFetched ? await fetchBytes(path) : await Deno.readFile(path);
  for (const [tensor, name] of parseIndex(`${path}`, bytes)) {
    if (typeof name !== "string" || !SHARD.test(name)) {
      const received = JSON.stringify(name).slice(0, 80);
      throw refusal(`read ${path}`, SHARDS_BESIDE, received, SyntaxError);
    }
    shards.set(name, (shards.get(name) ?? new Set()).add(tensor));
  }
  const fileOf = (name: string) => isFetched ? new URL(name, path) : join(dirname(path), name);
  return Array.from(shards, ([name, expects]) => ({ file: fileOf(name), expects }));
}

/** Finds parameters in an open file; each tensor is checked before it takes memory. */
async function findParameters(
  file: SafetensorsFile,
  path: string,
  parameters: readonly NamedShape[],
  ties: readonly Tie[],
  expects: ReadonlySet<string> | undefined,
): Promise<Map<string, Place>> {
  const aliases = new Set(ties.map(([, alias]) => alias));
  const byName = new Map(parameters.map((parameter) => [parameter.name, parameter]));
  const slices = parameters.filter(({ name }) => HEAD_SLICE.test(name));
  const places = new Map<string, Place>(), { dataStart, entries } = await readHeader(file, path);
  const names = new Set(entries.map(({ name }) => name));
  const wrong = expects?.symmetricDifference(names).values().next().value;
  if (wrong !== undefined) {
    const must = "it must hold the tensors that its index says";
    const received = `${names.has(wrong) ? "also" : "no"} ${JSON.stringify(wrong.slice(0, 80))}`;
    throw refusal(`read ${path}`, must, received, SyntaxError);
  }
  for (const { name, begin, ...info } of entries) {
    if (aliases.has(name) || (IGNORED.test(name) && !byName.has(name))) continue;
    const own = ["", "transformer.", "model."].map((prefix) => byName.get(prefix + name))
      .find((parameter) => parameter !== undefined);
    const found = own ? [own] : name === "lm_head.weight" ? slices : [];
    if (found.length === 0) {
      const received = `${JSON.stringify(name)}; is it a file of another model?`;
      throw refused(path, "every tensor must be a parameter of the model", received, TypeError);
    }
    const { dtype } = info;
    if (!isFloatDType(dtype)) throw wrongDType(path, name, "F32, F16 or BF16", dtype);
    const { name: known, shape } = own ?? joined(name, slices);
    const [rows = 1] = shape, [given = 1, ...rest] = info.shape;
    const isCut = known.endsWith("wpe.weight") && given > rows && given <= ROWS_MAX;
    if (!sameShape(isCut ? [rows, ...rest] : info.shape, shape)) {
      throw refused(path, `"${name}" must have shape [${shape}]`, `[${info.shape}]`);
    }
    let at = dataStart + begin;
    for (const parameter of found) {
      if (places.has(parameter.name)) throw twice(path, parameter.name);
      const bytes = SAFETENSORS_DTYPE_BYTES[dtype] * elementCount(parameter.shape);
      places.set(parameter.name, { path, at, bytes, dtype });
      at += bytes;
    }
  }
  return places;
}

/** A slice of a head: rows of `lm_head.weight`, in their order. */
export const HEAD_SLICE = /^lm_head\.\d+\.weight$/;

/** Returns the whole head that consists of slices. */
const joined = (name: string, slices: readonly NamedShape[]): NamedShape => ({
  name,
  shape: [slices.reduce((rows, { shape }) => rows + shape[0]!, 0), ...slices[0]!.shape.slice(1)],
});

/** The rows of positions that a file may have beyond those of the model: GPT-2 has 1,024. */
const ROWS_MAX = 65_536;
