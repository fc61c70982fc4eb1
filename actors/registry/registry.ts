/**
 * Actors and parts of training by name: those of a file of the user's, and those that come with
 * Troupe.
 *
 * @module
 */

import { posix, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { didYouMean } from "../options/option.ts";
import { type HashedModule, hashModule, type SandboxOptions } from "../sandbox/mod.ts";
import {
  checkName,
  type Component,
  type ComponentKind,
  editEntry,
  editLock,
  type Entry,
  fileToEdit,
  findRegistryFile,
  holdFolder,
  isSpecifier,
  pinnedSpecifier,
  readLocks,
  type RegistryFile,
  resolveSpecifier,
} from "./registry_file.ts";

const part = (kind: ComponentKind, name: string, file: string, exported: string): Component => ({
  name,
  kind,
  from: import.meta.resolve(file),
  export: exported,
  isBuiltIn: true,
});

/** All of them. */
const BUILT_IN_COMPONENTS: readonly Component[] = [
  part("model", "gpt", "./built_in_models.ts", "gptModel"),
  part("model", "llama", "./built_in_models.ts", "llamaModel"),
  part("model", "mlp", "./built_in_models.ts", "mlpModel"),
  part("model", "resnet", "./built_in_models.ts", "resnetModel"),
  part("model", "t5", "./built_in_models.ts", "t5Model"),
  part("model", "unet", "./built_in_models.ts", "unetModel"),
  part("data", "mnist", "./built_in_data.ts", "mnist"),
  part("data", "moby-dick", "./built_in_data.ts", "mobyDick"),
  part("data", "noisy-mnist", "./built_in_data.ts", "noisy"),
  part("data", "reverse", "./built_in_data.ts", "reverse"),
  part("data", "sort", "./built_in_data.ts", "sort"),
  part("data", "sotu", "./built_in_data.ts", "sotu"),
  part("data", "text", "./built_in_data.ts", "text"),
  part("data", "tokens", "./built_in_data.ts", "tokens"),
  part("optimizer", "adamw", "./built_in_models.ts", "adamw"),
  part("optimizer", "sgd", "./built_in_models.ts", "sgd"),
  part("supervisor", "pipeline", "./built_in_models.ts", "supervisor"),
];

/** The names of those of a kind. */
export const builtInNames = (kind: ComponentKind): readonly string[] =>
  BUILT_IN_COMPONENTS.filter((one) => one.kind === kind).map(({ name }) => name);

/** A part whose hash was taken again. */
export interface Verified {
  /** The part. */
  readonly part: Component;
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
  find(kind: ComponentKind, nameOrSpecifier: string): Component;
  /**
   * Options of {@linkcode packageActor} for the actor of a name or specifier, with the hash that it
   * must have.
   *
   * @throws {RangeError} when nothing has that name.
   * @throws {TypeError} when a specifier is none.
   */
  spec(nameOrSpecifier: string): SandboxOptions;
  /** All parts, or those of a kind, in the order of their names. */
  list(kind?: ComponentKind): readonly Component[];
  /**
   * Takes the hash of a part again.
   *
   * @throws {TypeError} (as a rejection) when its modules are not to be had.
   */
  verify(part: Component): Promise<Verified>;
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
  const parts = [
    ...own,
    ...BUILT_IN_COMPONENTS.filter((one) => !names.has(`${one.kind} ${one.name}`)),
  ]
    .sort(({ name: one }, { name: other }) => one < other ? -1 : 1);
  const list = (kind?: ComponentKind) =>
    parts.filter((one) => kind === undefined || one.kind === kind);
  const find = (kind: ComponentKind, name: string): Component => {
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
const folderURL = (folder: string): URL => new URL(`${pathToFileURL(resolve(folder)).href}/`);

function partsOf({ path, entries }: RegistryFile): Component[] {
  const locks = readLocks(path), cannot = `Cannot read ${path}`, base = pathToFileURL(path);
  return Object.entries(entries).map(([name, { from, kind = "actor", ...rest }]) => ({
    ...{ name, kind, ...rest, isBuiltIn: false },
    from: resolveSpecifier(`${cannot}: the entry "${name}" is wrong`, from, base),
    ...Object.hasOwn(locks, name) && { lock: locks[name]! },
  }));
}

/** A name that is to be added. */
export interface NewComponent {
  /** What it is to be asked for by. */
  readonly name: string;
  /** Its specifier; a relative one is relative to the folder. */
  readonly specifier: string;
  /** What it is for. */
  readonly kind: ComponentKind;
  /** What its module exports for it. Default: its kind. */
  readonly export?: string | undefined;
  /** Whether it may take the name of another. Default false. */
  readonly replace?: boolean | undefined;
}

/** A name that can be added: its modules are fetched and hashed, and none of them has run. */
export interface PreparedComponent {
  /** The part, as a registry will list it. */
  readonly part: Component & { readonly integrity: string };
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
export function checkNewComponent(
  { name, specifier, replace = false }: NewComponent,
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
export async function prepareComponent(
  part: NewComponent,
  folder: string = Deno.cwd(),
): Promise<PreparedComponent> {
  const { name, kind, export: exported } = part;
  const hashed = await hashModule(checkNewComponent(part, folder));
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
      checkNewComponent(part, folder); // somebody may have been faster
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
export async function removeComponent(name: string, folder: string = Deno.cwd()): Promise<string> {
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
