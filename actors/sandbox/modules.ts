/**
 * The modules of a package, which are all modules that its import loads, and their hash. They are
 * fetched but not run.
 *
 * [Note: names] A module has the same hash in every program, and only the hashed modules run. So the
 * configuration of the working folder has no effect: the configuration of the package resolves names,
 * and a name that it does not define stays as it is.
 *
 * @module
 */

import { Buffer } from "node:buffer";
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { dirname, join, posix } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { parse } from "jsonc-parser";
import { closeRendezvousFolder, lockTemporaryFolder } from "../transports/rendezvous.ts";
import { assertInput, resultOr } from "../runtime/types.ts";

/** One module that runs when the first one is imported. */
export interface GraphModule {
  /** Absolute URL, `npm:/name@version`, `node:name`, or an unresolved name. */
  readonly specifier: string;
  /** Path of its text on this machine; undefined if it is not a file. */
  readonly local: string | undefined;
}

/** An npm package that a module imports, directly or through others. */
export interface NpmPackage {
  /** `name@version`. */
  readonly id: string;
  /** Hash of its registry: `sha512-…`. */
  readonly integrity: string;
}

/** Resolved versions in the format of Deno's lock file. */
export type Lock = Readonly<Record<string, unknown>>;

/** All modules that the import of a module loads. */
export interface ModuleGraph {
  /** The requested specifier. */
  readonly specifier: string;
  /** URL of the first module, after redirects and the resolution of versions. */
  readonly root: string;
  /** Modules in the order of their specifiers. */
  readonly modules: readonly GraphModule[];
  /** Packages in the order of their ids. */
  readonly npm: readonly NpmPackage[];
}

/** A module with all that it imports, and its hash. */
export interface HashedModule extends ModuleGraph {
  /** `sha256-` and the hash, in base64. */
  readonly integrity: string;
  /** Resolved versions of its imports. */
  readonly lock: Lock;
}

/** Options for fetching a module. */
export interface GraphOptions {
  /** Versions that were resolved before, and are kept. Default: the newest ones. */
  readonly lock?: Lock | undefined;
}

/** Maximum number of modules of a graph. */
const MODULES_MAX = 10_000;

/** Maximum bytes of a module. */
const TEXT_BYTES_MAX = 2 ** 26;

/** Flags with which `deno` ignores the configuration of the working folder. */
export const NO_CONFIG = ["--no-config", "--quiet"];

/** These settings as environment variables. */
export const NO_CONFIG_ENV = {
  DENO_NO_PACKAGE_JSON: "1",
  DENO_NO_UPDATE_CHECK: "1",
  NO_COLOR: "1",
};

/**
 * Fetches a module with all that it imports, and hashes them, without running any of them.
 *
 * [Note: hash] There is one line for each module that the first one imports, directly or through
 * others, also by a dynamic import with a literal specifier: its specifier, a space, and the SHA-256
 * of its text in hexadecimal digits. The name of a file is its path from the folder of the first
 * module (`./actor.ts`, `../lib/sum.ts`), so a checkout elsewhere has the same hash; the name of
 * another module is its URL with the resolved version. Then there is a line for each npm package:
 * `npm:`, its name, `@`, its version, a space, and the hash of its registry, which Deno checks. Parts
 * of Deno (`node:fs`) and unresolved names have lines without a hash. Lines are sorted by code units;
 * each ends with a line feed. Modules that only types import are not hashed. Modules with a computed
 * specifier are not hashed either, but need permissions. A user with write access to the files of
 * this machine can change them afterwards.
 *
 * @param specifier `jsr:`, `npm:`, or an absolute URL.
 * @throws {TypeError} (as a rejection) when a module cannot be fetched.
 *
 * @example
 * ```ts
 * import { hashModule } from "@troupe/troupe/actors";
 * import assert from "node:assert/strict";
 *
 * const { integrity } = await hashModule("data:text/javascript,export const a = 1");
 * assert.match(integrity, /^sha256-/);
 * ```
 */
export async function hashModule(
  specifier: string,
  { lock }: GraphOptions = {},
): Promise<HashedModule> {
  const folder = await Deno.makeTempDir({ prefix: "troupe-graph-" });
  lockTemporaryFolder(folder);
  try {
    const path = join(folder, "deno.lock"), importMap = join(folder, "imports.json");
    if (lock) await Deno.writeTextFile(path, JSON.stringify(lock));
    // Deno reports a missing file.
    const own = await packageFolder(specifier).catch(() => undefined);
    await Deno.writeTextFile(importMap, JSON.stringify({ imports: own?.imports ?? {} }));
    const flags = [...NO_CONFIG, `--lock=${path}`, "--frozen=false", `--import-map=${importMap}`];
    const info = await deno("fetch", specifier, [
      ...["info", "--json", "--node-modules-dir=none", ...flags, ...importFlags(specifier)],
    ]);
    // Without imports of packages there is no lock.
    const locked = existsSync(path) ? JSON.parse(await Deno.readTextFile(path)) : {};
    // Texts are hashed here, so that an error can give both hashes.
    const { remote: _, ...chosen } = locked;
    const graph = graphOf(specifier, JSON.parse(info), locked.npm ?? {});
    return { ...graph, lock: chosen, integrity: await hashGraph(graph) };
  } finally {
    closeRendezvousFolder(folder);
  }
}

/**
 * Throws if the hash of modules is another.
 *
 * @throws {RangeError} with both hashes.
 */
export function checkIntegrity(specifier: string, wanted: string | undefined, received: string) {
  const isRight = wanted === undefined || received === wanted;
  assertInput(isRight, `Cannot use ${specifier}: its hash must be ${wanted}`, received);
}

/** Returns the hash of a graph. */
export async function hashGraph(graph: ModuleGraph): Promise<string> {
  const lines = await Promise.all(graph.modules.map((module) => lineOf(module, graph.root)));
  const packages = graph.npm.map(({ id, integrity }) => `npm:${id} ${integrity}\n`);
  const hash = createHash("sha256");
  for (const line of [...lines, ...packages].sort()) hash.update(line);
  return `sha256-${hash.digest("base64")}`;
}

async function lineOf({ specifier, local }: GraphModule, root: string): Promise<string> {
  const name = nameIn(specifier, root), cannot = `Cannot hash ${specifier}`;
  if (local === undefined) {
    if (!/^https?:/.test(specifier)) return `${name}\n`;
    throw new TypeError(`${cannot}: its text must be in the cache`);
  }
  const { isFile, size } = await Deno.stat(local).catch(() => ({ isFile: false, size: 0 }));
  if (!isFile) throw new TypeError(`${cannot}: it must be an existing file`);
  const must = `${cannot}: it must have at most ${TEXT_BYTES_MAX} bytes`;
  assertInput(size <= TEXT_BYTES_MAX, must, size, TypeError);
  const bytes = await Deno.readFile(local);
  // Deno's cache appends metadata to the text.
  const at = Buffer.from(bytes.buffer).lastIndexOf("\n// denoCacheMetadata=");
  const text = specifier.startsWith("file:") || at < 0 ? bytes : bytes.subarray(0, at);
  return `${name} ${createHash("sha256").update(text).digest("hex")}\n`;
}

/** Returns the path of a file from the folder of another; any other specifier as it is. */
export function nameIn(specifier: string, root: string): string {
  if (!specifier.startsWith("file:") || !root.startsWith("file:")) return specifier;
  const path = posix.relative(posix.dirname(new URL(root).pathname), new URL(specifier).pathname);
  return path.startsWith("../") ? path : `./${path}`;
}

/** The fields of `deno info --json` that are read. */
interface Info {
  readonly roots: readonly string[];
  readonly modules: readonly {
    readonly specifier: string;
    readonly local?: string;
    readonly error?: string;
    readonly npmPackage?: string;
    readonly dependencies?: readonly {
      readonly specifier: string;
      readonly code?: { readonly specifier?: string };
    }[];
  }[];
  readonly redirects: Readonly<Record<string, string>>;
  readonly npmPackages: Readonly<Record<string, { readonly dependencies: readonly string[] }>>;
}

type Locked = Readonly<Record<string, { readonly integrity?: string }>>;

function graphOf(specifier: string, info: Info, npm: Locked): ModuleGraph {
  const listed = new Map(info.modules.map((module) => [module.specifier, module]));
  const found = new Map<string, Info["modules"][number]>();
  const root = follow(info, info.roots[0] ?? specifier), reached = new Set([root]);
  for (const at of reached) {
    if (found.has(at)) continue;
    const module = listed.get(at);
    if (!module || module.error !== undefined) {
      throw refused("fetch", specifier, module?.error ?? `${at} was not fetched`);
    }
    found.set(at, module);
    for (const { specifier: name, code } of module.dependencies ?? []) {
      if (code?.specifier !== undefined) reached.add(follow(info, code.specifier));
      else if (code) found.set(name, { specifier: name });
    }
  }
  if (found.size > MODULES_MAX) {
    throw refused("fetch", specifier, `${found.size} of them, more than ${MODULES_MAX}`);
  }
  const modules = [...found.values()].map(({ specifier, local }) => ({
    specifier,
    // For imported text files, `deno info` reports only the name.
    local: local ?? (specifier.startsWith("file:") ? fileURLToPath(specifier) : undefined),
  }));
  const packages = [...found.values()].flatMap((one) => one.npmPackage ?? []);
  return {
    ...{ specifier, root, modules: inOrder(modules, (one) => one.specifier) },
    npm: inOrder(npmOf(specifier, info, packages, npm), ({ id }) => id),
  };
}

/** Returns the target of the redirects of a specifier. */
function follow({ redirects }: Info, specifier: string): string {
  for (let n = 0; n < Object.keys(redirects).length; n++) {
    if (!Object.hasOwn(redirects, specifier)) break;
    specifier = redirects[specifier]!;
  }
  return specifier;
}

function npmOf(specifier: string, info: Info, imported: string[], locked: Locked): NpmPackage[] {
  const reached = new Set(imported), found: NpmPackage[] = [];
  for (const id of reached) {
    const integrity = locked[id]?.integrity;
    if (integrity === undefined) throw refused("fetch", specifier, `no hash of npm:${id}`);
    found.push({ id, integrity });
    for (const one of info.npmPackages[id]?.dependencies ?? []) reached.add(one);
  }
  return found;
}

const inOrder = <T>(list: readonly T[], key: (one: T) => string): T[] =>
  list.toSorted((one, other) => key(one) < key(other) ? -1 : 1);

/** Hosts that Deno imports from by default. */
const USUAL_HOSTS = [
  "deno.land:443",
  "jsr.io:443",
  "esm.sh:443",
  "raw.esm.sh:443",
  "cdn.jsdelivr.net:443",
  "raw.githubusercontent.com:443",
  "gist.githubusercontent.com:443",
];

/** Returns the flag that allows imports from the host of a specifier, and from the default hosts. */
export function importFlags(specifier: string): string[] {
  const host = hostOf(specifier);
  return host === undefined ? [] : [`--allow-import=${[...USUAL_HOSTS, host].join(",")}`];
}

/** Returns the host of a remote module, with its port. */
export function hostOf(specifier: string): string | undefined {
  if (!URL.canParse(specifier)) return; // an unresolved name
  const { protocol, hostname, port } = new URL(specifier);
  if (protocol !== "https:" && protocol !== "http:") return;
  return `${hostname}:${port || (protocol === "https:" ? 443 : 80)}`;
}

/** Limits of a `deno` that fetches, because modules can be endless, such as `/dev/zero`. */
const FETCH_MS = 300_000;
const FETCH_MB = 1024;

/** Milliseconds between two checks of its limits. */
const LOOK_MS = 50;

/**
 * Runs `deno` on a module and returns its output.
 *
 * @throws {TypeError} (as a rejection) with the first line of its errors, or with the limit.
 */
export async function deno(what: string, module: string, args: string[]): Promise<string> {
  const child = new Deno.Command(Deno.execPath(), {
    args: [...args, module],
    env: NO_CONFIG_ENV,
    ...{ stdin: "null", stdout: "piped", stderr: "piped" },
  }).spawn();
  let why: string | undefined, passedMs = 0;
  const watch = setInterval(() => {
    if ((passedMs += LOOK_MS) > FETCH_MS) why ??= `more than ${FETCH_MS} ms`;
    if (memoryOf(child.pid) > FETCH_MB) why ??= `more than ${FETCH_MB} MiB`;
    if (why !== undefined) kill(child);
  }, LOOK_MS);
  try {
    const { code, stdout, stderr } = await child.output(), decoder = new TextDecoder();
    if (code === 0) return decoder.decode(stdout);
    throw refused(what, module, (why ?? decoder.decode(stderr).trim()) || `exit code ${code}`);
  } finally {
    clearInterval(watch);
  }
}

/** Kills a process that may have ended. */
export function kill(child: Deno.ChildProcess): void {
  resultOr(() => child.kill("SIGKILL"), undefined); // its end is reported by its status
}

/** Returns the memory of a process in MiB; 0 where it cannot be read. */
function memoryOf(pid: number): number {
  const status = resultOr(() => Deno.readTextFileSync(`/proc/${pid}/status`), "");
  return Number(/^VmRSS:\s*(\d+)/m.exec(status)?.[1] ?? 0) / 1024;
}

function refused(what: string, module: string, why: string): TypeError {
  const [line] = why.replace(/^error: /, "").split("\n", 1);
  return new TypeError(
    `Cannot ${what} ${module}: all of its modules must be there, received ${line!.slice(0, 2000)}`,
  );
}

/**
 * Returns the nearest folder above a file whose configuration has `exports`; if there is none, the
 * folder of the file. Returns undefined for a module that is not a file.
 *
 * @returns its absolute path without symbolic links, and the names that its modules import, as in an
 * import map.
 */
export async function packageFolder(module: string) {
  if (!module.startsWith("file:")) return undefined;
  const own = dirname(await Deno.realPath(fileURLToPath(module)));
  for (let path = own;; path = dirname(path)) {
    for (const name of ["deno.json", "deno.jsonc", "package.json"]) {
      const text = await Deno.readTextFile(join(path, name)).catch(() => "");
      const config = parse(text) as Record<string, unknown> | undefined;
      if (config?.exports) return { path, imports: importsOf(config, join(path, name)) };
    }
    if (dirname(path) === path) return { path: own, imports: {} };
  }
}

/** Reads `imports` as Deno does: the name of a package also covers the paths below it. */
function importsOf({ imports }: Record<string, unknown>, config: string): Record<string, string> {
  const base = pathToFileURL(config), read: Record<string, string> = {};
  for (const [name, target] of Object.entries(imports ?? {})) {
    if (typeof target !== "string") continue;
    read[name] = /^\.{0,2}\//.test(target) ? new URL(target, base).href : target;
    const [, scheme, rest] = /^(jsr:|npm:)\/?(.*[^/])$/.exec(target) ?? [];
    if (scheme && !name.endsWith("/")) read[`${name}/`] ??= `${scheme}/${rest}/`;
  }
  return read;
}
