/**
 * New names for a registry.
 *
 * @module
 */

import { posix } from "node:path";
import { pathToFileURL } from "node:url";
import { type HashedModule, hashModule } from "../sandbox/mod.ts";
import { editEntry, fileToEdit } from "./edit_file.ts";
import { checkName, type Entry, resolveSpecifier } from "./entries.ts";
import { editLock } from "./lock_file.ts";
import type { Part, PartKind } from "./part.ts";
import { pinnedSpecifier } from "./package_version.ts";
import { folderURL, openRegistry } from "./registry.ts";
import { holdFolder } from "./text_file.ts";

/** A name that is to be added. */
export interface NewPart {
  /** What it is to be asked for by. */
  readonly name: string;
  /** Its specifier; a relative one is relative to the folder. */
  readonly specifier: string;
  /** What it is for. */
  readonly kind: PartKind;
  /** What its module exports for it. Default: its kind. */
  readonly export?: string | undefined;
  /** Whether it may take the name of another. Default false. */
  readonly replace?: boolean | undefined;
}

/** A name that can be added: its modules are fetched and hashed, and none of them has run. */
export interface PreparedPart {
  /** The part, as a registry will list it. */
  readonly part: Part & { readonly integrity: string };
  /** What its modules are. */
  readonly hashed: HashedModule;
  /** The file that it is written to. */
  readonly path: string;
  /** Writes it, whole or not at all. */
  write(): Promise<void>;
}

/**
 * Checks a new name and its specifier, and fetches nothing.
 *
 * @returns the specifier, absolute.
 * @throws {RangeError} when the name is none, or another's.
 * @throws {TypeError} when the specifier is none.
 */
export function checkNewPart(
  { name, specifier, replace = false }: NewPart,
  folder: string = Deno.cwd(),
): string {
  const cannot = `Cannot add ${JSON.stringify(name.slice(0, 200))}`;
  checkName(cannot, name);
  const taken = openRegistry(folder).list().find((one) => one.name === name);
  if (taken && !replace) {
    throw new RangeError(
      `${cannot}: its name must be new, received that of ${
        taken.isBuiltIn ? `Troupe's own ${taken.kind}` : taken.from
      }; --replace replaces it`,
    );
  }
  return resolveSpecifier(cannot, specifier, folderURL(folder));
}

/**
 * Fetches and hashes what is to have a name. Versions that were chosen are kept: of
 * `jsr:@you/actor@1` as `jsr:@you/actor@1.2.0`.
 *
 * @param folder whose registry it is for. Default: where the program runs.
 * @throws {RangeError} (as a rejection) when the name is none, or another's.
 * @throws {TypeError} (as a rejection) when the specifier is none, or a module is not to be had.
 */
export async function preparePart(
  part: NewPart,
  folder: string = Deno.cwd(),
): Promise<PreparedPart> {
  const { name, kind, export: exported } = part;
  const hashed = await hashModule(checkNewPart(part, folder));
  const path = fileToEdit(folder), { integrity } = hashed;
  const from = pinnedSpecifier(hashed);
  const more = { ...exported !== undefined && { export: exported } };
  const entry: Entry = {
    from: from.startsWith("file:") ? relativeTo(path, from) : from,
    ...kind !== "actor" && { kind },
    ...more,
    integrity,
  };
  return {
    part: { name, kind, from, ...more, integrity, lock: hashed.lock, isBuiltIn: false },
    ...{ hashed, path },
    async write() {
      using _ = await holdFolder(path);
      checkNewPart(part, folder); // somebody may have been faster
      // A lock without its entry does no harm.
      await editLock(path, name, hashed.lock);
      await editEntry(path, name, entry);
    },
  };
}

/** As it stands in a file: a URL, relative to that. */
function relativeTo(path: string, url: string): string {
  const folder = posix.dirname(pathToFileURL(path).pathname);
  const way = posix.relative(folder, new URL(url).pathname);
  return way.startsWith("../") ? way : `./${way}`;
}

/**
 * Takes a name out of the registry's file.
 *
 * @returns the path of the file.
 * @throws {RangeError} (as a rejection) when it has no such name.
 */
export async function removePart(name: string, folder: string = Deno.cwd()): Promise<string> {
  const { path, list } = openRegistry(folder), found = list().find((one) => one.name === name);
  if (path === undefined || !found || found.isBuiltIn) {
    throw new RangeError(
      `Cannot remove ${
        JSON.stringify(name.slice(0, 100))
      }: it must be a name in the registry's file`,
    );
  }
  using _ = await holdFolder(path);
  await editEntry(path, name, undefined);
  await editLock(path, name);
  return path;
}
