/**
 * The modules that a specifier stands for, all of them, fetched but not run.
 *
 * [Note: what names mean] A module's hash must be the same whoever asks for it, and the one that is
 * asked for must be the one that runs. So the configuration of the place where the program runs has
 * no say: names mean what the package's own configuration says, and what that does not say (as where
 * the program's own configuration gives them a meaning) is noted by name.
 *
 * @module
 */

import { existsSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { packageFolder } from "../transports/confined/package_folder.ts";
import { closeRendezvousFolder, lockFolder } from "../transports/process/rendezvous_folder.ts";
import { runDeno } from "./fetching.ts";

/** One module that runs when the first one is imported. */
export interface GraphModule {
  /** Absolute URL, `npm:/name@version`, `node:name`, or a name that nobody has resolved. */
  readonly specifier: string;
  /** Where its text lies on this machine; undefined for what is no file. */
  readonly local: string | undefined;
}

/** A package of npm that modules of a graph import, or that such a package depends on. */
export interface NpmPackage {
  /** `name@version`. */
  readonly id: string;
  /** As its registry gives it: `sha512-…`. */
  readonly integrity: string;
}

/** Versions that were chosen, as Deno writes them into a lock file. */
export type Lock = Readonly<Record<string, unknown>>;

/** All that is loaded when a module is imported. */
export interface ModuleGraph {
  /** As it was asked for. */
  readonly specifier: string;
  /** The URL that it stands for, after redirects and choices of versions. */
  readonly root: string;
  /** In the order of their specifiers. */
  readonly modules: readonly GraphModule[];
  /** In the order of their ids. */
  readonly npm: readonly NpmPackage[];
}

/** How a graph is read. */
export interface GraphOptions {
  /** Versions that were chosen before, and stay. Default: the newest ones. */
  readonly lock?: Lock | undefined;
}

/** Modules of one graph; far above what anybody publishes. */
const MODULES_MAX = 10_000;

/** Hosts that Deno imports from unless told otherwise. */
const USUAL_HOSTS = [
  "deno.land:443",
  "jsr.io:443",
  "esm.sh:443",
  "raw.esm.sh:443",
  "cdn.jsdelivr.net:443",
  "raw.githubusercontent.com:443",
  "gist.githubusercontent.com:443",
];

/** What `deno info --json` says, as far as it is read here. */
interface Info {
  readonly roots: readonly string[];
  readonly modules: readonly {
    readonly kind?: string;
    readonly specifier: string;
    readonly local?: string;
    readonly error?: string;
    readonly npmPackage?: string;
    readonly dependencies?: readonly {
      readonly specifier: string;
      readonly code?: { readonly specifier?: string; readonly error?: string };
    }[];
  }[];
  readonly redirects: Readonly<Record<string, string>>;
  readonly npmPackages: Readonly<Record<string, { readonly dependencies: readonly string[] }>>;
}

/**
 * Fetches a module and all that it imports, dynamically too where the specifier is written out;
 * nothing of it is run. What only types need is left out.
 *
 * @throws {TypeError} (as a rejection) when one of them is not to be had.
 */
export async function readGraph(
  specifier: string,
  { lock }: GraphOptions = {},
): Promise<ModuleGraph & { readonly lock: Lock }> {
  const folder = await Deno.makeTempDir({ prefix: "troupe-graph-" });
  lockFolder(folder);
  try {
    const lockPath = join(folder, "deno.lock"), importMap = join(folder, "imports.json");
    if (lock) await Deno.writeTextFile(lockPath, JSON.stringify(lock));
    const { imports = {} } = await ownFolder(specifier) ?? {};
    await Deno.writeTextFile(importMap, JSON.stringify({ imports }));
    const graph = await graphWith(specifier, lockPath, importMap);
    // Texts are hashed here, and a difference is to be told with both hashes.
    const { remote: _, ...chosen } = await readLock(lockPath);
    return { ...graph, lock: chosen };
  } finally {
    closeRendezvousFolder(folder);
  }
}

/** Of a file that is not there, Deno says so. */
const ownFolder = async (specifier: string) =>
  specifier.startsWith("file:")
    ? await packageFolder(fileURLToPath(specifier)).catch(() => undefined)
    : undefined;

/** The same with a lock file and an import map that are there, or are made. */
export async function graphWith(
  specifier: string,
  lock: string,
  importMap: string,
): Promise<ModuleGraph> {
  const { code, stdout, stderr } = await runDeno([
    ...["info", "--json", "--quiet", "--no-config", "--node-modules-dir=none", `--lock=${lock}`],
    ...["--frozen=false", `--import-map=${importMap}`, ...importFlags(specifier), specifier],
  ]);
  if (code !== 0) throw refused(specifier, stderr || `an end with code ${code}`);
  const { npm = {} } = await readLock(lock) as { npm?: Locked };
  return graphOf(specifier, JSON.parse(stdout), npm);
}

/** What a lock file says of packages of npm, by their ids. */
type Locked = Readonly<Record<string, { readonly integrity?: string }>>;

/** A module that imports nothing from elsewhere needs none. */
async function readLock(path: string): Promise<Lock> {
  return existsSync(path) ? JSON.parse(await Deno.readTextFile(path)) : {};
}

/** Whoever names a host lets modules of that host be fetched, and of those that Deno trusts. */
export function importFlags(specifier: string): string[] {
  const { protocol, host, port } = new URL(specifier);
  if (protocol !== "https:" && protocol !== "http:") return [];
  const named = port === "" ? `${host}:${protocol === "https:" ? 443 : 80}` : host;
  return [`--allow-import=${[...USUAL_HOSTS, named].join(",")}`];
}

function graphOf(specifier: string, info: Info, npm: Locked): ModuleGraph {
  const listed = new Map(info.modules.map((module) => [module.specifier, module]));
  const found = new Map<string, Info["modules"][number]>(),
    root = follow(info, info.roots[0] ?? specifier);
  const left = [root];
  for (let at = left.pop(); at !== undefined; at = left.pop()) {
    if (found.has(at)) continue;
    const module = listed.get(at);
    if (!module || module.error !== undefined) {
      throw refused(specifier, module?.error ?? `${at} was not fetched`);
    }
    found.set(at, module);
    for (const { specifier: name, code } of module.dependencies ?? []) {
      if (code?.specifier !== undefined) left.push(follow(info, code.specifier));
      else if (code) found.set(name, { specifier: name });
    }
  }
  if (found.size > MODULES_MAX) {
    throw refused(specifier, `${found.size} of them, more than ${MODULES_MAX}`);
  }
  const modules = [...found.values()];
  return {
    ...{ specifier, root },
    modules: modules.map(({ specifier, local }) => ({
      specifier,
      // Of a text that is imported, `deno info` says only what it is called.
      local: local ?? (specifier.startsWith("file:") ? fileURLToPath(specifier) : undefined),
    }))
      .sort(({ specifier: one }, { specifier: other }) => one < other ? -1 : 1),
    npm: npmOf(specifier, info, modules.flatMap((one) => one.npmPackage ?? []), npm),
  };
}

/** The specifier that another leads to. */
function follow({ redirects }: Info, specifier: string): string {
  for (let n = 0; n < Object.keys(redirects).length; n++) {
    if (!Object.hasOwn(redirects, specifier)) break;
    specifier = redirects[specifier]!;
  }
  return specifier;
}

function npmOf(
  specifier: string,
  { npmPackages }: Info,
  imported: readonly string[],
  locked: Locked,
): NpmPackage[] {
  const left = [...imported], found = new Map<string, NpmPackage>();
  for (let id = left.pop(); id !== undefined; id = left.pop()) {
    if (found.has(id)) continue;
    const integrity = locked[id]?.integrity;
    if (integrity === undefined) throw refused(specifier, `nothing vouches for npm:${id}`);
    found.set(id, { id, integrity });
    left.push(...npmPackages[id]?.dependencies ?? []);
  }
  return [...found.values()].sort(({ id: one }, { id: other }) => one < other ? -1 : 1);
}

function refused(specifier: string, why: string): TypeError {
  return new TypeError(
    `Cannot fetch ${specifier}: all of its modules must be there, received ${firstLine(why)}`,
  );
}

const firstLine = (text: string): string => text.replace(/^error: /, "").split("\n", 1)[0]!;
