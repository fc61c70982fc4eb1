/** A T5 learns to sort, goes on from a checkpoint, and is made again from its journal. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { inFolder, refusal, runTrain, runTroupe } from "../command.ts";

const SIZES = ["--model", "t5", "--seq", "4", "--layers", "1", "--hidden", "32", "--heads", "2"];
const CUT = ["--workers", "2", "--micro-batches", "2", "--device", "native"];

/** The share of held-out strings that are sorted, as it is printed. */
function sorted({ code, stdout, stderr }: Awaited<ReturnType<typeof runTrain>>): number {
  assert.equal(code, 0, stderr);
  const [, percent] =
    /^([\d.]+) % of 64 held-out sequences are written without a mistake$/m.exec(stdout) ?? [];
  assert.ok(percent !== undefined, stdout);
  return Number(percent);
}

Deno.test("a T5 of two workers learns to sort strings of digits that it has never seen", () =>
  inFolder(async (folder) => {
    const out = join(folder, "run"), rate = ["--lr", "0.005", "--warmup", "10"];
    const run = [...SIZES, ...CUT, ...rate, "--micro-batch", "16", "--out", out];
    const first = sorted(await runTrain([...run, "--steps", "2"]));
    assert.ok(first < 20, `${first} %`);
    const last = sorted(await runTrain(["--resume", out, "--steps", "300"]));
    assert.ok(last > 40, `${last} %`);
  }));

Deno.test("a run of a T5 is made again from its journal, step by step", () =>
  inFolder(async (folder) => {
    const journal = join(folder, "journal.jsonl");
    const recorded = ["--steps", "2", "--micro-batch", "2", "--runtime", "local"];
    const files = ["--out", join(folder, "run"), "--journal", journal];
    await runTrain([...SIZES, ...CUT, ...recorded, ...files]);
    const { code, stdout, stderr } = await runTroupe(["replay", journal]);
    assert.equal(code, 0, stderr);
    assert.match(stdout, /^\d+ steps as recorded, hash [\da-f]+$/m);
  }));

Deno.test("what a T5 cannot be, and data that is no pairs of sequences, is told in a sentence", async () => {
  assert.match(
    await refusal([...SIZES, "--heads", "5"]),
    /Cannot build T5: hidden must be divisible by heads, 5, received 32/,
  );
  assert.match(
    await refusal([...SIZES, "--data", "mnist"]),
    /Cannot train t5 on mnist: the data must say its vocab, received/,
  );
  assert.match(
    await refusal([...SIZES, "--seq", "1"]),
    /Cannot draw strings: seq must be a whole number from 2/,
  );
});
