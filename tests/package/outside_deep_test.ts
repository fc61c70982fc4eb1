/**
 * A folder outside of the repository, set up as README's Install says, with the default compiler
 * options of Deno: the types of every script are right, and every script runs.
 */

import assert from "node:assert/strict";
import { basename, join } from "node:path";
import { pathToFileURL } from "node:url";
import { PAGES } from "../../docs/build.ts";
import { HANG_LIMIT_MS } from "../hang_limit.ts";
import { ENVIRONMENT } from "../console/command.ts";
import { folderTest } from "../in_folder.ts";
import { filesBelow, ROOT } from "../repository.ts";
import {
  block,
  copyRepository,
  deno,
  type Environment,
  flowersCsv,
  writeFiles,
} from "./packages.ts";

/** Arguments that make an example short. */
const argumentsOf = (name: string, own: string): readonly string[] => {
  if (name === "train_gpt.ts") return ["2", "native"];
  const module = pathToFileURL(join(own, "registry_actor/mod.ts")).href;
  const isExample = EXAMPLES.includes(name), isPackage = name.startsWith("registry_actor/");
  return [...isPackage ? [module] : [], ...isExample ? ["20", "native"] : []];
};

/** Scripts that need a file or serve until they are stopped: only their types are checked. */
const UNRUN = [
  ...["browser/serve.ts", "registry_actor/mod.ts", "replay_test.ts", "ACTORS_3.ts"],
  ...["server.ts", "page.ts"],
];

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

async function scriptsOf(): Promise<Record<string, string>> {
  const scripts: Record<string, string> = { "tokenizer.ts": TOKENIZER };
  for (const path of EXAMPLES) {
    scripts[path] = await Deno.readTextFile(join(ROOT, "examples", path));
  }
  for (const page of PAGES.flatMap(([, paths]) => paths)) {
    const text = await Deno.readTextFile(join(ROOT, page));
    for (const [n, [, code]] of [...text.matchAll(/^```ts(?: ignore)?\n(.*?)^```/gms)].entries()) {
      const [, named] = /^\/\/ (\w+\.ts)\n/.exec(code!) ?? [];
      scripts[named ?? `${basename(page, ".md")}_${n}.ts`] = code!;
    }
  }
  return scripts;
}

folderTest("every example and script of the documents runs in a folder outside", async (folder) => {
  await copyRepository(folder);
  const own = join(folder, "own"), scripts = await scriptsOf(), names = Object.keys(scripts);
  await writeFiles(own, {
    ...scripts,
    "flowers.csv": flowersCsv(),
    "deno.json": await block("README.md", "json"),
  });
  assert.ok(names.length >= 25, `${names}`);
  const env = { JSR_URL: "http://127.0.0.1:9/", TMPDIR: folder };
  await deno(own, ["check", ...names], env);
  await deno(own, ["test", "-A", "replay_test.ts"], env);
  for (const name of names.filter((name) => !UNRUN.includes(name))) {
    await deno(own, ["run", "-A", name, ...argumentsOf(name, own)], env);
  }
});

/** Runs a script until a text is printed, and then presses Ctrl-C; returns its exit code. */
async function interrupted(own: string, script: string, text: RegExp, env: Environment) {
  const child = new Deno.Command(Deno.execPath(), {
    ...{ args: ["run", "-A", script], cwd: own, env: { ...ENVIRONMENT, ...env }, stdout: "piped" },
    signal: AbortSignal.timeout(HANG_LIMIT_MS),
  }).spawn();
  let printed = "";
  for await (const part of child.stdout.pipeThrough(new TextDecoderStream())) {
    const wasThere = text.test(printed);
    printed += part;
    if (!wasThere && text.test(printed)) child.kill("SIGINT");
  }
  return (await child.status).code;
}

folderTest("README's script saves its run at Ctrl-C, and resumes it by name", async (folder) => {
  await copyRepository(folder);
  const script = (await block("README.md", "ts")).replace("epochs: 10", "epochs: 100");
  const files = { "flowers.ts": script, "flowers.csv": flowersCsv() };
  const env = { JSR_URL: "http://127.0.0.1:9/" };
  const runIn = async (name: string, isInterrupted: boolean) => {
    const own = join(folder, name);
    await writeFiles(own, { ...files, "deno.json": await block("README.md", "json") });
    if (isInterrupted) {
      assert.equal(await interrupted(own, "flowers.ts", /after step 20:/, env), 130);
    }
    const { stdout } = await deno(own, ["run", "-A", "flowers.ts"], env);
    assert.match(stdout, /\nsetosa\n$/);
    return JSON.parse(await Deno.readTextFile(join(own, "runs/flowers/run.json")));
  };
  const whole = await runIn("whole", false), resumed = await runIn("resumed", true);
  assert.deepEqual([whole.starts.length, resumed.starts.length], [1, 2]);
  const { afterStep } = resumed.starts[1];
  assert.ok(afterStep >= 20 && afterStep < whole.end.step, `interrupted after ${afterStep}`);
  assert.equal(resumed.end.weightsHash, whole.end.weightsHash);
});
