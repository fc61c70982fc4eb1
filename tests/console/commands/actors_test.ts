import assert from "node:assert/strict";
import { join } from "node:path";
import { namesIn } from "../../in_folder.ts";
import { ENVIRONMENT, inFolder, jsonLines, type Outcome, ROOT } from "../command.ts";

const COUNTER = join(ROOT, "tests/actors/runtime/packages/fixtures/counter.ts");

/** Runs `troupe actors` in a folder. */
async function actors(folder: string, ...args: readonly string[]): Promise<Outcome> {
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: [
      "run",
      "-A",
      `--config=${join(ROOT, "deno.json")}`,
      join(ROOT, "cli.ts"),
      "actors",
      ...args,
    ],
    ...{ cwd: folder, env: ENVIRONMENT, stdin: "null" },
  }).output();
  const decoder = new TextDecoder();
  return { code, stdout: decoder.decode(stdout), stderr: decoder.decode(stderr) };
}

Deno.test("a name is added, listed, verified, found to differ, replaced and removed", () =>
  inFolder(async (folder) => {
    await Deno.copyFile(COUNTER, join(folder, "counter.ts"));
    const config = '{\n\t// mine\n\t"actors": {}, /* and yours */\n\t"imports": {}\n}\n';
    await Deno.writeTextFile(join(folder, "deno.json"), config);
    const added = await actors(folder, "add", "counter", "./counter.ts");
    assert.equal(added.code, 0, added.stderr);
    assert.match(
      added.stdout,
      /^actor +counter, protocol 1\n[^]*\nAdded counter to .*deno\.json\n$/,
    );
    const written = await Deno.readTextFile(join(folder, "deno.json"));
    const [, integrity] = /"integrity": "(sha256-.{44})"/.exec(written) ?? [];
    assert.equal(
      written,
      config.replace(
        "{},",
        `{\n\t\t"counter": {\n\t\t\t"from": "./counter.ts",\n\t\t\t"integrity": "${integrity}"\n\t\t}\n\t},`,
      ),
    );
    assert.deepEqual(await namesIn(folder), ["counter.ts", "deno.json"]);

    const listed = await actors(folder, "list", "--kind", "actor", "--json");
    assert.deepEqual(jsonLines(listed.stdout)[0], [
      { name: "counter", kind: "actor", integrity, isBuiltIn: false, from: fileURL(folder) },
    ]);
    assert.match((await actors(folder, "list")).stdout, /^gpt +model +built in$/m);
    assert.match(
      (await actors(folder, "verify", "gpt")).stdout,
      /^gpt: model of troupe [\d.]+ itself$/m,
    );
    const intact = await actors(folder, "verify");
    assert.deepEqual([intact.code, intact.stdout], [0, `counter: intact, ${integrity}\n`]);

    await Deno.writeTextFile(join(folder, "counter.ts"), "\n", { append: true });
    const differs = await actors(folder, "verify", "counter");
    assert.equal(differs.code, 1);
    assert.match(
      differs.stdout,
      /^counter: differs: it must be (\S+), received (?!\1)sha256-\S+\n$/,
    );
    assert.ok(differs.stdout.includes(integrity!));
    const taken = await actors(folder, "add", "counter", "./counter.ts");
    assert.equal(taken.code, 2);
    assert.match(taken.stderr, /^Cannot add "counter": its name must be new[^\n]+--replace/);
    assert.equal((await actors(folder, "add", "counter", "./counter.ts", "--replace")).code, 0);
    assert.equal((await actors(folder, "verify")).code, 0);
    assert.equal((await actors(folder, "remove", "counter")).code, 0);
    const left = await Deno.readTextFile(join(folder, "deno.json"));
    assert.equal(left.replace(/\{\s*\},/, "{},"), config);
  }));

const fileURL = (folder: string) => new URL(`file://${join(folder, "counter.ts")}`).href;

Deno.test("what cannot be inspected is not added, and leaves nothing behind", () =>
  inFolder(async (folder) => {
    const forged = "export const actor = { get name() { throw new Error('\\x1b[2J\\nforged'); } };";
    await Deno.writeTextFile(join(folder, "forged.ts"), forged);
    await Deno.copyFile(COUNTER, join(folder, "counter.ts"));
    const cases: readonly (readonly [readonly string[], number, RegExp])[] = [
      [["add", "x", "./forged.ts"], 1, /^Cannot inspect [^\n]*: \\u001b\[2J\\nforged\n$/],
      [["add", "x", "./nowhere.ts"], 1, /^Cannot fetch [^\n]*Module not found/],
      [["add", "x", "./counter.ts", "--export", "other"], 1, /; it exports actor\n$/],
      [["add", "gpt", "./counter.ts"], 2, /received that of Troupe's own model; --replace/],
      [["add", "../x", "./counter.ts"], 2, /a name must be at most 100 letters/],
      [["add", "x", "counter.ts"], 2, /a specifier must begin with \.\//],
      [["add", "x"], 2, /the number of words after it must be 2, received 1/],
      [["inspect", "conter"], 2, /^Cannot use "conter" as actor/],
      [["remove", "gpt"], 2, /^Cannot remove "gpt"/],
      [["verfy"], 2, /did you mean verify\?\n$/],
      [["list", "--kind", "modle"], 2, /^Cannot use --kind: it must be one of actor, model/],
    ];
    for (const [args, code, sentence] of cases) {
      const outcome = await actors(folder, ...args);
      assert.deepEqual([outcome.code, outcome.stdout], [code, ""], args.join(" "));
      assert.match(outcome.stderr, sentence);
      assert.equal(outcome.stderr.split("\n").length, 2);
    }
    assert.deepEqual(await namesIn(folder), ["counter.ts", "forged.ts"]);
    const { stdout } = await actors(folder, "inspect", "./counter.ts", "--json");
    const { name, protocol, messages, modules } = jsonLines(stdout)[0]!;
    assert.deepEqual([name, protocol, Object.keys(messages as object)], [
      ...["counter", 1],
      ["Add", "Read"],
    ]);
    assert.deepEqual(modules, [fileURL(folder)]);
  }));
