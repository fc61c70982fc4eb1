/** The package as users install it: in another folder, with or without a registry. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { folderTest, inFolder, jsonLines, TINY, trainHere, words } from "../console/command.ts";
import { IS_DEEP } from "../depth.ts";
import { filesBelow, ROOT } from "../repository.ts";
import {
  block,
  deno,
  type Environment,
  flowersCsv,
  freshCache,
  makeWorkspace,
  openJsr,
  writeFiles,
} from "./packages.ts";

/** Nothing listens there. */
const NOWHERE = "http://127.0.0.1:9/";

const NAMES_MAX = 60;

/** The source with its documentation has 4.3 MiB; a library, a data set or a model does not fit in. */
const BYTES_MAX = 5 << 20;

/** Makes a folder with README's script in it, and a text. */
async function ownFolder(parent: string): Promise<string> {
  const own = join(parent, "own");
  const script = await block("README.md", "ts");
  assert.ok(script.trimEnd().split("\n").length <= 40, "README's script has at most 40 lines");
  await writeFiles(own, { "flowers.ts": script, "flowers.csv": flowersCsv() });
  return own;
}

/** Runs the script, which ends and has learnt. */
async function runScript(own: string, env: Environment): Promise<void> {
  const { stdout } = await deno(own, ["run", "-A", "flowers.ts"], env);
  const held = [...stdout.matchAll(/^after step \d+: held-out loss .* accuracy (\S+)$/gm)];
  assert.equal(held.length, 6, stdout);
  assert.ok(Number(held.at(-1)![1]) > 0.9, stdout);
  assert.match(stdout, /\nsetosa\n$/);
}

/** The script has made a run, which it continues and the command knows. */
async function runScriptAgain(own: string, env: Environment): Promise<void> {
  const again = await deno(own, ["run", "-A", "flowers.ts"], env);
  assert.match(again.stdout, /^all \d+ steps were taken before: nothing was trained\nsetosa\n$/m);
  const plot = await deno(own, [...COMMAND, "plot", "flowers", "--metric", "accuracy"], env);
  assert.match(plot.stdout, /^accuracy\n/);
}

const COMMAND = ["run", "-A", "jsr:@troupe/troupe/cli"];
const TRAIN = [...TINY, "--workers", "2", "--steps", "2", "--text", join(ROOT, "README.md")];

/** Trains with the published command, in workers and processes, with a dashboard and a journal. */
async function trainPublished(own: string, env: Environment): Promise<void> {
  const { last } = await trainHere(TRAIN);
  for (const isolation of ["worker", "process"]) {
    const train = [...COMMAND, "train", ...TRAIN, "--isolation", isolation, "--json"];
    // The files of a dashboard are part of the package, too.
    const { stdout } = await deno(own, [...train, "--dashboard", "--journal", "run.jsonl"], env);
    assert.equal(jsonLines(stdout).at(-1)!.weightsHash, last.weightsHash, isolation);
  }
  const { stdout } = await deno(own, [...COMMAND, "replay", "run.jsonl", ...TRAIN.slice(-2)], env);
  assert.match(stdout, /\d+ steps as recorded/);
}

/** Checks that a package has exactly the files that users need. */
async function checkFiles(published: string): Promise<void> {
  const files = filesBelow(published);
  const top = new Set(files.map((path) => path.replace(/\/.*/, "/")));
  assert.deepEqual([...top].sort(), [
    ...["ACTORS.md", "CHANGELOG.md", "LICENSE", "NOTICE.md", "README.md", "SIMULATION.md"],
    ...["actors/", "cli.ts", "console/", "deno.json", "docs/", "examples/", "kernels/", "lint/"],
    ...["mod.ts", "predict.ts", "schedules/", "testing.ts"],
  ]);
  let bytes = 0;
  for (const path of files) bytes += (await Deno.stat(join(published, path))).size;
  assert.ok(bytes < BYTES_MAX, `${files.length} files have ${bytes} bytes`);
}

Deno.test("the published package", (t) =>
  inFolder(async (folder) => {
    await using registry = openJsr(join(folder, "registry"));
    const troupe = await makeWorkspace(folder), JSR_URL = registry.url;
    const upload = words`publish --token none --allow-dirty --no-provenance --no-check`;
    const { stderr } = await deno(troupe, upload, { JSR_URL });
    for (const { name } of Deno.readDirSync(join(folder, "compat"))) {
      await deno(join(folder, "compat", name), upload, { JSR_URL });
    }
    const env = { JSR_URL, DENO_DIR: await freshCache(folder) }, own = await ownFolder(folder);
    await t.step("has no slow types, and only the files that its users need", async () => {
      assert.match(stderr, /Checking for slow types in the public API/);
      const [version] = Deno.readDirSync(join(folder, "registry/@troupe/troupe"));
      await checkFiles(join(folder, "registry/@troupe/troupe", version!.name));
    });
    await t.step("trains from any folder with the bits of the repository, and replays", () =>
      trainPublished(own, env));
    await t.step("runs the script of README after deno add, whose types are right", async () => {
      const [add] = (await block("docs/install.md", "sh")).split(/\s*(?:#.*)?\n/);
      const [program, ...args] = add!.split(" ");
      assert.deepEqual([program, args[0]], ["deno", "add"]);
      await deno(own, args, env);
      if (IS_DEEP) {
        await deno(own, ["check", "flowers.ts"], env);
      }
      await runScript(own, env);
      await runScriptAgain(own, env);
    });
  }));

folderTest("README's script and the command run beside the repository", async (folder) => {
  await Deno.symlink(ROOT, join(folder, "troupe"), { type: "dir" });
  const own = await ownFolder(folder), env = { JSR_URL: NOWHERE };
  await writeFiles(own, { "deno.json": await block("README.md", "json") });
  await runScript(own, env);
  const train = words`train ${TINY} --steps 1 --text flowers.ts --isolation process`;
  await deno(own, [...COMMAND, ...train], env);
});

Deno.test(`the root exports at most ${NAMES_MAX} names, types included`, async () => {
  const { stdout } = await deno(ROOT, ["doc", "--json", "mod.ts"]);
  const [root] = Object.values<{ symbols: { name: string }[] }>(JSON.parse(stdout).nodes);
  const names = root!.symbols.map(({ name }) => name);
  assert.ok(names.includes("train"));
  assert.ok(names.length <= NAMES_MAX, `${names.length}: ${names.join(", ")}`);
});

Deno.test("everything that the entries export is documented, with types and examples of them only", async () => {
  const { exports } = JSON.parse(await Deno.readTextFile(`${ROOT}/deno.json`));
  const entries = Object.values<string>(exports);
  await deno(ROOT, ["doc", "--lint", ...entries]);
  const { stdout } = await deno(ROOT, ["doc", ...entries]);
  assert.deepEqual(stdout.match(/import .* from "\.\.?\/.*/g), null);
  const exported = new Set(
    Array.from(
      stdout.matchAll(/^(?:async )?(?:function\*?|class|interface|type|const) (\w+)/gm),
      ([, name]) => name!,
    ),
  );
  const links = Array.from(stdout.matchAll(/\{@linkcode (\w+)/g), ([, name]) => name!);
  assert.deepEqual(links.filter((name) => !exported.has(name) && !(name in globalThis)), []);
});
