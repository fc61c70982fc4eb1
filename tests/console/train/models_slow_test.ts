import assert from "node:assert/strict";
import { join } from "node:path";
import { folderTest } from "../../in_folder.ts";
import { inFolder, type Outcome, refusal, runHere } from "../command.ts";
import { assertRefusals } from "../refusals.ts";

/** A T5 learns to sort, goes on from a checkpoint, and is made again from its journal. */

const SIZES = ["--model", "t5", "--seq", "4", "--layers", "1", "--hidden", "32", "--heads", "2"];
const CUT = ["--workers", "2", "--micro-batches", "2", "--device", "native"];

/** The share of held-out strings that are sorted, as it is printed. */
function sorted({ code, stdout, stderr }: Outcome): number {
  assert.equal(code, 0, stderr);
  const [, percent] =
    /^([\d.]+) % of 64 held-out sequences are written without a mistake$/m.exec(stdout) ?? [];
  assert.ok(percent !== undefined, stdout);
  return Number(percent);
}

folderTest(
  "a T5 of two workers learns to sort strings of digits that it has never seen",
  async (folder) => {
    const out = join(folder, "run"), rate = ["--lr", "0.005", "--warmup", "10"];
    const run = [...SIZES, ...CUT, ...rate, "--micro-batch", "16", "--out", out];
    const first = sorted(await runHere(["train", ...run, "--steps", "2"]));
    assert.ok(first < 20, `${first} %`);
    const last = sorted(await runHere(["train", "--resume", out, "--steps", "300"]));
    assert.ok(last > 40, `${last} %`);
  },
);

folderTest("a run of a T5 is made again from its journal, step by step", async (folder) => {
  const journal = join(folder, "journal.jsonl");
  const recorded = ["--steps", "2", "--micro-batch", "2", "--runtime", "local"];
  const files = ["--out", join(folder, "run"), "--journal", journal];
  await runHere(["train", ...SIZES, ...CUT, ...recorded, ...files]);
  const { code, stdout, stderr } = await runHere(["replay", journal]);
  assert.equal(code, 0, stderr);
  assert.match(stdout, /^\d+ steps as recorded, hash [\da-f]+$/m);
});

Deno.test("models that cannot be, and data that does not fit them, are refused", async () => {
  await assertRefusals("models", refusal);
});

/** Networks of convolutions learn from digits, and say what they have learnt. */

const PICTURES = ["--layers", "3", "--hidden", "16", "--micro-batch", "8", "--micro-batches", "2"];
const RUN = [...PICTURES, "--workers", "2", "--device", "native", "--lr", "0.01"];

/** What a pattern finds in the output of a run. */
async function told(pattern: RegExp, args: readonly string[]): Promise<number> {
  const { code, stdout, stderr } = await inFolder((folder) =>
    runHere(["train", ...RUN, ...args, "--out", join(folder, "run")])
  );
  assert.equal(code, 0, stderr);
  const [, number] = pattern.exec(stdout) ?? [];
  assert.ok(number !== undefined, stdout);
  return Number(number);
}

Deno.test("a U-Net on two workers takes noise out of digits that it has never seen", async () => {
  const pattern =
    /^The mean squared error of 1000 held-out pictures falls from 0\.2499 to ([\d.]+); one with/m;
  const error = await told(pattern, ["--model", "unet", "--steps", "30"]);
  assert.ok(error < 0.08, `${error}`); // Blank paper would be off by 0.11.
});

Deno.test("a residual network on two workers recognises digits that it has never seen", async () => {
  const pattern = /^([\d.]+) % of the held-out samples are recognised$/m;
  const sizes = ["--layers", "4", "--micro-batch", "16", "--lr", "0.02", "--lr-schedule", "cosine"];
  const percent = await told(pattern, ["--model", "resnet", "--steps", "200", ...sizes]);
  assert.ok(percent > 70, `${percent} %`); // Chance is 10 %; this run recognises 83 %.
});
