/**
 * Folders of adapters in the format of Hugging Face's PEFT: `adapter_config.json`, and
 * `adapter_model.safetensors` with A [r, in] and B [out, r] of each adapted layer.
 *
 * @module
 */

import { join } from "node:path";
import {
  checkInputFile,
  loraNames,
  type LoraOptions,
  loraScale,
  loraTargets,
} from "../../kernels/internal.ts";
import { BYTES_MAX } from "./format.ts";
import { ConfigReader, writeWeights } from "./hugging_face.ts";
import { parseUnique } from "./markers.ts";
import { type PlacedTensor, readTensor, type TensorSource } from "./tensors.ts";
import { locateWeights, type NamedShape } from "./weights.ts";
import { writeJson, writeNewFolder } from "./write.ts";

const CONFIG = "adapter_config.json", WEIGHTS = "adapter_model.safetensors";

/** Prefix of names in a file: of the adapter's class, and of its model in it. */
const PREFIX = "base_model.model.";

/** Values of `adapter_config.json` that must be these, or left out. */
const FIXED = {
  alpha_pattern: {},
  bias: "none",
  layer_replication: null,
  layers_to_transform: null,
  lora_bias: false,
  modules_to_save: null,
  peft_type: "LORA",
  rank_pattern: {},
  use_dora: false,
  use_rslora: false,
} as const;

/** Required values of settings of newer PEFT versions; other values would change the result. */
const FIXED_LATER = {
  alora_invocation_tokens: null,
  exclude_modules: null,
  target_parameters: null,
  trainable_token_indices: null,
  use_qalora: false,
} as const;

/** Initializations that do not change the weights of the base model. */
const BEGINNINGS: readonly unknown[] = [true, false, "gaussian", "eva", "orthogonal"];

/** The largest rank, as in `--lora`. */
const RANK_MAX = 99_999;

/**
 * Reads the settings of an adapter.
 *
 * @throws {TypeError} {@linkcode SyntaxError} when the file cannot be read, or a setting has another type.
 * @throws {RangeError} when the adapter has a feature that is not known here.
 */
export function readAdapterConfig(folder: string): LoraOptions {
  const path = join(folder, CONFIG);
  checkInputFile(path, BYTES_MAX["config.json"]);
  const json = parseUnique(path, Deno.readFileSync(path)), reader = new ConfigReader(json, path);
  for (const [name, only] of Object.entries({ ...FIXED, ...FIXED_LATER })) {
    const value = json[name] ?? only;
    const isEmpty = typeof value === "object" && Object.keys(value ?? {}).length === 0;
    const isSame = typeof only === "object" && only !== null ? isEmpty : value === only;
    if (!isSame) reader.refuse(name, `${JSON.stringify(only)}, as here`);
  }
  const { r: rank, lora_alpha: alpha, target_modules: target, init_lora_weights: begin } = json;
  if (!BEGINNINGS.includes(begin ?? true)) {
    reader.refuse("init_lora_weights", `one of ${BEGINNINGS.join(", ")}, as here`);
  }
  const isRank = Number.isSafeInteger(rank) && Number(rank) >= 1 && Number(rank) <= RANK_MAX;
  if (!isRank) reader.refuse("r", `a positive integer, at most ${RANK_MAX}`);
  const isAlpha = typeof alpha === "number" && alpha > 0 && Number.isFinite(alpha);
  if (!isAlpha) reader.refuse("lora_alpha", "a positive number");
  const isList = Array.isArray(target) && target.length > 0 &&
    target.every((one) => typeof one === "string" && one !== "");
  if (!isList) reader.refuse("target_modules", "a list of names of layers", TypeError);
  return { rank, alpha, target } as LoraOptions;
}

/** Tables of decoders, whose adapters have other names. */
const EMBEDDING = /(^|\.)(wte|wpe|embed_tokens)\.weight$/;

/** Returns the parameters of an adapter. @param isTransposed returns whether a weight is [in, out]. */
export function adapterParameters(
  parameters: readonly NamedShape[],
  lora: LoraOptions,
  isTransposed: (weight: string) => boolean,
): NamedShape[] {
  const dense = parameters.filter(({ name }) => !EMBEDDING.test(name));
  return loraTargets(dense, lora).flatMap(({ name, shape }) => {
    const [inputs, outputs] = isTransposed(name) ? shape : shape.toReversed();
    const [a, b] = loraNames(name);
    return [{ name: a, shape: [lora.rank, inputs!] }, { name: b, shape: [outputs!, lora.rank] }];
  });
}

/**
 * Locates A and B of an adapter.
 *
 * @param parameters those of the adapter.
 * @throws as {@linkcode locateWeights}.
 */
export async function locateAdapter(
  folder: string,
  parameters: readonly NamedShape[],
): Promise<Map<string, PlacedTensor>> {
  const named = parameters.map(({ name, shape }) => ({ name: PREFIX + name, shape }));
  const found = await locateWeights(join(folder, WEIGHTS), named);
  return new Map(Array.from(found, ([name, place]) => [name.slice(PREFIX.length), place]));
}

/** An adapter to be written. */
interface ExportedAdapter {
  /** Its settings. */
  readonly lora: LoraOptions;
  /** Its parameters. */
  readonly parameters: readonly NamedShape[];
  /** A and B by name. */
  readonly weights: ReadonlyMap<string, TensorSource>;
  /** True if the adapted weights are [in, out]. */
  readonly isTransposed: boolean;
  /** Folder or name of the base model, if known. */
  readonly base?: string | undefined;
}

/**
 * Writes an adapter as a new folder.
 *
 * @param write writes the folder; `writeOwnFolder` also replaces one.
 * @throws {RangeError} when the path exists.
 * @throws {Error} when the disk fails; nothing is left then.
 */
export async function writeAdapter(
  path: string,
  { lora, parameters, weights, isTransposed, base }: ExportedAdapter,
  signal?: AbortSignal,
  write: typeof writeNewFolder = writeNewFolder,
): Promise<void> {
  const { rank: r, alpha = r, target } = lora;
  const config = {
    ...FIXED,
    base_model_name_or_path: base ?? null,
    fan_in_fan_out: isTransposed,
    inference_mode: true,
    init_lora_weights: true,
    lora_alpha: alpha,
    lora_dropout: 0,
    r,
    target_modules: target,
    task_type: "CAUSAL_LM",
  };
  const tensors = parameters.map(({ name, shape }) =>
    [PREFIX + name, { shape, parts: [weights.get(name)!] }] as const
  );
  await write(path, async (files) => {
    const sorted = Object.entries(config).sort(([a], [b]) => a < b ? -1 : 1);
    await writeJson(files, CONFIG, Object.fromEntries(sorted));
    await writeWeights(files, WEIGHTS, new Map(tensors), "F32");
  }, signal);
}

/**
 * Returns weights with an adapter merged into them: W + α/r·BA. Sums of r products are in f64 and
 * rounded once.
 *
 * @param isTransposed returns whether a weight is [in, out].
 */
export function mergeAdapter(
  parameters: readonly NamedShape[],
  weights: ReadonlyMap<string, TensorSource>,
  adapter: ReadonlyMap<string, TensorSource>,
  lora: LoraOptions,
  isTransposed: (weight: string) => boolean,
): Map<string, TensorSource> {
  const merged = new Map(weights), scale = loraScale(lora), { rank } = lora;
  for (const { name, shape } of loraTargets(parameters, lora)) {
    const [a, b] = loraNames(name).map((one) => readTensor(adapter.get(one)!)) as [
      Float32Array,
      Float32Array,
    ];
    const values = readTensor(weights.get(name)!).slice();
    const turned = isTransposed(name), columns = shape[1]!, inputs = turned ? shape[0]! : columns;
    for (let i = 0; i < values.length; i++) {
      const row = Math.trunc(i / columns), column = i % columns;
      const [output, input] = turned ? [column, row] : [row, column];
      let sum = 0;
      for (let k = 0; k < rank; k++) sum += b[output * rank + k]! * a[k * inputs + input]!;
      values[i]! += scale * sum;
    }
    merged.set(name, values);
  }
  return merged;
}
