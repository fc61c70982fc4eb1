/**
 * A folder outside of the repository, set up as README's Install says, with the default compiler
 * options of Deno: the types of every script are right, and every script runs.
 */

import assert from "node:assert/strict";
import { basename, join } from "node:path";
import { pathToFileURL } from "node:url";
import { PAGES } from "../../docs/build.ts";
import { inFolder } from "../in_folder.ts";
import { filesBelow, ROOT } from "../repository.ts";
import { block, copyRepository, deno, writeFiles } from "./packages.ts";

/** Arguments that make an example short. */
const argumentsOf = (name: string, own: string): readonly string[] => {
  if (name === "train_gpt.ts") return ["2", "native"];
  const module = pathToFileURL(join(own, "registry_actor/mod.ts")).href;
  const isExample = EXAMPLES.includes(name), isPackage = name.startsWith("registry_actor/");
  return [...isPackage ? [module] : [], ...isExample ? ["20", "native"] : []];
};

/** Scripts that need a file or serve until they are stopped: only their types are checked. */
const UNRUN = ["browser/serve.ts", "registry_actor/mod.ts", "replay_test.ts"];

const EXAMPLES = filesBelow(join(ROOT, "examples")).filter((path) => path.endsWith(".ts"));

const TOKENIZER = `
import assert from "node:assert/strict";
import { generateText, gpt2, openDevice, splitTokens, type Tokenizer, tokenBatches, train } from "@troupe/troupe";

const LETTERS = "abcdefghijklmnopqrstuvwxyz ";
const letters: Tokenizer = {
  name: "letters",
  vocabularySize: LETTERS.length,
  encode: (text) => Uint16Array.from(text, (letter) => LETTERS.indexOf(letter)),
  decode: (ids) => Array.from(ids, (id) => LETTERS[id] ?? "?").join(""),
};
const config = { layers: 1, hidden: 16, heads: 2, seq: 8, vocab: letters.vocabularySize };
const { train: tokens } = splitTokens(letters.encode("the quick brown fox ".repeat(50)), 8);
const rows = { seq: 8, vocabularySize: config.vocab, microBatch: 2, microBatches: 2, tokens };
const optimizer = { weightDecay: 0.1 }, learningRate = { schedule: "cosine" } as const;
for await (
  const event of train({
    ...{ model: gpt2(config, 2), data: tokenBatches(rows), steps: 3, microBatches: 2 },
    ...{ optimizer, learningRate, checkpoint: { directory: "letters" }, device: "native" },
  })
) {
  if (event.type !== "end") continue;
  const device = await openDevice("native"), { weights } = event;
  const text = await generateText(device, letters, { config, weights, prompt: "the", tokens: 4 });
  assert.match(text, /^[a-z ?]+$/);
  device.close();
}
`;

/** A script of the repository as a stranger has it. */
const asStranger = (text: string) =>
  text.replaceAll(
    /"\.\.\/(?:(\w+)\/mod|mod|(testing))\.ts"/g,
    (_, room, testing) => `"${["@troupe/troupe", room ?? testing].filter(Boolean).join("/")}"`,
  );

async function scriptsOf(): Promise<Record<string, string>> {
  const scripts: Record<string, string> = { "tokenizer.ts": TOKENIZER };
  for (const path of EXAMPLES) {
    scripts[path] = asStranger(await Deno.readTextFile(join(ROOT, "examples", path)));
  }
  for (const page of PAGES.flatMap(([, paths]) => paths)) {
    const text = await Deno.readTextFile(join(ROOT, page));
    for (const [n, [, code]] of [...text.matchAll(/^```ts\n(.*?)^```/gms)].entries()) {
      scripts[`${basename(page, ".md")}_${n}.ts`] = code!;
    }
  }
  return scripts;
}

Deno.test("every example and every script of the documents checks and runs in a folder outside", () =>
  inFolder(async (folder) => {
    await copyRepository(folder);
    const own = join(folder, "own"), scripts = await scriptsOf(), names = Object.keys(scripts);
    await writeFiles(own, { ...scripts, "deno.json": await block("README.md", "json") });
    assert.ok(names.length >= 25, `${names}`);
    const env = { JSR_URL: "http://127.0.0.1:9/", TMPDIR: folder };
    await deno(own, ["check", ...names], env);
    await deno(own, ["test", "-A", "replay_test.ts"], env);
    for (const name of names.filter((name) => !UNRUN.includes(name))) {
      await deno(own, ["run", "-A", name, ...argumentsOf(name, own)], env);
    }
  }));
