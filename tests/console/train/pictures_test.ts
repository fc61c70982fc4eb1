/** Networks of convolutions learn from digits, and say what they have learnt. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { inFolder, refusal, runTrain } from "../command.ts";

const SIZES = ["--layers", "3", "--hidden", "16", "--micro-batch", "8", "--micro-batches", "2"];
const RUN = [...SIZES, "--workers", "2", "--device", "native", "--lr", "0.01"];

/** What a pattern finds in the output of a run. */
async function told(pattern: RegExp, args: readonly string[]): Promise<number> {
  const { code, stdout, stderr } = await inFolder((folder) =>
    runTrain([...RUN, ...args, "--out", join(folder, "run")])
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
  const percent = await told(pattern, ["--model", "resnet", "--steps", "150"]);
  assert.ok(percent > 25, `${percent} %`);
});

Deno.test("sizes that pictures do not have, and data that is no pictures, are told in a sentence", async () => {
  assert.match(
    await refusal(["--model", "unet", "--layers", "6"]),
    /Cannot build U-Net: layers must be at most 5 for pictures of 28×28, received 6/,
  );
  assert.match(
    await refusal(["--model", "resnet", "--data", "sotu"]),
    /Cannot train resnet on sotu: the data must say its height and width and channels and classes/,
  );
  assert.match(
    await refusal(["--model", "unet", "--data", "mnist"]),
    /Cannot train unet on mnist: its micro-batches must have the field "targets"/,
  );
});
