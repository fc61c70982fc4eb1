import assert from "node:assert/strict";
import { join } from "node:path";
import { IS_DEEP } from "../../depth.ts";
import { folderTest } from "../../in_folder.ts";
import { printedHere, refusal, words } from "../command.ts";
import { assertRefusals } from "../refusals.ts";

/** Returns the matches of a pattern in the output of a command. */
async function told(pattern: RegExp, args: readonly string[]): Promise<number> {
  const said = await printedHere(...args), [, number] = pattern.exec(said) ?? [];
  assert.ok(number !== undefined, said);
  return Number(number);
}

/** A T5 learns to sort, resumes from a checkpoint, and is replayed from its journal. */

const T5 = words`train --model t5 --seq 4 --layers 1 --hidden 32 --heads 2 --workers 2
  --micro-batches 2 --device native --runtime local`;

const SORTED = /^([\d.]+) % of 64 held-out sequences are written without a mistake$/m;

folderTest("a T5 of two workers learns to sort digits that it has never seen", async (folder) => {
  const out = join(folder, "run"), rate = words`--lr 0.01 --warmup 10 --micro-batch-size 16`;
  const first = await told(SORTED, words`${T5} ${rate} --steps 2 --out ${out}`);
  assert.ok(first < 20, `${first} %`);
  const last = await told(SORTED, words`train --resume ${out} --steps 100 --runtime local`);
  assert.ok(last > 40, `${last} %`);
});

folderTest("a T5 of few pairs is evaluated on all that are held out", async (folder) => {
  const text = join(folder, "pairs.txt"), out = join(folder, "run");
  await Deno.writeTextFile(text, "ab\tba\n".repeat(40));
  await told(
    /^([\d.]+) % of 4 held-out sequences are written without a mistake$/m,
    words`${T5} --text ${text} --lengths --micro-batch-size 2 --steps 1 --out ${out}`,
  );
});

folderTest("a run of a T5 is replayed from its journal, step by step", async (folder) => {
  const journal = join(folder, "journal.jsonl"), files = ["--out", join(folder, "run")];
  await printedHere(...words`${T5} --steps 2 --micro-batch-size 2 --journal ${journal} ${files}`);
  assert.match(await printedHere("replay", journal), /^\d+ steps as recorded, hash [\da-f]+$/m);
});

Deno.test("impossible models, and data that does not fit them, are refused", async () => {
  await assertRefusals("models", refusal);
});

/** Convolutional networks learn from digits and report their accuracy. */

const PICTURES =
  words`train --hidden 16 --micro-batches 2 --workers 2 --device native --runtime local`;

if (IS_DEEP) {
  folderTest("a U-Net removes noise from digits that it has never seen", async (folder) => {
    const fallen =
      /^The mean squared error of 1000 held-out pictures falls from 0\.2499 to ([\d.]+); one with/m;
    const how =
      words`--model unet --layers 3 --micro-batch-size 8 --steps 30 --lr 0.01 --out ${folder}`;
    const error = await told(fallen, [...PICTURES, ...how]);
    // The loss of a blank image is 0.112, of the mean digit 0.068, of this run 0.029.
    assert.ok(error < 0.05, `${error}`);
  });
}

folderTest("a residual network recognizes digits that it has never seen", async (folder) => {
  const recognised = /^([\d.]+) % of the held-out samples are recognised$/m;
  const how =
    words`--model resnet --layers 4 --micro-batch-size 16 --steps 200 --lr 0.02 --lr-schedule cosine
    --out ${folder}`;
  const percent = await told(recognised, [...PICTURES, ...how]);
  assert.ok(percent > 70, `${percent} %`); // Chance is 10 %; this run recognises 83 %.
});
