/**
 * The file that names are kept in: the nearest `troupe.json`, or `deno.json`, upward from a folder.
 *
 * @module
 */

import { parse } from "@std/jsonc/parse";
import { applyEdits, type FormattingOptions, modify } from "jsonc-parser";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { checkInputFile, decodeText } from "../../kernels/mod.ts";
import { didYouMean } from "../options/option.ts";
import type { Lock, ModuleGraph } from "../sandbox/mod.ts";

/** The kinds of parts. */
export const COMPONENT_KINDS = ["actor", "model", "data", "optimizer", "supervisor"] as const;

/** What a part is for. */
export type ComponentKind = (typeof COMPONENT_KINDS)[number];

/** An actor, or a part of a training run, that has a name. */
export interface Component {
  /** What it is asked for by: its name, or the specifier itself where that was given. */
  readonly name: string;
  /** What it is for. */
  readonly kind: ComponentKind;
  /** Its module: `jsr:`, `npm:`, or an absolute URL. */
  readonly from: string;
  /** Name of what the module exports for it. Default: its kind. */
  readonly export?: string;
  /** Hash of its modules when it was added: see {@linkcode hashModule}. */
  readonly integrity?: string;
  /** Versions of what its modules import, chosen when it was added. */
  readonly lock?: Lock;
  /** Whether it comes with Troupe. */
  readonly isBuiltIn: boolean;
}

/** An entry as it stands in a file. */
export interface Entry {
  /** A specifier; one that begins with `./` or `../` is relative to the file. */
  readonly from: string;
  /** Default `actor`. */
  readonly kind?: ComponentKind;
  /** Default: the kind. */
  readonly export?: string;
  /** `sha256-…`; an entry without one is not checked. */
  readonly integrity?: string;
}

/** Entries of one file. */
const ENTRIES_MAX = 1000;

/** Characters of a specifier. */
const SPECIFIER_MAX = 2000;

const KEYS = ["from", "kind", "export", "integrity"];

const PROTOCOLS = ["jsr:", "npm:", "https:", "http:", "file:"];

/** Names of entries: what can be told from a specifier, and typed. */
const NAME = /^@?\w[\w.\/-]{0,99}$/;

/**
 * Checks a name.
 *
 * @throws {RangeError} when it is none.
 */
export function checkName(cannot: string, name: string): void {
  if (NAME.test(name)) return;
  throw new RangeError(
    `${cannot}: a name must be at most 100 letters, digits, "_", "-", "." and "/", and begin with ` +
      `a letter, a digit or "@", received ${shown(name)}`,
  );
}

/** Whether a text is a specifier rather than a name. */
export const isSpecifier = (text: string): boolean => /^(\.{0,2}\/|[a-z][a-z0-9+.-]*:)/i.test(text);

/**
 * The absolute URL, or `jsr:` or `npm:` specifier, that a specifier stands for.
 *
 * @param base URL of the file or folder that a relative one is relative to.
 * @throws {TypeError} when it is none.
 */
export function resolveSpecifier(cannot: string, specifier: string, base: URL): string {
  const isRelative = /^\.{0,2}\//.test(specifier);
  const isShort = specifier.length <= SPECIFIER_MAX && !/\p{Cc}/u.test(specifier);
  const url = isShort ? URL.parse(specifier, isRelative ? base : undefined) : null;
  if (url && PROTOCOLS.includes(url.protocol)) return isRelative ? url.href : specifier;
  throw new TypeError(
    `${cannot}: a specifier must begin with ${
      ["./", ...PROTOCOLS].join(", ")
    } and have at most ${SPECIFIER_MAX} characters, received ${shown(specifier)}`,
  );
}

/**
 * Checks the entries of a file.
 *
 * @param cannot begins the sentence of a refusal.
 * @throws {TypeError} when something is of another kind than it must be.
 * @throws {RangeError} when a value is not what it may be.
 */
function checkEntries(cannot: string, actors: unknown): Readonly<Record<string, Entry>> {
  if (!isRecord(actors)) {
    throw new TypeError(`${cannot}: "actors" must be a record, received ${shown(actors)}`);
  }
  const names = Object.keys(actors);
  if (names.length > ENTRIES_MAX) {
    throw new RangeError(
      `${cannot}: "actors" must have at most ${ENTRIES_MAX} entries, received ${names.length}`,
    );
  }
  for (const name of names) {
    checkName(cannot, name);
    checkEntry(`${cannot}: the entry "${name}"`, actors[name]);
  }
  return actors as Record<string, Entry>;
}

function checkEntry(entry: string, value: unknown): void {
  if (!isRecord(value)) {
    throw new TypeError(`${entry} must be a record with "from", received ${shown(value)}`);
  }
  for (const key of Object.keys(value)) {
    if (KEYS.includes(key)) continue;
    throw new TypeError(
      `${entry} must have no keys but ${KEYS.join(", ")}, received ${shown(key)}${
        didYouMean(key, KEYS)
      }`,
    );
  }
  const { from, kind = "actor", export: exported = "", integrity } = value;
  for (const [key, text] of Object.entries({ from, export: exported })) {
    if (typeof text === "string" && text.length <= SPECIFIER_MAX) continue;
    throw new TypeError(`${entry} must have a text as "${key}", received ${shown(text)}`);
  }
  if (!COMPONENT_KINDS.includes(kind as ComponentKind)) {
    throw new RangeError(
      `${entry} must have a kind of ${COMPONENT_KINDS.join(", ")}, received ${shown(kind)}${
        didYouMean(String(kind), COMPONENT_KINDS)
      }`,
    );
  }
  if (integrity === undefined) return;
  if (typeof integrity === "string" && /^sha256-[A-Za-z0-9+/]{43}=$/.test(integrity)) return;
  throw new RangeError(
    `${entry} must have an integrity of sha256- and 44 characters of base64, received ${
      shown(integrity)
    }`,
  );
}

type Values = Readonly<Record<string, unknown>>;

/** Whether a value is a record, as JSON has them. */
const isRecord = (value: unknown): value is Values =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** A value on one line, not longer than a reader needs. */
function shown(value: unknown): string {
  const text = JSON.stringify(value) ?? "nothing";
  return text.length > 100 ? `${text.slice(0, 100)}…` : text;
}

/**
 * The text of a file that is there.
 *
 * @throws {TypeError} when it is no regular file, too large, or no text.
 */
function readText(path: string, bytesMax: number): string | undefined {
  if (!existsSync(path)) return undefined;
  checkInputFile(path, bytesMax);
  return decodeText(readFileSync(path), path).replace(/^\uFEFF/, "");
}

/**
 * Waits until no other program changes files in the folder of this one. Its end, whatever it dies of,
 * lets the next one in. Windows opens no folders, and has nobody wait.
 */
export async function holdFolder(path: string): Promise<Disposable> {
  if (Deno.build.os === "windows") return { [Symbol.dispose]() {} };
  const folder = await Deno.open(dirname(path));
  await folder.lock(true);
  return folder;
}

/** Writes a file: whoever reads it meanwhile finds the old text or the new one. */
async function replaceFile(path: string, text: string): Promise<void> {
  const real = await Deno.realPath(path).catch(() => path);
  const temporary = `${real}.${crypto.randomUUID()}.tmp`, bytes = new TextEncoder().encode(text);
  const { mode } = await Deno.stat(real).catch(() => ({ mode: null }));
  try {
    using file = await Deno.open(temporary, {
      ...{ write: true, createNew: true },
      ...mode !== null && { mode: mode & 0o777 },
    });
    for (let done = 0; done < bytes.length;) done += await file.write(bytes.subarray(done));
    await file.syncData();
    await Deno.rename(temporary, real);
  } catch (error) {
    await Deno.remove(temporary).catch(() => {});
    throw error;
  }
}

/** A registry's file as it was read. */
export interface RegistryFile {
  readonly path: string;
  readonly entries: Readonly<Record<string, Entry>>;
}

/** Names of files, those that win first. */
const FILE_NAMES = ["troupe.json", "deno.json", "deno.jsonc"] as const;

/** Bytes of such a file. */
const BYTES_MAX = 2 ** 20;

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
function entriesOf(path: string, text: string): Readonly<Record<string, Entry>> | undefined {
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

/**
 * The file that an entry is written to: the registry's own, else a new `troupe.json` beside the
 * nearest configuration of Deno, or in the folder itself.
 */
export function fileToEdit(folder: string): string {
  const found = findRegistryFile(folder);
  if (found) return found.path;
  for (let at = resolve(folder);; at = dirname(at)) {
    const isProject = FILE_NAMES.some((name) => readText(join(at, name), BYTES_MAX) !== undefined);
    if (isProject) return join(at, FILE_NAMES[0]);
    if (dirname(at) === at) return join(resolve(folder), FILE_NAMES[0]);
  }
}

/**
 * Writes an entry, or removes it where it is undefined. Comments and formatting stay.
 *
 * @throws {SyntaxError} (as a rejection) when that cannot be done without harm to the rest.
 */
export async function editEntry(
  path: string,
  name: string,
  entry: Entry | undefined,
): Promise<void> {
  const text = readText(path, BYTES_MAX) ?? "{}\n", before = entriesOf(path, text) ?? {};
  const formattingOptions = formattingOf(text);
  const edited = applyEdits(text, modify(text, ["actors", name], entry, { formattingOptions }));
  const { [name]: _, ...others } = before;
  const wanted = entry ? { ...others, [name]: entry } : others;
  if (!isSame(wanted, path, edited)) {
    throw new SyntaxError(
      `Cannot write ${path}: its text must be simple enough to be edited by a program; ` +
        `please write the entry "${name}" by hand`,
    );
  }
  await replaceFile(path, edited.endsWith("\n") ? edited : `${edited}\n`);
}

function isSame(wanted: Readonly<Record<string, Entry>>, path: string, text: string): boolean {
  try {
    return sorted(entriesOf(path, text) ?? {}) === sorted(wanted);
  } catch {
    return false;
  }
}

const sorted = (entries: Readonly<Record<string, Entry>>): string =>
  JSON.stringify(Object.entries(entries).sort(([one], [other]) => one < other ? -1 : 1));

/** As the text is indented already; two blanks where it says nothing. */
function formattingOf(text: string): FormattingOptions {
  const [, indent = "  "] = /\n([\t ]+)\S/.exec(text) ?? [];
  return { insertSpaces: indent[0] !== "\t", tabSize: indent.length, eol: "\n" };
}

/** Locks by name. */
type Locks = Readonly<Record<string, Lock>>;

const VERSION = "1";

/** Bytes of such a file. */
const LOCK_BYTES_MAX = 2 ** 24;

/** The lock file of a registry's file. */
const lockPathOf = (path: string): string => join(dirname(path), "troupe.lock");

/**
 * Reads the locks of a registry.
 *
 * @param path of its file.
 * @throws {SyntaxError} when they are no JSON.
 * @throws {TypeError} when they are of another kind than they must be.
 */
export function readLocks(path: string): Locks {
  const lockPath = lockPathOf(path), text = readText(lockPath, LOCK_BYTES_MAX);
  if (text === undefined) return {};
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new SyntaxError(`Cannot read ${lockPath}: it must be JSON`, { cause });
  }
  const isLock = isRecord(value) && value.version === VERSION && isRecord(value.locks) &&
    Object.values(value.locks).every(isRecord);
  if (isLock) return (value as { readonly locks: Locks }).locks;
  throw new TypeError(
    `Cannot read ${lockPath}: it must be of version "${VERSION}", with a record for each name; ` +
      `without it, "troupe actors add" chooses versions again`,
  );
}

/** Writes the lock of a name; where nothing was chosen for it, or it is undefined, it has none. */
export async function editLock(path: string, name: string, lock: Lock = {}): Promise<void> {
  const before = readLocks(path), { [name]: _, ...others } = before;
  const isEmpty = Object.keys(lock).every((key) => key === "version");
  if (isEmpty && !Object.hasOwn(before, name)) return;
  const locks = Object.entries(isEmpty ? others : { ...others, [name]: lock })
    .sort(([one], [other]) => one < other ? -1 : 1);
  if (locks.length === 0) return await Deno.remove(lockPathOf(path));
  const value = { version: VERSION, locks: Object.fromEntries(locks) };
  await replaceFile(lockPathOf(path), `${JSON.stringify(value, null, 2)}\n`);
}

/** A specifier, and the URL that it stands for. */
export type Chosen = Pick<ModuleGraph, "specifier" | "root">;

/** The parts of a specifier of JSR: the package, and the path within it. */
const JSR = /^jsr:\/?(@[^/]+\/[^@/]+)(?:@[^/]*)?(\/.*)?$/;

/** The version of the package that a specifier stands for; undefined for a module of no package. */
export function packageVersion({ specifier, root }: Chosen): string | undefined {
  const [, name] = JSR.exec(specifier) ?? [];
  if (name !== undefined) return root.split(`/${name}/`)[1]?.split("/", 1)[0];
  // `npm:/@you/actor@1.2.0`, or `https://example.org/actor@1.2.0/mod.ts`
  return /^(?:npm|https?):.*[^/]@v?(\d+\.\d+[^/]*)/.exec(root)?.[1];
}

/** The same specifier for just that version. */
export function pinnedSpecifier({ specifier, root }: Chosen): string {
  if (specifier.startsWith("npm:")) return root.replace(/^npm:\//, "npm:");
  const [, name, path = ""] = JSR.exec(specifier) ?? [];
  return name === undefined ? root : `jsr:${name}@${packageVersion({ specifier, root })}${path}`;
}
