/**
 * The file that names are kept in: the nearest `troupe.json`, or `deno.json`, upward from a folder.
 *
 * @module
 */

import { dirname, join, resolve } from "node:path";
import { parse } from "@std/jsonc/parse";
import { didYouMean } from "../run/options/did_you_mean.ts";
import { readText } from "./text_file.ts";
import { checkEntries, type Entry, isRecord } from "./entries.ts";

/** A registry's file as it was read. */
export interface RegistryFile {
  readonly path: string;
  readonly entries: Readonly<Record<string, Entry>>;
}

/** Names of files, those that win first. */
export const FILE_NAMES = ["troupe.json", "deno.json", "deno.jsonc"] as const;

/** Bytes of such a file. */
export const BYTES_MAX = 2 ** 20;

/** Keys of a `troupe.json`; those of a `deno.json` are Deno's business. */
const OWN_KEYS = ["$schema", "actors"];

/**
 * Finds and reads the file of a folder: of the nearest folder upward that has one, where a
 * `troupe.json` wins, and a `deno.json` counts if it has the key `actors`.
 *
 * @throws {SyntaxError} when it is no JSON, with comments or without.
 * @throws {TypeError} when something in it is of another kind than it must be.
 * @throws {RangeError} when a value in it is not what it may be.
 */
export function findRegistryFile(folder: string): RegistryFile | undefined {
  for (let at = resolve(folder);; at = dirname(at)) {
    for (const name of FILE_NAMES) {
      const path = join(at, name), text = readText(path, BYTES_MAX);
      if (text === undefined) continue;
      const entries = entriesOf(path, text);
      if (entries) return { path, entries };
    }
    if (dirname(at) === at) return undefined;
  }
}

/** The entries that a text holds; undefined for the configuration of something else. */
export function entriesOf(path: string, text: string): Readonly<Record<string, Entry>> | undefined {
  const cannot = `Cannot read ${path}`, isOwn = path.endsWith("troupe.json");
  let value: unknown;
  try {
    value = parse(text);
  } catch (cause) {
    // Whoever keeps no actors there hears of it from Deno.
    if (!isOwn && !text.includes('"actors"')) return undefined;
    const why = (cause as Error).message.split("\n", 1)[0]!.slice(0, 200);
    throw new SyntaxError(`${cannot}: it must be JSON, received ${why}`, { cause });
  }
  if (!isRecord(value)) {
    if (!isOwn) return undefined;
    throw new TypeError(`${cannot}: it must be a record with the key "actors"`);
  }
  const strange = isOwn ? Object.keys(value).find((key) => !OWN_KEYS.includes(key)) : undefined;
  if (strange !== undefined) {
    throw new TypeError(
      `${cannot}: its keys must be ${OWN_KEYS.join(" and ")}, received ${
        JSON.stringify(strange.slice(0, 100))
      }${didYouMean(strange, OWN_KEYS)}`,
    );
  }
  if (value.actors === undefined && !isOwn) return undefined;
  return checkEntries(cannot, value.actors ?? {});
}
