/** `deno task generate`: text from a checkpoint. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { train } from "../../../actors/mod.ts";
import { generateCommand } from "../../../console/mod.ts";
import {
  compileModel,
  generate,
  gpt2,
  initialValues,
  mlp,
  openReference,
} from "../../../kernels/mod.ts";
import { forgeConfig } from "../forged.ts";
import { Running } from "../running.ts";
import {
  inFolder,
  ROOT,
  runGenerate,
  runTrain,
  someTokens,
  TINY,
  trainJson,
  writeTokens,
} from "../command.ts";

Deno.test("a text goes on from its prompt: the likeliest tokens, or drawn with a seed", () =>
  inFolder(async (folder) => {
    const text = join(folder, "text.txt"), run = join(folder, "run");
    await Deno.writeTextFile(text, "abc".repeat(70));
    await trainJson([...TINY, "--text", text, "--steps", "30", "--lr", "0.03", "--out", run]);
    const generate = async (...args: string[]) => {
      const from = ["--from", run, "--tokens", "16", "--prompt", "abc", "--device", "reference"];
      const { code, stdout, stderr } = await runGenerate([...from, ...args]);
      assert.equal(code, 0, stderr);
      return stdout;
    };
    const [greedy, otherSeed, drawn, again, other, likeliest, narrow, all] = await Promise.all([
      generate("--temperature", "0"),
      generate("--temperature", "0", "--seed", "2"),
      generate("--temperature", "5"),
      generate("--temperature", "5", "--seed", "1"),
      generate("--temperature", "5", "--seed", "2"),
      generate("--temperature", "5", "--top-k", "1"),
      generate("--temperature", "5", "--top-p", "0"),
      generate("--temperature", "5", "--top-k", "1000", "--top-p", "1"),
    ]);
    assert.equal(greedy, "abcabcabcabcabcabca\n");
    assert.equal(otherSeed, greedy, "at temperature 0 nothing is drawn");
    assert.match(drawn, /^abc[^]*\n$/);
    assert.equal(again, drawn);
    assert.notEqual(other, drawn);
    assert.deepEqual([likeliest, narrow], [greedy, greedy]);
    assert.equal(all, drawn, "what leaves every token changes nothing");
  }));

Deno.test("text comes token by token: Ctrl-C ends it with its line, and so does a reader that leaves", () =>
  inFolder(async (folder) => {
    const tokens = await writeTokens(folder, someTokens(100, 256)), run = join(folder, "run");
    await trainJson([
      ...TINY,
      "--tokens",
      tokens,
      "--tokenizer",
      "bytes",
      "--steps",
      "1",
      "--out",
      run,
    ]);
    const endless = [
      "--from",
      run,
      "--prompt",
      "a",
      "--tokens",
      "1000000",
      "--device",
      "reference",
    ];
    const interrupted = new Running(["run", "-A", "cli.ts", "generate", ...endless]);
    await interrupted.printed("stdout", /^a[^]+/);
    interrupted.interrupt("process");
    const { code, stdout, stderr } = await interrupted.end();
    assert.deepEqual([code, stderr], [130, ""]);
    assert.match(stdout, /^a[^]*\n$/);
    const left = new Deno.Command("sh", {
      args: [
        "-c",
        '"$@" | head -c 10',
        "sh",
        Deno.execPath(),
        "run",
        "-A",
        "cli.ts",
        "generate",
        ...endless,
      ],
      cwd: ROOT,
    });
    const { stdout: ten, stderr: complaints } = await left.output();
    assert.deepEqual([ten.length, new TextDecoder().decode(complaints)], [10, ""]);
  }));

Deno.test("token ids that no tokenizer made are never shown as text, and go on as ids", () =>
  inFolder(async (folder) => {
    const tokens = await writeTokens(folder, someTokens(200, 300)), run = join(folder, "run");
    const model = [...TINY, "--tokens", tokens, "--vocab", "300", "--steps", "1", "--out", run];
    const trained = await runTrain(model);
    assert.equal(trained.code, 0, trained.stderr);
    assert.match(trained.stdout, /\n\nNo sample: the token ids have no tokenizer .*--ids/);
    const ids = ["--from", run, "--ids", "7,299", "--tokens", "12", "--device", "reference"];
    const { code, stdout, stderr } = await runGenerate([...ids, "--slide", "8"]);
    assert.equal(code, 0, stderr);
    assert.match(stdout, /^7,299(,\d+){12}\n$/);
    // Before there was such a thing, tokens of any file were called bytes.
    const [step] = [...Deno.readDirSync(run)].filter(({ isDirectory }) => isDirectory);
    const path = join(run, step!.name, "config.json");
    const config = JSON.parse(await Deno.readTextFile(path));
    assert.equal(config.tokenizer, "none");
    await forgeConfig(join(run, step!.name), (kept) => kept.tokenizer = "bytes");
    await assert.rejects(
      generateCommand(["--from", run], { begin: () => {} }),
      /^TypeError: Cannot generate text from .*: it has no tokenizer/,
    );
  }));

Deno.test("between two tokens signals are heard, also on a device that keeps the thread", async () => {
  const config = { layers: 1, hidden: 4, heads: 1, seq: 4, vocab: 4 },
    device = await openReference();
  const { parameters } = compileModel(gpt2(config, 1), "none");
  const weights = new Map(parameters.map(({ name, spec }) => [name, initialValues(spec, name, 1)]));
  let tokens = 0, before: number | undefined;
  setTimeout(() => before = tokens);
  for await (const _ of generate(device, { config, weights, prompt: [1], tokens: 20 })) tokens++;
  device.close();
  assert.ok(before !== undefined && before < 20, `a timer had its turn after ${before} tokens`);
});

Deno.test("a prompt, a folder or a model that it cannot take is refused in one sentence", () =>
  inFolder(async (folder) => {
    const tokens = await writeTokens(folder, someTokens(100, 64)), run = join(folder, "run");
    await trainJson([...TINY, "--tokens", tokens, "--vocab", "64", "--steps", "1", "--out", run]);
    const digits = join(folder, "digits");
    await writeMlp(digits);
    const cases: readonly [string[], RegExp][] = [
      [[], /^Cannot generate: --from must name a checkpoint's folder$/],
      [["--from", join(folder, "none")], /--from must hold a checkpoint, received ".*none"$/],
      [["--from", folder], /--from must hold a checkpoint, received/],
      [["--from", tokens], /^Cannot read a checkpoint from .*: it must be a folder, received/],
      [
        ["--from", digits],
        /the checkpoint must be of a gpt or a llama, received mlp in .*step-00000001$/,
      ],
      [
        ["--from", run, "--prompt", "Zz", "--tokenizer", "bytes"],
        /each must be from 0 to 63 .*, received 90 at position 0$/,
      ],
      [
        ["--from", run],
        /^Cannot generate text from .*: it has no tokenizer, so --tokenizer must say .*, or --ids give/,
      ],
      [
        ["--from", run, "--ids", "3,64"],
        /each must be from 0 to 63 .*, received 64 at position 1$/,
      ],
      [["--from", run, "--ids", "3", "--prompt", "a"], /from --ids or --prompt, received both$/],
      [
        ["--from", run, "--ids", "3", "--slide", "9"],
        /--slide must be at most 8, the tokens of its context, received 9$/,
      ],
      [["--from", run, "--prompt", ""], /^Cannot read flags: --prompt must have a value$/],
      [
        ["--from", run, "--temperature", "-1"],
        /--temperature: it must be a number from 0, .*"-1"$/,
      ],
      [["--from", run, "--top-k", "0"], /--top-k: it must be a whole number from 1, .*"0"$/],
      [["--from", run, "--top-p", "1.5"], /--top-p: it must be at most 1, received "1.5"$/],
      [
        ["--from", run, "--tokens", "none"],
        /--tokens: it must be a whole number from 1, .*"none"$/,
      ],
    ];
    const context = { begin: () => assert.fail("bad input must not begin anything") };
    for (const [args, message] of cases) {
      await assert.rejects(generateCommand(args, context), { message });
    }
    const { code, stdout, stderr } = await runGenerate(cases[0]![0]);
    assert.deepEqual([code, stdout], [2, ""]);
    assert.match(stderr.trimEnd(), cases[0]![1]);
  }));

/** A checkpoint of an MLP after one step. */
async function writeMlp(directory: string): Promise<void> {
  const sizes = { inputs: 4, hidden: 4, layers: 1, classes: 2 };
  const batch = { features: new Float32Array(4).fill(0.5), labels: Int32Array.of(1) };
  const config = { architecture: "mlp", ...sizes };
  const events = train({
    model: mlp(sizes, 1),
    data: [batch],
    steps: 1,
    microBatches: 1,
    device: "reference",
    runtime: "serial",
    checkpoint: { directory, config },
  });
  for await (const _ of events);
}
