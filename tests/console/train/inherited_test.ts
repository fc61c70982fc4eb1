/** What a checkpoint, which may be a stranger's, can make of the run that goes on from it. */

import assert from "node:assert/strict";
import { basename, join } from "node:path";
import { readTrainFlags } from "../../../console/train/train_request.ts";
import {
  bitsOf,
  inFolder,
  refusal,
  runGenerate,
  runTrain,
  someTokens,
  TINY,
  TINY_MODEL,
  trainJson,
  writeTokens,
} from "../command.ts";
import { type Config, copyFolder, forgeConfig, forgeTensors } from "../forged.ts";

const HOW = ["--device", "reference", "--runtime", "serial"];

/** A run of two steps, and how to go on from a copy of its checkpoint that was changed. */
async function withRun(
  test: (run: {
    readonly folder: string;
    readonly tokens: string;
    readonly step: string;
    /** Copies the checkpoint, changes the copy, and gives the arguments that resume from it. */
    resume(change: (step: string) => Promise<void>): Promise<string[]>;
  }) => Promise<void>,
): Promise<void> {
  await inFolder(async (folder) => {
    const tokens = await writeTokens(folder, someTokens(200)), out = join(folder, "run");
    await trainJson([...TINY, ...HOW, "--tokens", tokens, "--steps", "2", "--out", out]);
    const step = join(out, "step-00000002");
    let copies = 0;
    const resume = async (change: (step: string) => Promise<void>) => {
      const copy = await copyFolder(step, join(folder, `copy-${copies++}`, basename(step)));
      await change(copy);
      return [...HOW, "--resume", copy, "--steps", "3", "--tokens", tokens];
    };
    await test({ folder, tokens, step, resume });
  });
}

Deno.test("flags of how a run runs, and paths, are not inherited: nothing is opened or written", () =>
  withRun(async ({ folder, resume }) => {
    const victim = join(folder, "victim"), elsewhere = join(folder, "elsewhere");
    await Deno.writeTextFile(victim, "mine");
    const honest = await trainJson(await resume(() => Promise.resolve()));
    const args = await resume((step) =>
      forgeConfig(step, ({ flags }) =>
        Object.assign(flags, {
          ...{ journal: victim, out: elsewhere, weights: victim, resume: elsewhere, keep: 1 },
          ...{ "schedule": "nonesuch", "steps": 1, "memory-limit": 1, "journal-messages": true },
        }))
    );
    const { code, stdout, stderr } = await runTrain([...args, "--json"]);
    assert.equal(code, 0, stderr);
    const lines = stdout.trimEnd().split("\n").map((line) => JSON.parse(line));
    assert.deepEqual(bitsOf(lines), bitsOf(honest.lines));
    assert.match(stderr, /passed over: journal, out, weights, resume, keep$/m);
    assert.equal(await Deno.readTextFile(victim), "mine");
    await assert.rejects(Deno.stat(elsewhere), Deno.errors.NotFound);
  }));

Deno.test("dropout is inherited, by any of its names, and none is unless it was asked for", () =>
  withRun(async ({ folder, tokens, step }) => {
    const config = JSON.parse(await Deno.readTextFile(join(step, "config.json")));
    assert.equal(config.flags.dropout, undefined);
    const out = join(folder, "dropping"), run = [...TINY, ...HOW, "--tokens", tokens];
    const dropping = [...run, "--resid_pdrop", "0.5"];
    const { lines: whole } = await trainJson([...dropping, "--steps", "3"]);
    await trainJson([...dropping, "--steps", "2", "--out", out]);
    const goOn = ["--resume", out, "--tokens", tokens, "--steps", "3"];
    const { lines: resumed } = await trainJson([...HOW, ...goOn]);
    assert.deepEqual(bitsOf(resumed).at(-1), bitsOf(whole).at(-1));
    assert.notDeepEqual(bitsOf((await trainJson([...run, "--steps", "3"])).lines), bitsOf(whole));
  }));

Deno.test("a switch that is taken back is not inherited; one of the model cannot be", () =>
  withRun(async ({ folder, resume }) => {
    const args = await resume((step) =>
      forgeConfig(step, ({ flags }) => Object.assign(flags, { "drop-last": true, tie: true }))
    );
    const config = join(folder, "back.toml");
    await Deno.writeTextFile(config, "drop-last = false\n");
    const dropsLast = async (...more: string[]) =>
      (await readTrainFlags([...args, ...more])).flags["drop-last"];
    assert.equal(await dropsLast(), true);
    assert.equal(await dropsLast("--no-drop-last"), undefined);
    assert.equal(await dropsLast("--config", config), undefined);
    assert.equal(await dropsLast("--config", config, "--drop-last"), true);
    assert.match(
      await refusal([...args, "--no-tie"]),
      /--tie must be true, as in this checkpoint, received false$/,
    );
  }));

/** Values of inherited flags that nobody could have typed, and what the refusal says. */
const VALUES: readonly [string, unknown, RegExp][] = [
  ["lr", -5, /--lr of .*: it must be a number from 0, received "-5"$/],
  ["lr", null, /--lr of .*: it must be text or a number, received "null"$/],
  ["replicas", 2 ** 31, /--replicas of .*: it must be at most 256, received "2147483648"$/],
  ["hidden", 2 ** 32, /--hidden of .*: it must be at most 65536, received "4294967296"$/],
  ["vocab", 1e15, /--vocab of .*: it must be at most 16777216, received "1000000000000000"$/],
  ["vocab", 1e300, /--vocab of .*: it must be a whole number from 1, received "1e\+300"$/],
  ["micro-batch", [8], /--micro-batch of .*: it must be text or a number, received "\[8\]"$/],
  ["micro-batches", 1.5, /--micro-batches of .*: it must be a whole number from 1/],
  ["tie", "yes", /--tie of .*: it must be true or false, received "yes"$/],
  ["clip", "a\u001b[2J\nb", /--clip of .*: it must be .*, received "a\\u001b\[2J\\nb"$/],
  ["precision", "fp8", /--precision of .*: it must be one of fp32, fp16, received "fp8"$/],
  [
    "data",
    "../../etc",
    /--data of .*: it must be one of mnist, moby-dick, .*sotu, received "..\/..\/etc"$/,
  ],
  [
    "model",
    "https://localhost/mod.ts",
