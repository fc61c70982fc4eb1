/**
 * Actors and parts of training by name: those of a file of the user's, and those that come with
 * Troupe.
 *
 * @module
 */

import { pathToFileURL } from "node:url";
import { resolve } from "node:path";
import { hashModule, type SandboxOptions } from "../sandbox/mod.ts";
import { didYouMean } from "../run/options/did_you_mean.ts";
import { BUILT_IN_PARTS } from "./built_in.ts";
import { isSpecifier, resolveSpecifier } from "./entries.ts";
import type { Part, PartKind } from "./part.ts";
import { readLocks } from "./lock_file.ts";
import { findRegistryFile, type RegistryFile } from "./registry_file.ts";

/** A part whose hash was taken again. */
export interface Verified {
  /** The part. */
  readonly part: Part;
  /** What its modules have now. */
  readonly integrity: string;
  /** Whether that is what was noted when it was added; true where nothing was. */
  readonly isIntact: boolean;
}

/** Names, and what they stand for. */
export interface Registry {
  /** The file that names come from; undefined where there is none. */
  readonly path: string | undefined;
  /**
   * What a name, or a specifier, stands for. A name of the file goes before one that comes with
   * Troupe; a relative specifier is relative to the folder.
   *
   * @throws {RangeError} when nothing has that name.
   * @throws {TypeError} when a specifier is none.
   */
  find(kind: PartKind, nameOrSpecifier: string): Part;
  /**
   * Options of {@linkcode packageActor} for the actor of a name or specifier, with the hash that it
   * must have.
   *
   * @throws {RangeError} when nothing has that name.
   * @throws {TypeError} when a specifier is none.
   */
  spec(nameOrSpecifier: string): SandboxOptions;
  /** All parts, or those of a kind, in the order of their names. */
  list(kind?: PartKind): readonly Part[];
  /**
   * Takes the hash of a part again.
   *
   * @throws {TypeError} (as a rejection) when its modules are not to be had.
   */
  verify(part: Part): Promise<Verified>;
}

/**
 * Opens the registry of a folder: the nearest `troupe.json` upward, or `deno.json` with the key
 * `actors`, and what comes with Troupe.
 *
 * @param folder default: where the program runs.
 * @throws {SyntaxError} when the file is no JSON, with comments or without.
 * @throws {TypeError} when something in it is of another kind than it must be.
 * @throws {RangeError} when a value in it is not what it may be.
 *
 * @example
 * ```ts
 * import { openRegistry } from "@troupe/troupe/actors";
 * import assert from "node:assert/strict";
 *
 * const folder = await Deno.makeTempDir();
 * const entry = { from: "jsr:@you/counter@1.2.0" };
 * await Deno.writeTextFile(`${folder}/troupe.json`, JSON.stringify({ actors: { counter: entry } }));
 * const registry = openRegistry(folder);
 * assert.equal(registry.find("actor", "counter").from, "jsr:@you/counter@1.2.0");
 * assert.throws(() => registry.find("actor", "conter"), /did you mean counter\?$/);
 * await Deno.remove(folder, { recursive: true });
 * ```
 */
export function openRegistry(folder: string = Deno.cwd()): Registry {
  const file = findRegistryFile(folder), own = file ? partsOf(file) : [];
  const names = new Set(own.map(({ kind, name }) => `${kind} ${name}`));
  const parts = [...own, ...BUILT_IN_PARTS.filter((one) => !names.has(`${one.kind} ${one.name}`))]
    .sort(({ name: one }, { name: other }) => one < other ? -1 : 1);
  const list = (kind?: PartKind) => parts.filter((one) => kind === undefined || one.kind === kind);
  const find = (kind: PartKind, name: string): Part => {
    const cannot = `Cannot use ${JSON.stringify(name.slice(0, 200))} as ${kind}`;
    if (isSpecifier(name)) {
      const from = resolveSpecifier(cannot, name, folderURL(folder));
      return { name, kind, from, isBuiltIn: false };
    }
    const found = list(kind).find((one) => one.name === name);
    if (found) return found;
    const known = list(kind).map((one) => one.name);
    const meant = didYouMean(name, known);
    throw new RangeError(
      `${cannot}: it must be a specifier or one of ${
        known.join(", ") || "no names so far"
      }${meant}`,
    );
  };
  return {
    path: file?.path,
    find,
    list,
    spec(name) {
      const { from, export: exported, integrity, lock } = find("actor", name);
      return {
        from,
        ...exported !== undefined && { export: exported },
        ...integrity !== undefined && { integrity },
        ...lock !== undefined && { lock },
      };
    },
    async verify(part) {
      const { integrity } = await hashModule(part.from, { lock: part.lock });
      return { part, integrity, isIntact: (part.integrity ?? integrity) === integrity };
    },
  };
}

/** What relative specifiers are relative to. */
export const folderURL = (folder: string): URL =>
  new URL(`${pathToFileURL(resolve(folder)).href}/`);

function partsOf({ path, entries }: RegistryFile): Part[] {
  const locks = readLocks(path), cannot = `Cannot read ${path}`, base = pathToFileURL(path);
  return Object.entries(entries).map(([name, { from, kind = "actor", ...rest }]) => ({
    ...{ name, kind, ...rest, isBuiltIn: false },
    from: resolveSpecifier(`${cannot}: the entry "${name}" is wrong`, from, base),
    ...Object.hasOwn(locks, name) && { lock: locks[name]! },
  }));
}
