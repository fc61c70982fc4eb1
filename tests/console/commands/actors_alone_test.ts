/** `troupe actors`, which looks for names in the working folder. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { folderTest, namesIn } from "../../in_folder.ts";
import { jsonLines, printedHere, refusalHere, refusedHere, ROOT, runHere } from "../command.ts";
import { assertRefusals } from "../refusals.ts";

/** Registers a test in a working folder that has the module of an actor. */
const workTest = (name: string, fn: (folder: string) => Promise<void>) =>
  folderTest(name, async (folder) => {
    const module = "tests/actors/sandbox/fixtures/counter.ts";
    await Deno.copyFile(join(ROOT, module), join(folder, "counter.ts"));
    const before = Deno.cwd();
    Deno.chdir(folder);
    try {
      await fn(await Deno.realPath(folder));
    } finally {
      Deno.chdir(before);
    }
  });

const actors = (...args: string[]) => printedHere("actors", ...args);

const urlIn = (folder: string) => pathToFileURL(join(folder, "counter.ts")).href;

workTest("a name is added, listed, verified, replaced and removed", async (folder) => {
  const config = '{\n\t// mine\n\t"actors": {}, /* and yours */\n\t"imports": {}\n}\n';
  await Deno.writeTextFile("deno.json", config);
  const add = ["add", "counter", "./counter.ts"];
  const added = /^actor +counter, protocol 1\n[^]*\nAdded counter to .*deno\.json\n$/;
  assert.match(await actors(...add), added);
  const written = await Deno.readTextFile("deno.json");
  const [, integrity] = /"integrity": "(sha256-.{44})"/.exec(written) ?? [];
  const entry = `"from": "./counter.ts",\n\t\t\t"integrity": "${integrity}"`;
  const actor = `{\n\t\t"counter": {\n\t\t\t${entry}\n\t\t}\n\t},`;
  assert.equal(written, config.replace("{},", actor));
  assert.deepEqual(await namesIn(folder), ["counter.ts", "deno.json"]);

  assert.deepEqual(jsonLines(await actors("list", "--kind", "actor", "--json"))[0], [
    { name: "counter", kind: "actor", integrity, isBuiltIn: false, from: urlIn(folder) },
  ]);
  assert.match(await actors("list"), /^gpt +model +built in$/m);
  assert.match(await actors("verify", "gpt"), /^gpt: model of troupe [\d.]+ itself$/m);
  assert.equal(await actors("verify"), `counter: intact, ${integrity}\n`);

  await Deno.writeTextFile("counter.ts", "\n", { append: true });
  const differs = await runHere(["actors", "verify", "counter"]);
  assert.equal(differs.code, 1);
  const must = /^counter: differs: it must be (\S+), received (?!\1)sha256-\S+\n$/;
  assert.match(differs.stdout, must);
  assert.ok(differs.stdout.includes(integrity!));
  const taken = /^Cannot add "counter": its name must be new.+--replace/;
  await refusedHere(["actors", ...add], taken);
  await actors(...add, "--replace");
  assert.match(await actors("verify"), /^counter: intact/);
  assert.match(await actors("remove", "counter"), /^Removed counter from .*deno\.json\n$/);
  const left = await Deno.readTextFile("deno.json");
  assert.equal(left.replace(/\{\s*\},/, "{},"), config);
});

workTest("a part that cannot be inspected is not added, and leaves nothing", async (folder) => {
  const forged = "export const actor = { get name() { throw new Error('\\x1b[2J\\nforged'); } };";
  await Deno.writeTextFile("forged.ts", forged);
  const refuse = (words: string[]) => refusalHere(["actors", ...words]);
  await assertRefusals("actors", refuse, { FOLDER: pathToFileURL(folder).href });
  assert.deepEqual(await namesIn(folder), ["counter.ts", "forged.ts"]);
  const [{ name, protocol, messages, modules }] = jsonLines(
    await actors("inspect", "./counter.ts", "--json"),
  ) as [Record<string, unknown>];
  assert.deepEqual([name, protocol, Object.keys(messages!)], ["counter", 1, ["Add", "Read"]]);
  assert.deepEqual(modules, [urlIn(folder)]);
});
