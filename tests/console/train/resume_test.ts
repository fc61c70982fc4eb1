/** `--resume`: a run that was cut in two has the bits of one that was not. */

import assert from "node:assert/strict";
import { basename, join } from "node:path";
import {
  bitsOf,
  inFolder,
  jsonLines,
  refusal,
  runTrain,
  savedIn,
  someTokens,
  TINY,
  trainJson,
  writeTokens,
} from "../command.ts";

const HOW = ["--device", "reference"];

/** The two kinds of data: in order and by heart, or shuffled and again in each epoch. */
const SOURCES: Readonly<Record<string, (folder: string) => Promise<string[]>>> = {
  "tokens": async (folder) => ["--tokens", await writeTokens(folder, someTokens(200))],
  "a text": async (folder) => {
    const path = join(folder, "text.txt");
    await Deno.writeTextFile(path, "In the beginning was the word. ".repeat(8));
    return ["--text", path];
  },
};

for (const [name, source] of Object.entries(SOURCES)) {
  Deno.test(`3 steps on ${name}, resumed to 6, have the bits of 6 steps`, () =>
    inFolder(async (folder) => {
      const data = await source(folder),
        [whole, half, on] = ["whole", "half", "on"]
          .map((run) => join(folder, run)) as [string, string, string];
      const train = [...TINY, ...data, "--warmup", "2", "--lr", "0.01"];
      const [uninterrupted, begun] = await Promise.all([
        trainJson([...train, "--steps", "6", "--out", whole, "--checkpoint-every", "3"]),
        trainJson([...train, "--steps", "3", "--out", half]),
      ]);
      assert.deepEqual(bitsOf(begun.lines).slice(0, 3), bitsOf(uninterrupted.lines).slice(0, 3));

      const expected = bitsOf(uninterrupted.lines, 4), to6 = [...HOW, ...data, "--steps", "6"];
      assert.equal(expected.length, 4);
      const [folderOn, stepOn] = await Promise.all([
        trainJson([...to6, "--resume", half]),
        trainJson([...to6, "--resume", join(whole, "step-00000003"), "--out", on, ...[
          ...[
            "--runtime",
            "local",
            "--workers",
            "3",
            "--schedule",
            "gpipe",
            "--layout",
            "E|.5|.5,H",
          ],
        ]]),
      ]);
      assert.deepEqual(bitsOf(folderOn.lines), expected, "from the folder of the run");
      assert.deepEqual(bitsOf(stepOn.lines), expected, "from one step's folder, elsewhere");
      assert.equal(folderOn.last.checkpoint, join(half, "step-00000006"));
      assert.equal(stepOn.last.checkpoint, join(on, "step-00000006"));
      for (const file of ["model.safetensors", "optimizer.safetensors"]) {
        const [one, other] = await Promise.all(
          [half, whole].map((run) => Deno.readFile(join(run, "step-00000006", file))),
        );
        assert.deepEqual(one, other, file);
      }
    }));
}

Deno.test("a learning rate that falls in a line goes on where it was", () =>
  inFolder(async (folder) => {
    const tokens = await writeTokens(folder, someTokens(200));
    const rate = ["--lr_scheduler_type", "linear", "--min_lr", "1e-4"];
    const train = [...TINY, "--tokens", tokens, ...rate, "--steps", "4"];
    const whole = await trainJson([...train, "--out", folder, "--checkpoint-every", "2"]);
    const resumed = await trainJson([
      ...[...HOW, "--resume", join(folder, "step-00000002"), "--steps", "4", "--tokens", tokens],
      ...["--out", join(folder, "again")],
    ]);
    assert.deepEqual(bitsOf(resumed.lines), bitsOf(whole.lines, 3));
  }));

Deno.test("an empty or missing folder starts at step 1, says so, and takes the checkpoint", () =>
  inFolder(async (folder) => {
    const tokens = await writeTokens(folder, someTokens(100));
    const train = [...TINY, "--tokens", tokens, "--steps", "1", "--json"];
    const [empty, missing] = [join(folder, "empty"), join(folder, "not", "there")];
    await Deno.mkdir(empty);
    for (const path of [empty, missing]) {
      const { code, stdout, stderr } = await runTrain([...train, "--resume", path]);
      assert.equal(code, 0, stderr);
      assert.equal(stderr, `There is no checkpoint in ${path}: starting at step 1.\n`);
      const lines = jsonLines(stdout);
      assert.equal(lines[0]!.step, 1);
      assert.equal(lines.at(-1)!.checkpoint, join(path, "step-00000001"));
    }
  }));

Deno.test("--resume overrides --weights, and says from where it goes on", () =>
  inFolder(async (folder) => {
    const tokens = await writeTokens(folder, someTokens(100));
    await trainJson([...TINY, "--tokens", tokens, "--steps", "1", "--out", folder]);
    const { code, stdout, stderr } = await runTrain([
      ...[...HOW, "--resume", folder, "--steps", "2", "--json", "--tokens", tokens],
      ...["--weights", join(folder, "none.safetensors")],
    ]);
    assert.equal(code, 0, stderr);
    assert.equal(stderr, `Going on from ${join(folder, "step-00000001")}, after step 1.\n`);
    assert.deepEqual(jsonLines(stdout).map(({ step }) => step), [2, undefined]);
  }));

Deno.test("a torn checkpoint is passed over for the newest whole one, and named", () =>
  inFolder(async (folder) => {
    const tokens = await writeTokens(folder, someTokens(100)), out = join(folder, "out");
    const train = [...TINY, "--tokens", tokens, "--out", out, "--checkpoint-every", "1"];
    const whole = await trainJson([...train, "--steps", "3"]);
    const [torn, half] = [join(out, "step-00000003"), `.step-00000004-${crypto.randomUUID()}`];
    await Deno.truncate(join(torn, "optimizer.safetensors"), 1000);
    await Deno.mkdir(join(out, half));
    const { code, stdout, stderr } = await runTrain([
      ...[...HOW, "--resume", out, "--steps", "3", "--keep", "2", "--json", "--tokens", tokens],
    ]);
    assert.equal(code, 0, stderr);
    const told = stderr.trimEnd().split("\n");
    assert.deepEqual(told.map((line) => line.replace(/must have the hash .*;/, "...")), [
      `Cannot read the checkpoint ${
        join(out, half)
      }: it must have been written to its end, received a part; it is passed over`,
      `Cannot read the checkpoint ${torn}: optimizer.safetensors ... it is passed over`,
      `Going on from ${join(out, "step-00000002")}, after step 2.`,
    ]);
    assert.deepEqual(bitsOf(jsonLines(stdout)), bitsOf(whole.lines, 3));
    assert.deepEqual(await savedIn(out), ["step-00000002", "step-00000003"]);
  }));

Deno.test("a run that has all its steps is done at once, with the same weights", () =>
  inFolder(async (folder) => {
    const tokens = await writeTokens(folder, someTokens(100));
    const run = await trainJson([...TINY, "--tokens", tokens, "--steps", "1", "--out", folder]);
    const again = await trainJson([
      ...[...HOW, "--resume", folder, "--steps", "1", "--tokens", tokens],
    ]);
    assert.equal(again.lines.length, 1);
    assert.deepEqual(
      [again.last.steps, again.last.weightsHash, basename(again.last.checkpoint as string)],
      [1, run.last.weightsHash, "step-00000001"],
    );
  }));

Deno.test("a checkpoint of another model, of more steps, or torn, is refused", () =>
  inFolder(async (folder) => {
    const tokens = await writeTokens(folder, someTokens(100)), run = join(folder, "run");
    await trainJson([...TINY, "--tokens", tokens, "--steps", "2", "--out", run]);
    const step = join(run, "step-00000002"), resume = [...HOW, "--resume", run, "--tokens", tokens];
    for (
      const [flag, value, kept] of [
        ["hidden", "32", "16"],
        ["layers", "2", "1"],
        ["model", "mlp", "gpt"],
        ["vocab", "300", "256"],
      ] as const
    ) {
      assert.equal(
        await refusal([...resume, `--${flag}`, value]),
        `Cannot resume from ${step}: --${flag} must be ${kept}, as in this checkpoint, received ${value}`,
      );
    }
    assert.match(
      await refusal([...resume, "--steps", "1"]),
      /--steps must be at least 2,.* received 1$/,
    );
    assert.match(await refusal([...HOW, "--resume", tokens]), /it must be a folder, received /);
    assert.match(
      await refusal([...resume, "--steps", "9"]),
      /needs at least 273 tokens, received 100/,
    );
    await Deno.remove(join(step, "manifest.json"));
    const torn = /manifest.json: a whole checkpoint must have this file, received No such file/;
    assert.match(await refusal(resume), torn);
    assert.match(await refusal([...HOW, "--resume", step]), torn);
  }));

Deno.test("other data takes the place of built-in data, and must then be named again", () =>
  inFolder(async (folder) => {
    const tokens = await writeTokens(folder, someTokens(100));
    await trainJson([...TINY, "--data", "moby-dick", "--steps", "1", "--out", folder]);
    await trainJson([...HOW, "--resume", folder, "--steps", "2"]);
    await trainJson([...HOW, "--resume", folder, "--steps", "3", "--tokens", tokens]);
    const path = join(folder, "step-00000003", "config.json");
    const { flags, files } = JSON.parse(await Deno.readTextFile(path));
    assert.deepEqual([flags.text, flags.tokens, Object.keys(files)], [
      undefined,
      undefined,
      ["tokens"],
    ]);
    assert.match(await refusal([...HOW, "--resume", folder, "--steps", "4"]), /--tokens must name/);
  }));
