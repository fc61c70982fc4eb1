/** The package as its users have it: in a folder of their own, from a registry or without one. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { inFolder, jsonLines, TINY, trainJson } from "../console/command.ts";
import { ROOT } from "../repository.ts";
import { openRegistry } from "./registry.ts";
import { copyRepository, deno, makeWorkspace } from "./workspace.ts";

/** Nothing listens there. */
const NOWHERE = "http://127.0.0.1:9/";

/** The first block of a language in a section of README. */
async function block(section: string, language: string): Promise<string> {
  const readme = await Deno.readTextFile(join(ROOT, "README.md"));
  const [, text] = readme.split(`\n## ${section}\n`);
  const [, code] = new RegExp(`^\`\`\`${language}\n(.*?)^\`\`\``, "ms").exec(text ?? "") ?? [];
  assert.ok(code, `README must have ${language} under "${section}"`);
  return code;
}

/** A folder of one's own with README's script in it. */
async function ownFolder(parent: string): Promise<string> {
  const own = join(parent, "own");
  await Deno.mkdir(own);
  await Deno.writeTextFile(join(own, "rings.ts"), await block("Your own training script", "ts"));
  return own;
}

/** The script ends and has learnt. */
async function runScript(own: string, env: Readonly<Record<string, string>>): Promise<void> {
  const { stdout } = await deno(own, ["run", "-A", "rings.ts"], env);
  const losses = stdout.trim().split("\n").map((line) => line.split(" ").map(Number));
  assert.deepEqual(losses.map(([step]) => step), [50, 100, 150, 200]);
  assert.ok(losses.at(-1)![1]! < 0.2, stdout);
}

/** Publishes all packages to a registry, and gives a user's folder and environment. */
async function published(
  test: (own: string, env: Readonly<Record<string, string>>) => Promise<void>,
): Promise<void> {
  await inFolder(async (folder) => {
    await using registry = openRegistry(join(folder, "registry"));
    const troupe = await makeWorkspace(folder), JSR_URL = registry.url;
    const upload = ["publish", "--token", "none", "--allow-dirty", "--no-provenance", "--no-check"];
    await deno(troupe, upload, { JSR_URL });
    for (const { name } of Deno.readDirSync(join(folder, "compat"))) {
      await deno(join(folder, "compat", name), upload, { JSR_URL });
    }
    // A cache of its own, but for what comes from npm.
    const { npmCache } = JSON.parse((await deno(ROOT, ["info", "--json"])).stdout);
    const DENO_DIR = join(folder, "cache");
    await Deno.mkdir(DENO_DIR);
    await Deno.symlink(npmCache, join(DENO_DIR, "npm"), { type: "dir" });
    await test(await ownFolder(folder), { JSR_URL, DENO_DIR });
  });
}

Deno.test("the published command trains from any folder, in workers and processes, with the bits of the repository, and replays", async () => {
  const run = [...TINY, "--workers", "2", "--steps", "2", "--text", join(ROOT, "README.md")];
  const { last } = await trainJson(run);
  await published(async (own, env) => {
    const command = ["run", "-A", "jsr:@troupe/troupe/cli"];
    for (const isolation of ["worker", "process"]) {
      const train = [...command, "train", ...run, "--isolation", isolation, "--json"];
      // The files of a dashboard are part of the package, too.
      const { stdout } = await deno(
        own,
        [...train, "--dashboard", "--journal", "run.jsonl"],
        env,
      );
      assert.equal(jsonLines(stdout).at(-1)!.weightsHash, last.weightsHash, isolation);
    }
    const { stdout } = await deno(own, [...command, "replay", "run.jsonl", ...run.slice(-2)], env);
    assert.match(stdout, /\d+ steps as recorded/);
  });
});

Deno.test("README's script runs in a folder of one's own after deno add, and its types are right", async () => {
  await published(async (own, env) => {
    const [add] = (await block("Install", "sh")).split(/\s*(?:#.*)?\n/);
    const [program, ...args] = add!.split(" ");
    assert.deepEqual([program, args[0]], ["deno", "add"]);
    await deno(own, args, env);
    await deno(own, ["check", "rings.ts"], env);
    await runScript(own, env);
  });
});

Deno.test("README's script and the command run in a folder of one's own without JSR", async () => {
  await inFolder(async (folder) => {
    await copyRepository(join(folder, "troupe"));
    const own = await ownFolder(folder), env = { JSR_URL: NOWHERE };
    await Deno.writeTextFile(join(own, "deno.json"), await block("Install", "json"));
    await runScript(own, env);
    const command = ["run", "-A", "jsr:@troupe/troupe/cli", "train", ...TINY, "--steps", "1"];
    await deno(own, [...command, "--text", "rings.ts", "--isolation", "process"], env);
  });
});
