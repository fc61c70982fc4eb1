/** A package of somebody's, from a file and from a server: its model trains, its actor watches. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { serveFolder, trustingEnvironment } from "../package/served.ts";
import { deno } from "../package/workspace.ts";
import { ENVIRONMENT, inFolder, jsonLines, type Outcome, ROOT } from "../console/command.ts";

const PACKAGE = join(ROOT, "examples", "registry_actor");

/** The lock file of this repository is none of theirs. */
const RUN = ["run", "-A", "--no-lock"];

/** What a run of the example's script says. */
function said({ stdout }: Outcome) {
  const [, hash] = /: (sha256-\S{44})$/m.exec(stdout) ?? [];
  const [, weights] = /^weights (\w{64})$/m.exec(stdout) ?? [];
  const [, percent] = /^([\d.]+) % recognised$/m.exec(stdout) ?? [];
  const loads = [...stdout.matchAll(/^\d: \d+\/\d+ right, experts (.*)$/gm)].map(([, load]) =>
    load
  );
  return { hash, weights, percent: Number(percent), loads };
}

Deno.test("a package trains and watches from a file as from https: the same weights, each with its hash", async () => {
  await using server = serveFolder(PACKAGE);
  const modules = [pathToFileURL(join(PACKAGE, "mod.ts")).href, `${server.url}/mod.ts`];
  const [file, https] = await inFolder(async (folder) => {
    const env = await trustingEnvironment(folder), script = join(PACKAGE, "train.ts");
    const run = (module: string) => deno(ROOT, [...RUN, script, module, "60", "native"], env);
    return (await Promise.all(modules.map(run))).map(said);
  }) as [ReturnType<typeof said>, ReturnType<typeof said>];
  assert.ok(server.asked.includes("/mod.ts"));
  assert.ok(file.hash && https.hash && file.hash !== https.hash, "a hash names the modules' URLs");
  assert.equal(https.weights, file.weights);
  assert.ok(file.weights);
  assert.ok(file.percent > 75, `${file.percent} % after 60 steps`);
  assert.equal(file.loads.length, 10);
  assert.deepEqual(https.loads, file.loads);
  for (const load of file.loads) {
    const sum = load!.split(/[ %]+/).reduce((sum, share) => sum + Number(share), 0);
    assert.ok(Math.abs(sum - 100) <= 2, `${load}: each digit goes to one expert`);
  }
});

Deno.test("the command trains a model of https, tells its hash, and a checkpoint wants it named again", async () => {
  await inFolder(async (folder) => {
    const out = join(folder, "out");
    await using server = serveFolder(PACKAGE);
    const module = `${server.url}/mod.ts`, env = await trustingEnvironment(folder);
    const how = ["--hidden", "16", "--micro-batch", "4", "--device", "native", "--json"];
    const train = (args: readonly string[]) => runHere(["train", ...args], env);
    const begun = await train(["--model", module, ...how, "--steps", "2", "--out", out]);
    assert.equal(begun.code, 0, begun.stderr);
    const [, hash] = /^model \S+: \S+ with hash (sha256-\S{44})$/m.exec(begun.stderr) ?? [];
    const kept = { model: { name: module, from: module, integrity: hash } };
    assert.ok(hash);
    assert.deepEqual(jsonLines(begun.stdout).at(-1)!.parts, kept);
    const config = JSON.parse(Deno.readTextFileSync(join(out, "step-00000002", "config.json")));
    assert.deepEqual([config.parts, config.flags.model], [kept, undefined]);

    const resume = ["--resume", out, "--steps", "3", "--device", "native", "--json"];
    const unnamed = await train(resume);
    assert.equal(unnamed.code, 2);
    assert.match(
      unnamed.stderr,
      /^Cannot resume from .*: --model must name the module that its run/,
    );
    assert.ok(unnamed.stderr.endsWith(`--json --model ${module}\n`), unnamed.stderr);
    const other = pathToFileURL(join(PACKAGE, "mod.ts")).href;
    const refused = await train([...resume, "--model", other]);
    assert.equal(refused.code, 2);
    assert.match(
      refused.stderr,
      /must name the module that its run used, https:.*, received "file:/,
    );
    const on = await train([...resume, "--model", module]);
    assert.equal(on.code, 0, on.stderr);
    assert.equal(jsonLines(on.stdout)[0]!.step, 3);
  });
});

/** Runs the command. */
async function runHere(args: readonly string[], env: Record<string, string>): Promise<Outcome> {
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: [...RUN, "cli.ts", ...args],
    cwd: ROOT,
    env: { ...ENVIRONMENT, ...env },
    stdin: "null",
  }).output();
  const decoder = new TextDecoder();
  return { code, stdout: decoder.decode(stdout), stderr: decoder.decode(stderr) };
}

Deno.test("the package loads nothing of Troupe: it imports types alone, and its script the package by name", async () => {
  for (const [file, kinds] of [["mod.ts", /^import type /], ["train.ts", /^import /]] as const) {
    const text = await Deno.readTextFile(join(PACKAGE, file));
    const imports = text.match(/^import .*$/gm) ?? [];
    assert.ok(imports.length > 0);
    for (const line of imports) {
      assert.match(line, kinds, file);
      assert.match(line, / from "(@troupe\/troupe(\/actors)?|\.\/mod\.ts)";$/, file);
    }
  }
});
