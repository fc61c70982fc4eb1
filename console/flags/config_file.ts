/**
 * Files of flags: JSON, JSONC or TOML of one's own, or the `config.json` of a checkpoint.
 *
 * What a file of one's own says counts as typed, paths included. A checkpoint may be a stranger's:
 * what it says is data, and names no path.
 *
 * @module
 */

import { existsSync, readFileSync } from "node:fs";
import { basename, dirname, extname, join } from "node:path";
import { parse as parseJsonc } from "@std/jsonc/parse";
import { parse as parseToml } from "@std/toml/parse";
import { decodeText } from "../../kernels/mod.ts";
import { checkFile } from "../check_file.ts";
import { inOneLine, quoted } from "../escape.ts";
import type { Flags } from "./flag.ts";
import { readKeptFlags } from "./kept.ts";
import { dashed, meantFlag, spellingsOf } from "./spelling.ts";

/** A file of flags. */
export interface ConfigFile {
  /** Where it is. */
  readonly path: string;
  /** What it says, as arguments. */
  readonly args: readonly string[];
  /** All that a checkpoint's file holds; undefined for a file of one's own. */
  readonly checkpoint: Readonly<Record<string, unknown>> | undefined;
}

/** The most bytes of such a file. */
const BYTES_MAX = 2 ** 20;

/** How the text of a file is read, by the end of its name. */
const PARSERS: Readonly<Record<string, (text: string) => unknown>> = {
  ".json": parseJsonc,
  ".jsonc": parseJsonc,
  ".toml": parseToml,
};

type Values = Readonly<Record<string, unknown>>;

/**
 * Reads a file of flags: a record of their names, or aliases, and values.
 *
 * @throws {TypeError} when there is no such file, or a name in it is none of the flags.
 * @throws {SyntaxError} when its text is no JSON, JSONC or TOML.
 * @throws {RangeError} when a value is not what its flag allows.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { readConfigFile } from "@troupe/troupe/cli";
 *
 * const path = await Deno.makeTempFile({ suffix: ".toml" });
 * await Deno.writeTextFile(path, "max_steps = 40 # as Hugging Face says it");
 * const steps = { kind: "integer", aliases: ["max_steps"], help: "optimizer steps" } as const;
 * assert.deepEqual(readConfigFile(path, { steps }).args, ["--steps=40"]);
 * await Deno.remove(path);
 * ```
 */
export function readConfigFile(path: string, flags: Flags): ConfigFile {
  const record = parseFile(path), where = inOneLine(path);
  const hasFlags = isRecord(record.flags);
  const isCheckpoint = hasFlags || existsSync(join(dirname(path), "manifest.json"));
  const said = hasFlags ? { ...recordOf(record.run), ...recordOf(record.flags) } : record;
  const named = nameFlags(said, flags, where);
  const paths = Object.keys(named).filter((name) => flags[name]!.kind === "path");
  if (isCheckpoint && paths.length > 0) {
    throw new TypeError(
      `Cannot use ${where}: the config of a checkpoint must name no file or folder, received --${
        paths.join(", --")
      }`,
    );
  }
  readKeptFlags(named, flags, where, !isCheckpoint);
  const args = Object.entries(named).map(([name, value]) =>
    typeof value === "boolean" ? `--${value ? "" : "no-"}${name}` : `--${name}=${value}`
  );
  return { path, args, checkpoint: isCheckpoint ? record : undefined };
}

function parseFile(path: string): Values {
  checkFile("config", path, BYTES_MAX);
  const end = extname(path).toLowerCase(), parse = PARSERS[end];
  if (!parse) {
    throw new TypeError(
      `Cannot use --config: the name of its file must end in ${
        Object.keys(PARSERS).join(", ")
      }, received ${quoted(basename(path))}`,
    );
  }
  const text = decodeText(readFileSync(path), inOneLine(path))
    .replace(/^\uFEFF/, ""); // as some editors begin a file
  let value: unknown;
  try {
    value = parse(text);
  } catch (cause) {
    throw new SyntaxError(
      `Cannot read ${inOneLine(path)}: it must be ${end.slice(1).toUpperCase()}, received ${
        inOneLine((cause as Error).message)
      }`,
      { cause },
    );
  }
  if (isRecord(value)) return value;
  throw new TypeError(
    `Cannot read ${inOneLine(path)}: it must be a record of flags, received ${quoted(value)}`,
  );
}

/** Flags that no file says: what is removed is told by who types. */
export const TYPED_ONLY: readonly string[] = ["config", "help", "version", "overwrite"];

/** What a file says, by the names of the flags. */
function nameFlags(said: Values, flags: Flags, where: string): Values {
  const spellings = spellingsOf(flags), named = new Map<string, unknown>();
  for (const [key, value] of Object.entries(said)) {
    const { name, means } = spellings.get(dashed(key)) ?? {};
    if (name === undefined || TYPED_ONLY.includes(name)) {
      throw new TypeError(
        `Cannot read ${where}: every name in it must be one of the flags, received ${quoted(key)}${
          meantFlag(key, flags)
        }`,
      );
    }
    const mayRepeat = flags[name]!.formerly !== undefined && named.get(name) === value;
    if (named.has(name) && !mayRepeat) {
      throw new TypeError(`Cannot read ${where}: --${name} must be said once, received it twice`);
    }
    if (means === undefined) named.set(name, value);
    else if (value === true) named.set(name, means);
    else if (value !== false) {
      throw new TypeError(
        `Cannot use ${key} of ${where}: it must be true or false, received ${quoted(value)}`,
      );
    }
  }
  return Object.fromEntries(named);
}

const isRecord = (value: unknown): value is Values =>
  typeof value === "object" && value !== null && !Array.isArray(value);

const recordOf = (value: unknown): Values => isRecord(value) ? value : {};
