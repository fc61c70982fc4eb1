/** Runs the examples: short scripts and a package. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { folderTest, inFolder, jsonLines, type Outcome, ROOT } from "../console/command.ts";
import { deno, runCommands, serveFolder, trustingEnvironment } from "../package/packages.ts";

/** The arguments and the output of each example. */
const RUNS: Readonly<Record<string, readonly [args: string, printed: RegExp]>> = {
  "train_gpt.ts": ["2 native", /^The [^]{100,}/],
  "train_mnist.ts": [
    "40 native",
    /^20 [\d.]+\n40 [\d.]+\n[89]\d\.\d % of the held-out digits are recognised\n$/,
  ],
  "own_layer.ts": ["20 native", /^0 embedding, block 0, .*\n1 .*, classifier\n20 0\.[0-3]\d+\n$/],
  "vision_transformer.ts": ["20 native", /^0 patches, blocks.0\n1 .*, head\n20 2\.[01]\d+\n$/],
  "multimodal.ts": [
    "20 native",
    /^0 patches, encoder.0, .*\n1 .*projector, .*, head\n20 1\.\d+\n$/,
  ],
  "attention_residuals.ts": ["8 native", /^1 (0\.5\d+ \w{64})\n2 \1\n4 \1\n$/],
  "custom_schedule.ts": [
    "",
    /^eager-1f1b: time 36, [^]*\n1f1b: time 41, [^]*\ndrawn in \S+\.svg\n$/,
  ],
};

/** The most lines of each. */
const LINES_MAX: Readonly<Record<string, number>> = {
  "train_gpt.ts": 50,
  "multimodal.ts": 100,
  "attention_residuals.ts": 60,
};

const scripts = () =>
  [...Deno.readDirSync(join(ROOT, "examples"))].map(({ name }) => name)
    .filter((name) => name.endsWith(".ts")).sort();

const PACKAGE = join(ROOT, "examples", "registry_actor");

for (const [name, [args, printed]] of Object.entries(RUNS)) {
  Deno.test(`the example ${name} runs`, () =>
    inFolder(async (TMPDIR) => {
      const run = `run -A examples/${name} ${args}`.trimEnd().split(" ");
      assert.match((await deno(ROOT, run, { TMPDIR })).stdout, printed);
    }));
}

Deno.test("examples are short, are run here or as tests, and import the package alone", async () => {
  assert.deepEqual(scripts(), [...Object.keys(RUNS), "replay_test.ts"].sort());
  for (const name of scripts()) {
    const text = await Deno.readTextFile(join(ROOT, "examples", name));
    const lines = text.split("\n").length - 1, limit = LINES_MAX[name] ?? 120;
    assert.ok(lines <= limit, `${name} has ${lines} lines, at most ${limit} are allowed`);
    for (const [, from] of text.matchAll(/\bfrom "([^"]+)"/g)) {
      assert.match(from!, /^(@troupe\/troupe(\/\w+)?|node:[\w/]+)$/, name);
    }
  }
});

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

/** The output of a run of the script of the package. */
function said({ stdout }: Outcome) {
  const [, hash] = /: (sha256-\S{44})$/m.exec(stdout) ?? [];
  const [, weights] = /^weights (\w{64})$/m.exec(stdout) ?? [];
  const [, percent] = /^([\d.]+) % recognised$/m.exec(stdout) ?? [];
  const loads = [...stdout.matchAll(/^\d: \d+\/\d+ right, experts (.*)$/gm)].map(([, load]) =>
    load!
  );
  return { hash, weights, percent: Number(percent), loads };
}

folderTest("a package trains from a file as from https, each with its hash", async (folder) => {
  await using server = serveFolder(PACKAGE);
  const env = await trustingEnvironment(folder), script = join(PACKAGE, "train.ts");
  const run = async (module: string) =>
    said(await deno(ROOT, ["run", "-A", "--no-lock", script, module, "60", "native"], env));
  const file = await run(pathToFileURL(join(PACKAGE, "mod.ts")).href);
  const https = await run(`${server.url}mod.ts`);
  assert.ok(server.asked.includes("/mod.ts"));
  assert.ok(file.hash && https.hash && file.hash !== https.hash, "a hash names the modules' URLs");
  assert.ok(file.weights);
  assert.deepEqual([https.weights, https.loads], [file.weights, file.loads]);
  assert.ok(file.percent > 75, `${file.percent} % after 60 steps`);
  assert.equal(file.loads.length, 10);
  for (const load of file.loads) {
    const sum = load.split(/[ %]+/).reduce((sum, share) => sum + Number(share), 0);
    assert.ok(Math.abs(sum - 100) <= 2, `${load}: each digit goes to one expert`);
  }
});

folderTest("a model of https trains with its hash, and must be named on resume", async (folder) => {
  await using server = serveFolder(PACKAGE);
  const out = join(folder, "out"), module = `${server.url}mod.ts`;
  const other = pathToFileURL(join(PACKAGE, "mod.ts")).href;
  const resume = `train --resume ${out} --steps 3 --device native --json`;
  const how = "--hidden 16 --micro-batch-size 4 --device native --json";
  const [begun, unnamed, refused, on] = await runCommands(ROOT, [
    `train --model ${module} ${how} --steps 2 --out ${out}`,
    resume,
    `${resume} --model ${other}`,
    `${resume} --model ${module}`,
  ], await trustingEnvironment(folder)) as [Outcome, Outcome, Outcome, Outcome];
  assert.equal(begun.code, 0, begun.stderr);
  const [, hash] = /^model \S+: \S+ with hash (sha256-\S{44})$/m.exec(begun.stderr) ?? [];
  const kept = { model: { name: module, from: module, integrity: hash } };
  assert.ok(hash);
  assert.deepEqual(jsonLines(begun.stdout).at(-1)!.parts, kept);
  const config = JSON.parse(Deno.readTextFileSync(join(out, "step-00000002", "config.json")));
  assert.deepEqual([config.parts, config.flags.model], [kept, undefined]);
  assert.deepEqual([unnamed.code, refused.code], [2, 2]);
  const must = "--model must name the module that its run used";
  assert.match(unnamed.stderr, new RegExp(`^Cannot resume from .*: ${must}`));
  assert.ok(unnamed.stderr.endsWith(`--json --model ${module}\n`), unnamed.stderr);
  const wrong = /must name the module that its run used, https:.*, received "file:/;
  assert.match(refused.stderr, wrong);
  assert.equal(on.code, 0, on.stderr);
  assert.equal(jsonLines(on.stdout)[0]!.step, 3);
});
