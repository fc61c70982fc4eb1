/**
 * The `config.json` of a model of Hugging Face's transformers. One that is read may be a stranger's: it
 * says sizes, within bounds, and names nothing.
 *
 * @module
 */

import { join } from "node:path";
import { checkInputFile, type FloatDType, repeatedKey } from "../../../kernels/mod.ts";
import { BYTES_MAX } from "../checkpoint_format.ts";
import { parseRecord } from "../whole_files.ts";

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
export const CONFIG_FILE = "config.json";

/** The types of weights as PyTorch calls them. */
export const TORCH_DTYPES = { F32: "float32", F16: "float16", BF16: "bfloat16" } as const;

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
export interface ConfigReader {
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
export function configReader(config: ConfigJson, path: string): ConfigReader {
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
