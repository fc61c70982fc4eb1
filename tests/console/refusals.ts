/**
 * Golden refusals: files of commands, each with the sentence that refuses it. `TROUPE_UPDATE=1`
 * writes the sentences of now, to be read in the diff.
 */

import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";

/**
 * Compares what refuses each command of `tests/golden/refusals/NAME.txt` with the sentence there.
 *
 * @param refuse gives the sentence that refuses the words of a command.
 * @param places texts that differ from run to run, by the names that the file has for them.
 */
export async function assertRefusals(
  name: string,
  refuse: (words: string[]) => Promise<string>,
  places: Readonly<Record<string, string>> = {},
): Promise<void> {
  const path = fileURLToPath(new URL(`../golden/refusals/${name}.txt`, import.meta.url));
  const text = await Deno.readTextFile(path), found: string[] = [];
  const replaced = (text: string, back: boolean) =>
    Object.entries(places).reduce(
      (text, [key, place]) => back ? text.replaceAll(place, key) : text.replaceAll(key, place),
      text,
    );
  for (const [, command] of text.matchAll(/^\$ (.*)$/gm)) {
    const sentence = await refuse(replaced(command!, false).split(" "));
    found.push(`$ ${command}\n${replaced(sentence, true)}\n`);
  }
  if (Deno.env.get("TROUPE_UPDATE")) await Deno.writeTextFile(path, found.join("\n"));
  else assert.equal(found.join("\n"), text, `${path} (TROUPE_UPDATE=1 writes it anew)`);
}
