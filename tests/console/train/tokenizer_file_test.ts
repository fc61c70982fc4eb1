/** `--tokenizer FILE`: a tokenizer.json of one's own, which a run keeps beside its checkpoints. */

import assert from "node:assert/strict";
import { basename, dirname, join } from "node:path";
import { exportCommand, generateCommand } from "../../../console/mod.ts";
import { forgeConfig } from "../forged.ts";
import {
  bitsOf,
  inFolder,
  refusal,
  runGenerate,
  runTrain,
  runTroupe,
  TINY,
  trainJson,
} from "../command.ts";

/** A tokenizer of five letters, two merges and a special token. */
const TOKENIZER = {
  ...{ version: "1.0", normalizer: { type: "Lowercase" }, pre_tokenizer: null },
  ...{ post_processor: null, decoder: { type: "Fuse" } },
  added_tokens: [{ id: 7, content: "<|endoftext|>", special: true }],
  model: {
    type: "BPE",
    vocab: { a: 0, b: 1, c: 2, d: 3, " ": 4, ab: 5, abc: 6 },
    merges: ["a b", "ab c"],
  },
};

const TEXT = "abc abd <|endoftext|>Abc dab ".repeat(40);

/** Writes the tokenizer and a text, and gives the flags that name them. */
async function writeFiles(folder: string) {
  const tokenizer = join(folder, "tokenizer.json"), text = join(folder, "text.txt");
  await Deno.writeTextFile(tokenizer, JSON.stringify(TOKENIZER));
  await Deno.writeTextFile(text, TEXT);
  return { tokenizer, text, flags: ["--text", text, "--tokenizer", tokenizer] };
}

Deno.test("a run on a tokenizer.json goes on, generates and is exported without it being named again", () =>
  inFolder(async (folder) => {
    const { tokenizer, text, flags } = await writeFiles(folder);
    const run = join(folder, "run"), whole = await trainJson([...TINY, ...flags, "--steps", "4"]);
    await trainJson([...TINY, ...flags, "--steps", "2", "--out", run]);
    await Deno.remove(tokenizer);
    const step = join(run, "step-00000002");
    const config = JSON.parse(await Deno.readTextFile(join(step, "config.json")));
    assert.deepEqual([config.tokenizer, config.vocab], ["tokenizer.json", 8]);
    assert.equal(config.flags.tokenizer, undefined, "no path is among the flags");
    assert.match(config.files.tokenizer.sha256, /^[0-9a-f]{64}$/);

    const more = await trainJson([
      "--resume",
      run,
      "--text",
      text,
      "--steps",
      "4",
      "--device",
      "reference",
    ]);
    assert.deepEqual(bitsOf(more.lines), bitsOf(whole.lines, 3));

    const from = ["--tokens", "9", "--device", "reference", "--prompt", "ABC<|endoftext|>"];
    for (const path of [run, step]) {
      const { code, stdout, stderr } = await runGenerate(["--from", path, ...from]);
      assert.deepEqual([code, stderr], [0, ""]);
      assert.match(stdout, /^abc<\|endoftext\|>([a-d ]|<\|endoftext\|>)+\n$/);
    }
    const out = join(folder, "out"), context = { begin: () => {} };
    await exportCommand([run, "--format", "hf", "--out", out], context);
    assert.deepEqual(JSON.parse(await Deno.readTextFile(join(out, "tokenizer.json"))), TOKENIZER);
    const { bos_token_id: bos, eos_token_id: eos } = JSON.parse(
      await Deno.readTextFile(join(out, "config.json")),
    );
    assert.deepEqual([bos, eos], [7, 7]);

    // The folder's own tokenizer is taken for a text, and its sizes.
    const tuned = join(folder, "tuned"), tune = ["--micro-batch", "2", "--device", "reference"];
    const { code, stdout, stderr } = await runTrain([
      ...["--weights", out, "--text", text, ...tune, "--steps", "1", "--out", tuned],
    ]);
    assert.equal(code, 0, stderr);
    assert.match(stdout, /\n\nA sample:\n/);
    const { files } = JSON.parse(
      await Deno.readTextFile(join(tuned, "step-00000001", "config.json")),
    );
    assert.equal(files.tokenizer.sha256, config.files.tokenizer.sha256);
    await Deno.remove(join(out, "tokenizer.json"));
    assert.match(
      await refusal(["--weights", out, "--text", text, ...tune]),
      /^Cannot use the tokens of a text with --weights: --tokenizer must say what made those of/,
    );
  }));

Deno.test("another tokenizer than the run's, and none, are refused in one sentence; no file opens one", () =>
  inFolder(async (folder) => {
    const { tokenizer, text, flags } = await writeFiles(folder), run = join(folder, "run");
    await trainJson([...TINY, ...flags, "--steps", "1", "--out", run]);
    const step = join(run, "step-00000001"), kept = join(run, "tokenizer.json");
    const resume = ["--resume", run, "--text", text, "--steps", "2"];
    const other = join(folder, "other.json");
    await Deno.writeTextFile(other, JSON.stringify({ ...TOKENIZER, padding: null }));
    const differs = /must be the tokenizer of the run, with SHA-256 \w+, received one with \w+$/;
    assert.match(await refusal([...resume, "--tokenizer", other]), differs);
    assert.match(
      await refusal([...resume, "--tokenizer", "gpt2"]),
      /--tokenizer must be tokenizer.json, as in this checkpoint, received gpt2$/,
    );
    assert.match(
      await refusal(["--config", join(step, "config.json"), "--text", text]),
      /--tokenizer must name the tokenizer.json of its run, as no file opens another/,
    );
    for (const name of ["none.json", folder + "x", "bites"]) {
      assert.match(
        await refusal([...TINY, "--text", text, "--tokenizer", name]),
        /must be bytes, gpt2, or a tokenizer.json that can be read, received .* \(no such file\)/,
      );
    }
    assert.match(
      await refusal([...TINY, "--text", text, "--tokenizer", text]),
      /text.txt: it must be a tokenizer.json of Hugging Face's tokenizers, received Unexpected token/,
    );
    await Deno.copyFile(other, kept);
    assert.match(await refusal(resume), differs);
    const generate = generateCommand(["--from", step], { begin: () => {} });
    await assert.rejects(generate, { message: differs });
    await Deno.remove(kept);
    assert.match(
      await refusal(resume),
      /must be .* a tokenizer.json that can be read, .*names it$/,
    );
    // Named, it is taken from anywhere.
    const { last } = await trainJson([
      ...resume,
      "--tokenizer",
      tokenizer,
      "--device",
      "reference",
    ]);
    assert.equal(last.done, true);
    await refuseForged(basename(step), dirname(step), text);
  }));

/** A checkpoint may be a stranger's: its words name no tokenizer. */
async function refuseForged(step: string, run: string, text: string): Promise<void> {
  const path = join(run, step), secret = "/etc/hostname";
  await forgeConfig(path, (config) => (config.flags as Record<string, unknown>).tokenizer = secret);
  assert.match(
    await refusal(["--resume", path, "--text", text]),
    /--tokenizer of .*: it must be one of bytes, gpt2, received "\/etc\/hostname"$/,
  );
  await forgeConfig(path, (config) => {
    delete (config.flags as Record<string, unknown>).tokenizer;
    (config.files as Record<string, unknown>).tokenizer = { path: secret, sha256: "../x" };
  });
  assert.match(
    await refusal(["--resume", path, "--text", text]),
    /its tokenizer must have a SHA-256, received/,
  );
}

Deno.test("a journal of such a run is replayed with the tokenizer named", () =>
  inFolder(async (folder) => {
    const { tokenizer, text, flags } = await writeFiles(folder), journal = join(folder, "j.jsonl");
    await trainJson([...TINY, ...flags, "--steps", "1", "--journal", journal]);
    const unnamed = await runTroupe(["replay", journal, "--text", text]);
    assert.equal(unnamed.code, 2);
    assert.match(unnamed.stderr, /--tokenizer must name the file that the run read/);
    const replayed = await runTroupe(["replay", journal, "--text", text, "--tokenizer", tokenizer]);
    assert.equal(replayed.code, 0, replayed.stderr);
  }));
