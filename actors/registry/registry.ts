/**
 * Finds actors and components of training by name, in the user's file and among those of Troupe.
 *
 * @module
 */

import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { suggest } from "../options/option.ts";
import { hashModule, nameIn } from "../sandbox/modules.ts";
import type { SandboxOptions } from "../sandbox/host.ts";
import {
  checkName,
  type Component,
  type ComponentKind,
  editEntry,
  editLock,
  type Entry,
  fileToEdit,
  findRegistryFile,
  isSpecifier,
  lockFolderOf,
  pinnedSpecifier,
  readLocks,
  resolveSpecifier,
} from "./registry_file.ts";

const builtIn = (kind: ComponentKind, file: string, exports: Readonly<Record<string, string>>) =>
  Object.entries(exports).map(([name, exported]): Component => ({
    name,
    kind,
    from: import.meta.resolve(file),
    export: exported,
    isBuiltIn: true,
  }));

const BUILT_IN: readonly Component[] = [
  ...builtIn("model", "./built_in_models.ts", {
    gpt: "gptModel",
    llama: "llamaModel",
    mlp: "mlpModel",
    resnet: "resnetModel",
    t5: "t5Model",
    unet: "unetModel",
  }),
  ...builtIn("data", "./built_in_data.ts", {
    mnist: "mnist",
    "moby-dick": "mobyDick",
    "noisy-mnist": "noisy",
    reverse: "reverse",
    sort: "sort",
    sotu: "sotu",
    text: "text",
    tokens: "tokens",
  }),
  ...builtIn("optimizer", "./built_in_models.ts", {
    ...{ adamw: "adamw", sgd: "sgd", lion: "lion", adafactor: "adafactor" },
  }),
  ...builtIn("supervisor", "./built_in_models.ts", { pipeline: "supervisor" }),
];

/** Returns the names of the built-in components of a kind. */
export const builtInNames = (kind: ComponentKind): readonly string[] =>
  BUILT_IN.filter((one) => one.kind === kind).map(({ name }) => name);

/** A component whose modules were hashed again. */
export interface Verified {
  /** The component. */
  readonly component: Component;
  /** Current hash of its modules. */
  readonly integrity: string;
  /** True if the hash equals the one in the file; true if the file has none. */
  readonly isIntact: boolean;
}

/** Components by name. */
export class Registry {
  /** Path of the user's file; undefined if there is none. */
  readonly path: string | undefined;
  readonly #components: readonly Component[];

  /** Reads the registry of a folder: see {@linkcode openRegistry}. */
  constructor(private readonly folder: string) {
    const file = findRegistryFile(folder), own = file ? componentsOf(file) : [];
    const names = new Set(own.map(({ kind, name }) => `${kind} ${name}`));
    this.path = file?.path;
    this.#components = [
      ...own,
      ...BUILT_IN.filter(({ kind, name }) => !names.has(`${kind} ${name}`)),
    ].sort(({ name: one }, { name: other }) => one < other ? -1 : 1);
  }

  /**
   * Finds a component. Names in the user's file take precedence over built-in ones; a relative
   * specifier is relative to the folder.
   *
   * @throws {RangeError} when the name is unknown.
   * @throws {TypeError} when the specifier is invalid.
   */
  find(kind: ComponentKind, nameOrSpecifier: string): Component {
    const cannot = `Cannot use ${JSON.stringify(nameOrSpecifier.slice(0, 200))} as ${kind}`;
    if (isSpecifier(nameOrSpecifier)) {
      const from = resolveSpecifier(cannot, nameOrSpecifier, folderURL(this.folder));
      return { name: nameOrSpecifier, kind, from, isBuiltIn: false };
    }
    const all = this.list(kind), found = all.find(({ name }) => name === nameOrSpecifier);
    if (found) return found;
    const known = all.map(({ name }) => name), meant = suggest(nameOrSpecifier, known);
    const names = known.join(", ") || "no names so far";
    throw new RangeError(`${cannot}: it must be a specifier or one of ${names}${meant}`);
  }

  /**
   * Returns options of {@linkcode packageActor} for an actor, with the required hash.
   *
   * @throws {RangeError} when the name is unknown.
   * @throws {TypeError} when the specifier is invalid.
   */
  spec(nameOrSpecifier: string): SandboxOptions {
    const { name: _, kind: __, isBuiltIn: ___, ...options } = this.find("actor", nameOrSpecifier);
    return options;
  }

  /** Returns all components, or those of a kind, sorted by name. */
  list(kind?: ComponentKind): readonly Component[] {
    return this.#components.filter((one) => kind === undefined || one.kind === kind);
  }

  /**
   * Hashes the modules of a component again.
   *
   * @throws {TypeError} (as a rejection) when its modules cannot be loaded.
   */
  async verify(component: Component): Promise<Verified> {
    const { integrity } = await hashModule(component.from, { lock: component.lock });
    return { component, integrity, isIntact: (component.integrity ?? integrity) === integrity };
  }
}

/**
 * Opens the registry of a folder: the nearest `troupe.json` upward, or `deno.json` with the key
 * `actors`, and the components of Troupe.
 *
 * @param folder default: the working directory.
 * @throws {SyntaxError} when the file is not JSON, with or without comments.
 * @throws {TypeError} when a value in it has the wrong type.
 * @throws {RangeError} when a value in it is not allowed.
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
  return new Registry(folder);
}

/** Returns the base URL of relative specifiers. */
const folderURL = (folder: string): URL => new URL(`${pathToFileURL(resolve(folder)).href}/`);

function componentsOf(
  { path, entries }: NonNullable<ReturnType<typeof findRegistryFile>>,
): Component[] {
  const locks = readLocks(path), base = pathToFileURL(path);
  return Object.entries(entries).map(([name, { from, kind = "actor", ...rest }]) => ({
    ...{ name, kind, ...rest, isBuiltIn: false },
    from: resolveSpecifier(`Cannot read ${path}: actors.${name}.from is wrong`, from, base),
    ...Object.hasOwn(locks, name) && { lock: locks[name]! },
  }));
}

/** A new name. */
interface NewComponent {
  /** The name. */
  readonly name: string;
  /** Specifier; a relative one is relative to the folder. */
  readonly specifier: string;
  /** Kind. */
  readonly kind: ComponentKind;
  /** Name of the module's export. Default: the kind. */
  readonly export?: string | undefined;
  /** True if it may replace a known name. Default false. */
  readonly replace?: boolean | undefined;
}

/**
 * Checks a new name and its specifier, without fetching anything.
 *
 * @returns the absolute specifier.
 * @throws {RangeError} when the name is invalid or taken.
 * @throws {TypeError} when the specifier is invalid.
 */
export function checkNewComponent(
  { name, specifier, replace = false }: NewComponent,
  folder: string = Deno.cwd(),
): string {
  const cannot = `Cannot add ${JSON.stringify(name.slice(0, 200))}`;
  checkName(cannot, name);
  const taken = openRegistry(folder).list().find((one) => one.name === name);
  if (taken && !replace) {
    const known = taken.isBuiltIn ? `Troupe's own ${taken.kind}` : taken.from;
    const received = `that of ${known}; --replace replaces it`;
    throw new RangeError(`${cannot}: its name must be new, received ${received}`);
  }
  return resolveSpecifier(cannot, specifier, folderURL(folder));
}

/**
 * Fetches and hashes the modules of a new component, without running them. The chosen version is
 * kept: `jsr:@you/actor@1` becomes `jsr:@you/actor@1.2.0`.
 *
 * @param folder of the registry. Default: the working directory.
 * @throws {RangeError} (as a rejection) when the name is invalid or taken.
 * @throws {TypeError} (as a rejection) when the specifier is invalid, or a module cannot be loaded.
 */
export async function prepareComponent(
  component: NewComponent,
  folder: string = Deno.cwd(),
) {
  const { name, kind, export: exported } = component;
  const hashed = await hashModule(checkNewComponent(component, folder));
  const path = fileToEdit(folder), { integrity, lock } = hashed, from = pinnedSpecifier(hashed);
  const more = { ...exported !== undefined && { export: exported } };
  const entry: Entry = {
    from: nameIn(from, pathToFileURL(path).href),
    ...kind !== "actor" && { kind },
    ...more,
    integrity,
  };
  return {
    component: { name, kind, from, ...more, integrity, lock, isBuiltIn: false },
    ...{ hashed, path },
    /** Writes the file at the path, completely or not at all. */
    async write() {
      using _ = await lockFolderOf(path);
      checkNewComponent(component, folder); // another program may have added the name
      // A lock without its entry is harmless.
      await editLock(path, name, lock);
      await editEntry(path, name, entry);
    },
  };
}

/**
 * Removes a name from the registry's file.
 *
 * @returns the path of the file.
 * @throws {RangeError} (as a rejection) when the file does not have the name.
 */
export async function removeComponent(name: string, folder: string = Deno.cwd()): Promise<string> {
  const registry = openRegistry(folder), { path } = registry;
  const found = registry.list().find((one) => one.name === name);
  if (path === undefined || !found || found.isBuiltIn) {
    const shown = JSON.stringify(name.slice(0, 100));
    throw new RangeError(`Cannot remove ${shown}: it must be a name in the registry's file`);
  }
  using _ = await lockFolderOf(path);
  await editEntry(path, name, undefined);
  await editLock(path, name);
  return path;
}
