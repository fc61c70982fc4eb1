/**
 * Files of a registry: `troupe.json`, or `deno.json` with the key `actors`, in the nearest folder
 * upward, and `troupe.lock` next to it.
 *
 * @module
 */

import { parse } from "@std/jsonc/parse";
import { applyEdits, type FormattingOptions, modify } from "jsonc-parser";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import * as v from "valibot";
import { checkInputFile, decodeText, resultOr } from "../../kernels/internal.ts";
import { replaceFile } from "../checkpoints/write.ts";
import {
  checkData,
  describeValue,
  exactObject,
  isObject,
  objectOf,
  oneOf,
  text,
} from "../options/file_schema.ts";
import type { SandboxOptions } from "../sandbox/host.ts";
import type { Lock, ModuleGraph } from "../sandbox/modules.ts";

/** The kinds of components. */
export const COMPONENT_KINDS = ["actor", "model", "data", "optimizer", "supervisor"] as const;

/** Kind of a component. */
export type ComponentKind = (typeof COMPONENT_KINDS)[number];

/** A named actor, or a named component of a training run. */
export interface Component extends Pick<SandboxOptions, "from" | "export" | "integrity" | "lock"> {
  /** Name, or the specifier by which it was requested. */
  readonly name: string;
  /** Kind, and the default name of its export. */
  readonly kind: ComponentKind;
  /** True if it is part of Troupe. */
  readonly isBuiltIn: boolean;
}

const SPECIFIER_MAX = 2000, ENTRIES_MAX = 1000;

const HASH = "sha256- and 44 characters of base64";

const ENTRY = exactObject({
  /** Specifier; `./` and `../` are relative to the file. */
  from: text(SPECIFIER_MAX),
  /** Default `actor`. */
  kind: v.exactOptional(oneOf(COMPONENT_KINDS)),
  /** Default: the kind. */
  export: v.exactOptional(text(SPECIFIER_MAX)),
  /** `sha256-…`; an entry without a hash is not verified. */
  integrity: v.exactOptional(v.pipe(v.string(HASH), v.regex(/^sha256-[A-Za-z0-9+/]{43}=$/, HASH))),
});

/** An entry of a file. */
export type Entry = Readonly<v.InferOutput<typeof ENTRY>>;

/** Entries by name. */
type Entries = Readonly<Record<string, Entry>>;

const ACTORS = v.pipe(
  objectOf({}),
  v.check(
    (actors) => Object.keys(actors).length <= ENTRIES_MAX,
    `an object of at most ${ENTRIES_MAX} entries`,
  ),
);

const TROUPE_JSON = exactObject({
  $schema: v.optional(v.unknown()),
  actors: v.optional(v.unknown()),
});

const PROTOCOLS = ["jsr:", "npm:", "https:", "http:", "file:"];

/** Names of entries, which differ from specifiers and are easy to type. */
const NAME = /^@?\w[\w.\/-]{0,99}$/;

/**
 * Checks a name.
 *
 * @throws {RangeError} when it is not allowed.
 */
export function checkName(cannot: string, name: string): void {
  if (NAME.test(name)) return;
  throw new RangeError(
    `${cannot}: a name must be at most 100 letters, digits, "_", "-", "." and "/", and start with ` +
      `a letter, a digit or "@", received ${describeValue(name)}`,
  );
}

/** Returns whether a text is a specifier rather than a name. */
export const isSpecifier = (text: string): boolean => /^(\.{0,2}\/|[a-z][a-z0-9+.-]*:)/i.test(text);

/**
 * Resolves a specifier to an absolute URL, or a `jsr:` or `npm:` specifier.
 *
 * @param base URL of the file or folder of relative specifiers.
 * @throws {TypeError} when it is not a specifier.
 */
export function resolveSpecifier(cannot: string, specifier: string, base: URL): string {
  const isRelative = /^\.{0,2}\//.test(specifier);
  const isShort = specifier.length <= SPECIFIER_MAX && !/\p{Cc}/u.test(specifier);
  const url = isShort ? URL.parse(specifier, isRelative ? base : undefined) : null;
  if (url && PROTOCOLS.includes(url.protocol)) return isRelative ? url.href : specifier;
  const starts = ["./", ...PROTOCOLS].join(", "), most = `at most ${SPECIFIER_MAX} characters`;
  const must = `a specifier must start with ${starts} and have ${most}`;
  throw new TypeError(`${cannot}: ${must}, received ${describeValue(specifier)}`);
}

/**
 * Reads the text of a file if it exists.
 *
 * @throws {TypeError} when it is not a regular file, is too large, or is not UTF-8.
 */
function readText(path: string, bytesMax: number): string | undefined {
  if (!existsSync(path)) return undefined;
  checkInputFile(path, bytesMax);
  return decodeText(readFileSync(path), path).replace(/^\uFEFF/, "");
}

/**
 * Locks the folder of a file until the returned object is disposed of, or the program ends. Windows
 * cannot open folders, so there is no lock.
 */
export async function lockFolderOf(path: string): Promise<Disposable> {
  if (Deno.build.os === "windows") return { [Symbol.dispose]() {} };
  const folder = await Deno.open(dirname(path));
  await folder.lock(true);
  return folder;
}

/** Replaces a file, or the target of a link, atomically; its mode stays. */
async function replaceText(path: string, text: string): Promise<void> {
  const real = await Deno.realPath(path).catch(() => path);
  const { mode } = await Deno.stat(real).catch(() => ({ mode: null }));
  await replaceFile(Deno, real, text);
  if (mode !== null) await Deno.chmod(real, mode & 0o777);
}

/** Names of files by precedence. */
const FILE_NAMES = ["troupe.json", "deno.json", "deno.jsonc"] as const;

const BYTES_MAX = 2 ** 20, LOCK_BYTES_MAX = 2 ** 24;

/** Yields a folder and those above it. */
function* foldersUpward(folder: string): Generator<string> {
  for (let at = resolve(folder);; at = dirname(at)) {
    yield at;
    if (dirname(at) === at) return;
  }
}

/**
 * Finds and reads the file of a registry in the nearest folder upward. A `troupe.json` takes
 * precedence; a `deno.json` counts if it has the key `actors`.
 *
 * @throws {SyntaxError} when it is not JSON, with or without comments.
 * @throws {TypeError} when a value has the wrong type.
 * @throws {RangeError} when a value is not allowed.
 */
export function findRegistryFile(folder: string) {
  for (const at of foldersUpward(folder)) {
    for (const name of FILE_NAMES) {
      const path = join(at, name), text = readText(path, BYTES_MAX);
      const entries = text === undefined ? undefined : parseEntries(path, text);
      if (entries) return { path, entries };
    }
  }
}

/** Parses the entries of a file; returns undefined for other configuration of Deno. */
function parseEntries(path: string, text: string): Entries | undefined {
  const cannot = `Cannot read ${path}`, isOwn = path.endsWith("troupe.json");
  let value: unknown;
  try {
    value = parse(text);
  } catch (cause) {
    // Deno reports errors in its own configuration.
    if (!isOwn && !text.includes('"actors"')) return undefined;
    const why = (cause as Error).message.split("\n", 1)[0]!.slice(0, 200);
    throw new SyntaxError(`${cannot}: it must be JSON, received ${why}`, { cause });
  }
  if (isOwn) checkData(cannot, TROUPE_JSON, value);
  const { actors = isOwn ? {} : undefined } = isObject(value) ? value : {};
  if (actors === undefined) return undefined;
  checkData(cannot, ACTORS, actors, { at: "actors" });
  const entries = actors as Entries;
  for (const [name, entry] of Object.entries(entries)) {
    checkName(cannot, name);
    checkData(cannot, ENTRY, entry, { at: `actors.${name}` });
  }
  return entries;
}

/**
 * Returns the path of the file for a new entry: that of the registry, or a new `troupe.json` next to
 * the nearest configuration of Deno, or in the folder itself.
 */
export function fileToEdit(folder: string): string {
  const found = findRegistryFile(folder);
  if (found) return found.path;
  const project = foldersUpward(folder).find((at) =>
    FILE_NAMES.some((name) => readText(join(at, name), BYTES_MAX) !== undefined)
  );
  return join(project ?? resolve(folder), FILE_NAMES[0]);
}

/**
 * Writes an entry, or removes it if it is undefined. Comments and formatting stay.
 *
 * @throws {SyntaxError} (as a rejection) when the rest of the file would change.
 */
export async function editEntry(
  path: string,
  name: string,
  entry: Entry | undefined,
): Promise<void> {
  const text = readText(path, BYTES_MAX) ?? "{}\n", before = parseEntries(path, text) ?? {};
  const formattingOptions = formattingOf(text);
  const edited = applyEdits(text, modify(text, ["actors", name], entry, { formattingOptions }));
  const { [name]: _, ...others } = before;
  const expected = entry ? { ...others, [name]: entry } : others;
  if (!hasEntries(expected, path, edited)) {
    throw new SyntaxError(
      `Cannot write ${path}: its text must be simple enough to be edited by a program; ` +
        `please write the entry "${name}" by hand`,
    );
  }
  await replaceText(path, edited.endsWith("\n") ? edited : `${edited}\n`);
}

const hasEntries = (expected: Entries, path: string, text: string): boolean =>
  resultOr(() => formatSorted(parseEntries(path, text) ?? {}) === formatSorted(expected), false);

const byName = ([one]: readonly [string, unknown], [other]: readonly [string, unknown]) =>
  one < other ? -1 : 1;

const formatSorted = (entries: Entries) => JSON.stringify(Object.entries(entries).sort(byName));

/** Returns the indentation of a text; two spaces by default. */
function formattingOf(text: string): FormattingOptions {
  const [, indent = "  "] = /\n([\t ]+)\S/.exec(text) ?? [];
  return { insertSpaces: indent[0] !== "\t", tabSize: indent.length, eol: "\n" };
}

const LOCK_VERSION = "1";

const LOCK_FILE = v.looseObject({
  version: v.literal(LOCK_VERSION),
  locks: v.custom<Readonly<Record<string, Lock>>>((locks) =>
    isObject(locks) && Object.values(locks).every(isObject)
  ),
});

/** Returns the path of the lock file of a registry's file. */
const lockPathOf = (path: string): string => join(dirname(path), "troupe.lock");

/**
 * Reads the locks of a registry, by name.
 *
 * @param path of its file.
 * @throws {SyntaxError} when the lock file is not JSON.
 * @throws {TypeError} when it has another version or wrong fields.
 */
export function readLocks(path: string): Readonly<Record<string, Lock>> {
  const lockPath = lockPathOf(path), text = readText(lockPath, LOCK_BYTES_MAX);
  if (text === undefined) return {};
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new SyntaxError(`Cannot read ${lockPath}: it must be JSON`, { cause });
  }
  if (v.is(LOCK_FILE, value)) return value.locks;
  throw new TypeError(
    `Cannot read ${lockPath}: it must be of version "${LOCK_VERSION}", with an object for each ` +
      `name; without the file, "troupe actors add" chooses versions again`,
  );
}

/** Writes the lock of a name, or removes it if it is empty. */
export async function editLock(path: string, name: string, lock: Lock = {}): Promise<void> {
  const before = readLocks(path), { [name]: _, ...others } = before;
  const isEmpty = Object.keys(lock).every((key) => key === "version");
  if (isEmpty && !Object.hasOwn(before, name)) return;
  const locks = Object.entries(isEmpty ? others : { ...others, [name]: lock }).sort(byName);
  if (locks.length === 0) return await Deno.remove(lockPathOf(path));
  const value = { version: LOCK_VERSION, locks: Object.fromEntries(locks) };
  await replaceText(lockPathOf(path), `${JSON.stringify(value, null, 2)}\n`);
}

/** A specifier and the URL that it was resolved to. */
type Chosen = Pick<ModuleGraph, "specifier" | "root">;

/** Matches a JSR specifier: the package, and the path within it. */
const JSR = /^jsr:\/?(@[^/]+\/[^@/]+)(?:@[^/]*)?(\/.*)?$/;

/** Returns the version of the package of a specifier; undefined for a module outside packages. */
export function packageVersion({ specifier, root }: Chosen): string | undefined {
  const [, name] = JSR.exec(specifier) ?? [];
  if (name !== undefined) return root.split(`/${name}/`)[1]?.split("/", 1)[0];
  // `npm:/@you/actor@1.2.0`, or `https://example.org/actor@1.2.0/mod.ts`
  return /^(?:npm|https?):.*[^/]@v?(\d+\.\d+[^/]*)/.exec(root)?.[1];
}

/** Returns the specifier with its resolved version. */
export function pinnedSpecifier({ specifier, root }: Chosen): string {
  if (specifier.startsWith("npm:")) return root.replace(/^npm:\//, "npm:");
  const [, name, path = ""] = JSR.exec(specifier) ?? [];
  return name === undefined ? root : `jsr:${name}@${packageVersion({ specifier, root })}${path}`;
}
