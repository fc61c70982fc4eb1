/**
 * Golden refusals: files of commands, each with the sentence that refuses it. `TROUPE_UPDATE=1`
 * writes the sentences of now, to be read in the diff.
 */

import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";

/** Texts that differ from run to run, by the names that a golden file has for them. */
export type Places = Readonly<Record<string, string>>;

const pathOf = (name: string) =>
  fileURLToPath(new URL(`../golden/refusals/${name}.txt`, import.meta.url));

/** Compares sentences, each under its subject, with `tests/golden/refusals/NAME.txt`. */
export async function assertSentences(
  name: string,
  sentences: Iterable<readonly [about: string, sentence: string]>,
  places: Places = {},
): Promise<void> {
  const placed = (text: string) =>
    Object.entries(places).reduce((text, [key, place]) => text.replaceAll(place, key), text)
      .replaceAll(/sha256-[\w+/]{43}=/g, "sha256-…").replaceAll(/\b[0-9a-f]{64}\b/g, "…")
      // Where a long text is cut depends on the length of the path before it.
      .replaceAll(/x{50,}…/g, "LONG…");
  const found = Array.from(sentences, (one) => `$ ${one.map(placed).join("\n")}\n`).join("\n");
  if (Deno.env.get("TROUPE_UPDATE")) return await Deno.writeTextFile(pathOf(name), found);
  const expected = await Deno.readTextFile(pathOf(name));
  assert.equal(found, expected, `${name} (TROUPE_UPDATE=1 writes it anew)`);
}

/** Compares what refuses each command of `tests/golden/refusals/NAME.txt` with the sentence there. */
export async function assertRefusals(
  name: string,
  refuse: (words: string[]) => Promise<string>,
  places: Places = {},
): Promise<void> {
  const text = await Deno.readTextFile(pathOf(name)), found: [string, string][] = [];
  for (const [, command] of text.matchAll(/^\$ (.*)$/gm)) {
    const words = Object.entries(places).reduce(
      (text, [key, place]) => text.replaceAll(key, place),
      command!,
    );
    found.push([command!, await refuse(words === "" ? [] : words.split(" "))]);
  }
  await assertSentences(name, found, places);
}
