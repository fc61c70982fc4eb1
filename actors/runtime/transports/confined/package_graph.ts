/**
 * What a package is made of, found out before any of its code runs: all is fetched into the cache,
 * and what its process may load is what its module graph names.
 *
 * @module
 */

import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { runDeno } from "../../packages/fetching.ts";
import { checkIntegrity } from "../../packages/hash_module.ts";
import {
  type GraphModule,
  graphWith,
  importFlags,
  type ModuleGraph,
} from "../../packages/module_graph.ts";
import type { Confinement } from "../confinement.ts";
import { type PackageFolder, packageFolder } from "./package_folder.ts";

/** What a process must load. */
export interface PackageGraph {
  /** Its modules. */
  readonly graph: ModuleGraph;
  /** Its files, where it has any: absolute paths. */
  readonly files: readonly string[];
  /** Names that its own configuration gives a meaning. */
  readonly names: readonly string[];
  /** Hosts of its remote modules, with their ports. */
  readonly hosts: readonly string[];
  /** Path of a lock file that holds what it imports, and nothing else. */
  readonly lock: string;
  /** Path of its import map. */
  readonly importMap: string;
  /** The folder of Deno's cache. */
  readonly cache: string;
}

/** Characters of what Deno says that are told. */
const SAID_MAX = 2000;

/** The module of the process, which its lock and its import map are for as well. */
export const ENTRY = new URL("./entry.ts", import.meta.url).href;

/** Configurations of the place where it runs mean nothing to a package. */
export const NO_CONFIG = ["--no-config", "--quiet"];

/**
 * Fetches the modules of a package.
 *
 * @param folder a private one, for the files that the process is started with.
 * @throws {TypeError} (as a rejection) when a module cannot be had.
 * @throws {RangeError} (as a rejection) when a file is outside of the folder of the package, or the
 * hash is another.
 */
export async function fetchGraph(
  { from, integrity, lock: chosen }: Pick<Confinement, "from" | "integrity" | "lock">,
  folder: string,
): Promise<PackageGraph> {
  const name = crypto.randomUUID();
  const importMap = join(folder, `${name}.imports.json`), lock = join(folder, `${name}.lock`);
  const own = from.startsWith("file:") ? await packageFolder(fileURLToPath(from)) : undefined;
  await Deno.writeTextFile(importMap, JSON.stringify(await importMapOf(own)));
  if (chosen) await Deno.writeTextFile(lock, JSON.stringify(chosen));
  const graph = await graphWith(from, lock, importMap), { modules } = graph;
  if (integrity !== undefined) await checkIntegrity(graph, integrity);
  const cache = await denoDir();
  const files = modules.flatMap((one) => one.specifier.startsWith("file:") ? one.local ?? [] : []);
  await checkFiles(from, own, files);
  const flags = [...NO_CONFIG, `--import-map=${importMap}`];
  const locked = [`--lock=${lock}`, "--frozen=false", ...importFlags(from)];
  await deno(["cache", ...flags, ...locked, ENTRY, from]);
  const names = Object.keys(own?.imports ?? {});
  return { graph, files, names, hosts: hostsOf(modules), lock, importMap, cache };
}

/** Where remote modules come from, with the ports. */
function hostsOf(modules: readonly GraphModule[]): string[] {
  const hosts = new Set<string>();
  for (const { specifier } of modules) {
    if (!URL.canParse(specifier)) continue; // a name that nobody has resolved
    const { protocol, hostname, port } = new URL(specifier);
    if (protocol === "https:") hosts.add(`${hostname}:${port || 443}`);
    if (protocol === "http:") hosts.add(`${hostname}:${port || 80}`);
  }
  return [...hosts];
}

/** What names mean: those of the runtime in its own modules, those of the package elsewhere. */
async function importMapOf(folder: PackageFolder | undefined): Promise<unknown> {
  // Where it is published, its modules import by no such names.
  const runtime = ENTRY.startsWith("file:") && await packageFolder(fileURLToPath(ENTRY));
  const scopes = runtime && { [pathToFileURL(join(runtime.path, "/")).href]: runtime.imports };
  return { imports: folder?.imports ?? {}, scopes: scopes || {} };
}

/** A file of a package that is not in its folder is somebody else's, and none of its business. */
async function checkFiles(
  from: string,
  folder: PackageFolder | undefined,
  files: readonly string[],
): Promise<void> {
  for (const file of files) {
    const real = await Deno.realPath(file);
    if (folder && real.startsWith(join(folder.path, "/"))) continue;
    const where = folder
      ? `all that it imports must be in ${folder.path}`
      : "it must import no file";
    throw new RangeError(`Cannot load ${from}: ${where}, received ${real}`);
  }
}

let cacheFolder: string | undefined;

/** The folder of Deno's cache. */
async function denoDir(): Promise<string> {
  cacheFolder ??= JSON.parse(await deno(["info", "--json", "--no-config"])).denoDir as string;
  return cacheFolder;
}

/** What Deno prints. */
async function deno(args: readonly string[]): Promise<string> {
  const { code, stdout, stderr } = await runDeno(args);
  if (code === 0) return stdout;
  const [said = ""] = stderr.replace(/^error: /, "").split("\n", 1);
  throw new Error(`Cannot load ${args.at(-1)}: ${said.slice(0, SAID_MAX)}`);
}
