/** Bad input: told in one sentence before anything is written, exit code 2. */

import assert from "node:assert/strict";
import { join } from "node:path";
import {
  inFolder,
  refusal,
  runGenerate,
  runTrain,
  someTokens,
  TINY,
  writeTokens,
} from "./command.ts";

/** What is wrong with the flags, and what the refusal says of it. */
const FLAGS: readonly [string, RegExp][] = [
  ["--nonesuch 3", /--nonesuch is not one of them; run with --help to see them all/],
  ["-x", /-x is not one of them; run with --help/],
  ["corpus.txt", /every argument must be a flag, received "corpus.txt"/],
  ["--steps", /--steps must have a value/],
  ["--steps --json", /--steps must have a value/],
  ["--steps ten", /--steps: it must be a whole number from 1, received "ten"/],
  ["--steps 0", /--steps: it must be a whole number from 1, received "0"/],
  ["--steps 1.5", /--steps: it must be a whole number from 1, received "1.5"/],
  ["--lr fast", /--lr: it must be a number from 0, received "fast"/],
  ["--lr -0.1", /--lr: it must be a number from 0, received "-0.1"/],
  ["--lr Infinity", /--lr: it must be a number from 0, received "Infinity"/],
  ["--beta1 1", /--beta1: it must be a number from 0 and below 1, received "1"/],
  ["--warmup -3", /--warmup: it must be a whole number from 0, received "-3"/],
  ["--micro-batches 0", /--micro-batches: it must be a whole number from 1/],
  ["--device gpu", /--device: it must be one of auto, native, wasm, reference, received "gpu"/],
  ["--model bert", /--model: it must be one of gpt, mlp, received "bert"/],
  ["--schedule pipedreams", /--schedule: it must be one of gpipe, 1f1b, .*received "pipedreams"/],
  ["--order lifo", /--order: it must be one of fifo, backward-first, received "lifo"/],
  ["--heads 3", /hidden must be divisible by heads, received hidden 16 and heads 3/],
  ["--workers 4", /into 4 stages: .*between 1 and its 3 layers/],
  ["--schedule chimera", /the schedule chimera: .*try gpipe, 1f1b or message-driven/],
  ["--text a.txt", /the data must come from one file, received --text and --tokens/],
  ["--model mlp", /--data must be mnist, received ".*tokens.bin"/],
];

Deno.test("bad flags are each refused in one sentence", () =>
  inFolder(async (folder) => {
    const tokens = await writeTokens(folder, someTokens(3000)), out = join(folder, "out");
    const train = [...TINY, "--tokens", tokens, "--steps", "1", "--out", out];
    for (const [flags, reason] of FLAGS) {
      assert.match(await refusal([...train, ...flags.split(" ")]), reason, flags);
    }
    assert.deepEqual((await Array.fromAsync(Deno.readDir(folder))).length, 1, "only the tokens");
  }));

Deno.test("files that cannot be read or written are refused by the name of their flag", () =>
  inFolder(async (folder) => {
    const tokens = await writeTokens(folder, someTokens(3000)), none = join(folder, "none");
    for (const flag of ["tokens", "text"]) {
      for (const [path, what] of [[none, "no such file"], [folder, "a folder"]] as const) {
        assert.equal(
          await refusal([...TINY, `--${flag}`, path]),
          `Cannot use --${flag}: it must name a file that can be read, received "${path}" (${what})`,
        );
      }
    }
    const train = [...TINY, "--tokens", tokens, "--steps", "1"];
    assert.match(await refusal([...train, "--weights", none]), /--weights: .* \(no such file\)$/);
    for (const out of [tokens, join(tokens, "below"), join(tokens, "far", "below")]) {
      assert.match(
        await refusal([...train, "--out", out]),
        /^Cannot write checkpoints to .*: it must be a folder that can be written, received /,
      );
    }
    assert.match(
      await refusal([...TINY, "--data", "shakespeare"]),
      /must be one of sotu, moby-dick, received "shakespeare"/,
    );
    const empty = join(folder, "empty.txt");
    await Deno.writeTextFile(empty, "");
    assert.match(
      await refusal([...TINY, "--text", empty]),
      /must have at least 17 tokens.* received 0/,
    );
  }));

Deno.test("evaluations that were asked for need data; those that nobody asked for do not", () =>
  inFolder(async (folder) => {
    const tokens = await writeTokens(folder, someTokens(33));
    const train = [...TINY, "--tokens", tokens, "--steps", "1"];
    assert.match(
      await refusal([...train, "--eval-every", "1"]),
      /there must be at least 2 held-out rows of 8 tokens, received 0/,
    );
    const { code, stderr } = await runTrain([...train, "--out", join(folder, "out")]);
    assert.equal(code, 0, stderr);
  }));

Deno.test("bad input ends a process with exit code 2 and one line on standard error", () =>
  inFolder(async (folder) => {
    const tokens = await writeTokens(folder, someTokens(3000)), out = join(folder, "out");
    const train = [...TINY, "--out", out, "--json"];
    const refused = await Promise.all([
      runTrain([...train, "--tokens", tokens, "--workers", "9"]),
      runTrain([...train, "--tokens", tokens, "--steps", "1000"]),
      runTrain([...train, "--tokens", tokens, "--out", join(tokens, "below"), "--device", "auto"]),
      runTrain([...train, "--tokens", tokens, "--nonesuch"]),
      runTrain([...train, "--tokens", join(folder, "none"), "--resume", join(folder, "no-run")]),
      runGenerate(["--from", folder]),
    ]);
    for (const { code, stdout, stderr } of refused) {
      assert.equal(code, 2, stderr);
      assert.equal(stdout, "");
      assert.match(stderr, /^Cannot [^\n]+\n$/);
    }
    const left = await Array.fromAsync(Deno.readDir(folder), ({ name }) => name);
    assert.deepEqual(left, ["tokens.bin"]);
  }));
