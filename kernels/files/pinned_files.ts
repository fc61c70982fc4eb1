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
import { type Announce, type NpmPackage, npmPackageFolder } from "./npm_package.ts";

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
export interface CheckedFiles {
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
