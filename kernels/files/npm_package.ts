/**
 * Finds npm packages that only some runs need, and fetches them when they are first wanted.
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

import { join } from "node:path";

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
