/**
 * Files of npm packages, used only when they are what they were when their hash was pinned here.
 *
 * Deno checks what it fetches against a lock file, which a package fetched on demand is not in (see
 * npm_package.ts), and never looks at what lies in its cache again.
 *
 * @module
 */

import { createHash } from "node:crypto";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

/** An exact version of a package on npm. */
export interface NpmPackage {
  /** Its name on npm. */
  readonly name: string;
  /** Its exact version. */
  readonly version: string;
  /** Roughly what fetching it and what it depends on takes on disk, in MB. */
  readonly megabytes: number;
  /**
   * A JSON file that may be imported from it, where its `package.json` may not; the folder of what
   * that stands for is then taken for the package's.
   */
  readonly json?: string;
}

/** Receives one line for a person when something is about to be downloaded. */
export type Announce = (message: string) => void;

/** A package that is being fetched. */
export interface Fetching extends NpmPackage {
  /** Bytes of it that are in Deno's cache now: none while they come, as Deno unpacks them at the end. */
  cachedBytes(): number;
}

let watch: ((fetching: Fetching) => Disposable) | undefined;

/**
 * Has every package that this isolate fetches watched, for who shows how far it has come.
 *
 * @param begin called when one is about to be fetched; what it returns is disposed of at the end.
 */
export function watchFetches(begin: ((fetching: Fetching) => Disposable) | undefined): void {
  watch = begin;
}

/**
 * The folder of a package in Deno's cache, as a `file:` URL that ends in a slash.
 *
 * Needs the permission to run `deno` and to read the cache; the network only the first time.
 *
 * @throws {Error} when the package is neither cached nor to be had from the registry.
 * @throws {Deno.errors.Interrupted} when whoever looks for it is killed again and again.
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
  throw new Error(
    `Cannot load npm:${name}@${version}: the npm registry must be reachable the first time, ` +
      `received ${fetched.problem}`,
  );
}

/** Looks how many bytes of a package, in any version, have come into Deno's cache since now. */
async function cachedBytesOf(name: string): Promise<() => number> {
  const { success, stdout } = await new Deno.Command(Deno.execPath(), {
    args: ["info", "--json", "--no-config"],
  }).output();
  if (!success) return () => 0;
  const { npmCache } = JSON.parse(new TextDecoder().decode(stdout)) as { npmCache: string };
  const count = () => {
    try {
      return [...Deno.readDirSync(npmCache)]
        .reduce((sum, { name: registry }) => sum + bytesBelow(join(npmCache, registry, name)), 0);
    } catch {
      return 0; // there is no cache yet
    }
  };
  const before = count();
  return () => count() - before;
}

function bytesBelow(folder: string): number {
  try {
    return [...Deno.readDirSync(folder)].reduce((sum, { name, isDirectory }) => {
      const path = join(folder, name);
      return sum + (isDirectory ? bytesBelow(path) : Deno.statSync(path).size);
    }, 0);
  } catch {
    return 0; // It has moved on.
  }
}

/** Times that a child is started before it is given up. */
const MAX_STARTS = 5;

async function locate(
  { name, version, json = "package.json" }: NpmPackage,
  flags: string[],
) {
  // The import makes Deno look for the package, and fetch it where allowed; it runs nothing.
  const manifest = JSON.stringify(`npm:${name}@${version}/${json}`);
  const code = `import ${manifest} with { type: "json" };
    console.log(import.meta.resolve(${manifest}));`;
  // And it may do nothing: reading the cache and the registry is Deno's own.
  const isolated = [
    "--quiet",
    "--no-prompt",
    "--no-lock",
    "--no-config",
    "--node-modules-dir=none",
  ];
  const child = new Deno.Command(Deno.execPath(), {
    args: ["run", ...isolated, ...flags, `data:text/javascript,${encodeURIComponent(code)}`],
    env: { NO_COLOR: "1", DENO_NO_UPDATE_CHECK: "1" },
  });
  for (let starts = 0; starts < MAX_STARTS; starts++) {
    const { success, signal, stdout, stderr } = await child.output();
    if (success) return { folder: new URL("./", new TextDecoder().decode(stdout).trim()) };
    // One that was killed has not said that there is no package.
    if (signal) continue;
    return { problem: new TextDecoder().decode(stderr).trim().split("\n", 1)[0] ?? "no reason" };
  }
  throw new Deno.errors.Interrupted(
    `Cannot load npm:${name}@${version}: the process that looks for it must run to its end, received a signal ${MAX_STARTS} times`,
  );
}

/** Files that nothing but what was pinned may be in the place of. */
export interface PinnedFiles {
  /** The folder within the package that they are in; it ends in a slash. */
  readonly folder: string;
  /** Matches their paths below it, with slashes: all that is loaded, or found by what is. */
  readonly files: RegExp;
  /**
   * What `sha256sum` prints for what `sha256sum` prints for these files, sorted by their paths: of
   * the lines "hash, two spaces, path".
   */
  readonly sha256: string;
}

/** Files that are what they should be. */
interface CheckedFiles {
  /** Their folder, which ends in a slash. */
  readonly folder: URL;
  /** Their paths below it, sorted. */
  readonly paths: readonly string[];
}

/**
 * Finds a package's pinned files, fetches them where they are absent, and checks them.
 *
 * @throws {Error} when they are not to be had, or not what they were.
 */
export async function pinnedPackage(
  pinned: NpmPackage & PinnedFiles,
  announce?: Announce,
): Promise<CheckedFiles> {
  return checkPackage(pinned, await npmPackageFolder(pinned, announce));
}

/**
 * Checks a package's pinned files.
 *
 * @param root the package's folder, as a `file:` URL that ends in a slash.
 * @throws {Error} saying what was expected, what is there, and what to do.
 */
export function checkPackage(
  pinned: Pick<NpmPackage, "name" | "version"> & PinnedFiles,
  root: URL,
): CheckedFiles {
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
  throw new Error(
    `Cannot use npm:${name}@${version}: its files must be those that were published, with the ` +
      `SHA-256 ${sha256}, received ${received}; to fetch it again, remove ${fileURLToPath(root)}`,
  );
}

function* pathsBelow(base: string, prefix = ""): Generator<string> {
  for (const { name, isDirectory } of Deno.readDirSync(join(base, prefix))) {
    if (isDirectory) yield* pathsBelow(base, `${prefix}${name}/`);
    else yield prefix + name;
  }
}

/** Bytes read in one go. */
const PIECE_BYTES = 1 << 20;

/** Without an await: half of the time, about a millisecond a megabyte. */
function hashFile(path: string): string {
  const hash = createHash("sha256"), piece = new Uint8Array(PIECE_BYTES);
  using file = Deno.openSync(path);
  for (let count; (count = file.readSync(piece)) !== null;) hash.update(piece.subarray(0, count));
  return hash.digest("hex");
}
