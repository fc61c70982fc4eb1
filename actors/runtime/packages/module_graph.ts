/**
 * The modules that a specifier stands for, all of them, fetched but not run.
 *
 * @module
 */

import { existsSync } from "node:fs";
import { dirname, join, resolve } from "node:path";

/** One module that runs when the first one is imported. */
export interface GraphModule {
  /** Absolute URL, `npm:name@version` or `node:name`. */
  readonly specifier: string;
  /** Where its text lies on this machine; undefined for packages of npm and parts of Deno. */
  readonly local: string | undefined;
}

/** A package of npm that modules of a graph import, or that such a package depends on. */
export interface NpmPackage {
  /** `name@version`. */
  readonly id: string;
  /** As its registry gives it: `sha512-…`. */
  readonly integrity: string;
}

/** All that is loaded when a module is imported. */
export interface ModuleGraph {
  /** The URL that the specifier stands for, after redirects and choices of versions. */
  readonly root: string;
  /** In the order of their specifiers. */
  readonly modules: readonly GraphModule[];
  /** In the order of their ids. */
  readonly npm: readonly NpmPackage[];
}

/** How the names in modules are read. */
export interface Resolution {
  /** Flags of Deno that say so, but for the lock. */
  readonly flags: readonly string[];
  /** Path of a lock file, which is written to. */
  readonly lock: string;
}

/** How a graph is read. */
export interface GraphOptions {
  /** Where a configuration, with its import map and lock file, is looked for. Default: here. */
  readonly folder?: string;
  /** How long fetching may take, in milliseconds. Default five minutes. */
  readonly timeLimitMs?: number;
  /** What says how names are read, instead of what is found from the folder. */
  readonly resolution?: Resolution;
}

const TIME_LIMIT_MS = 300_000;

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
  readonly modules: readonly {
    readonly kind?: string;
    readonly specifier: string;
    readonly local?: string;
    readonly error?: string;
    readonly npmPackage?: string;
    readonly dependencies?: readonly {
      readonly code?: { readonly specifier?: string; readonly error?: string };
    }[];
  }[];
  readonly redirects: Readonly<Record<string, string>>;
  readonly npmPackages: Readonly<Record<string, { readonly dependencies: readonly string[] }>>;
}

/** What a lock file of Deno says, as far as it is read here. */
interface Lock {
  readonly npm?: Readonly<Record<string, { readonly integrity?: string }>>;
}

/**
 * Fetches a module and all that it imports, dynamically too where the specifier is written out;
 * nothing of it is run. What only types need is left out.
 *
 * @throws {TypeError} (as a rejection) when one of them is not to be had.
 */
export async function readGraph(
  specifier: string,
  { folder = Deno.cwd(), timeLimitMs = TIME_LIMIT_MS, resolution }: GraphOptions = {},
): Promise<ModuleGraph> {
  if (resolution) return await readResolved(specifier, resolution, folder, timeLimitMs);
  const temporary = await Deno.makeTempDir({ prefix: "troupe-graph-" });
  try {
    // Versions stay as the program's own lock file has chosen them; what npm's registry says of its
    // packages stands in lock files only.
    const lock = join(temporary, "deno.lock"), own = findUpward(folder, ["deno.lock"]);
    if (own !== undefined) await Deno.copyFile(own, lock);
    return await readResolved(specifier, { flags: [], lock }, folder, timeLimitMs);
  } finally {
    await Deno.remove(temporary, { recursive: true });
  }
}

async function readResolved(
  specifier: string,
  { flags, lock }: Resolution,
  folder: string,
  timeLimitMs: number,
): Promise<ModuleGraph> {
  const info = await readInfo(specifier, [...flags, "--lock", lock], folder, timeLimitMs);
  const { npm = {} } = existsSync(lock) ? JSON.parse(await Deno.readTextFile(lock)) as Lock : {};
  return graphOf(specifier, info, npm);
}

/** The nearest file with one of some names, from a folder upward; earlier names go first. */
export function findUpward(folder: string, names: readonly string[]): string | undefined {
  for (let at = resolve(folder);; at = dirname(at)) {
    const found = names.map((name) => join(at, name)).find((path) => existsSync(path));
    if (found !== undefined || dirname(at) === at) return found;
  }
}

async function readInfo(
  specifier: string,
  flags: readonly string[],
  folder: string,
  timeLimitMs: number,
): Promise<Info> {
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["info", "--json", ...flags, ...importFlags(specifier), specifier],
    cwd: folder,
    env: { NO_COLOR: "1", DENO_NO_UPDATE_CHECK: "1" },
    stdin: "null",
    signal: AbortSignal.timeout(timeLimitMs),
  }).output();
  const decoder = new TextDecoder();
  if (code === 0) return JSON.parse(decoder.decode(stdout));
  throw refused(specifier, decoder.decode(stderr).trim() || `deno info ended with code ${code}`);
}

/** Whoever names a host lets modules of that host be fetched, and of those that Deno trusts. */
export function importFlags(specifier: string): string[] {
  const { protocol, host, port } = new URL(specifier);
  if (protocol !== "https:" && protocol !== "http:") return [];
  const named = port === "" ? `${host}:${protocol === "https:" ? 443 : 80}` : host;
  return [`--allow-import=${[...USUAL_HOSTS, named].join(",")}`];
}

function graphOf(specifier: string, info: Info, npm: NonNullable<Lock["npm"]>): ModuleGraph {
  const listed = new Map(info.modules.map((module) => [module.specifier, module]));
  const found = new Map<string, Info["modules"][number]>(), root = follow(info, specifier);
  const left = [root];
  for (let at = left.pop(); at !== undefined; at = left.pop()) {
    if (found.has(at)) continue;
    const module = listed.get(at);
    if (!module || module.error !== undefined) {
      throw refused(specifier, module?.error ?? `${at} was not fetched`);
    }
    found.set(at, module);
    for (const { code } of module.dependencies ?? []) {
      if (code?.specifier === undefined) {
        if (code) throw refused(specifier, code.error ?? `${at} imports what is no module`);
      } else left.push(follow(info, code.specifier));
    }
  }
  if (found.size > MODULES_MAX) throw refused(specifier, `it has ${found.size} modules`);
  return {
    root,
    modules: [...found.values()].map(({ specifier, kind, local }) => ({
      specifier,
      local: kind === "npm" || kind === "node" ? undefined : local,
    })).sort(({ specifier: one }, { specifier: other }) => one < other ? -1 : 1),
    npm: npmOf(specifier, info, [...found.values()].flatMap((one) => one.npmPackage ?? []), npm),
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
  locked: NonNullable<Lock["npm"]>,
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
