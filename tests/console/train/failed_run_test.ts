/** Runs that fail on their way: exit code 1, and the last good checkpoint stays. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { readCheckpoint } from "../../../actors/mod.ts";
import { HANG_LIMIT_MS } from "../../hang_limit.ts";
import {
  inFolder,
  jsonLines,
  ROOT,
  runTrain,
  savedIn,
  someTokens,
  TINY,
  trainJson,
  writeTokens,
} from "../command.ts";

Deno.test("a loss that is not finite ends the run with code 1; the checkpoint before it stays", () =>
  inFolder(async (folder) => {
    const tokens = await writeTokens(folder, someTokens(3000)), out = join(folder, "out");
    const { code, stdout, stderr } = await runTrain([
      ...[...TINY, "--tokens", tokens, "--steps", "9", "--lr", "1e30", "--json"],
      ...["--out", out, "--checkpoint-every", "1"],
    ]);
    assert.equal(code, 1);
    assert.match(
      stderr,
      /^Cannot take step 2: loss and gradients must be finite, received loss .*; lower the learning rate, or resume from the last checkpoint\n$/,
    );
    assert.deepEqual(jsonLines(stdout).map(({ step }) => step), [1]);
    assert.deepEqual(await savedIn(out), ["step-00000001"]);
    assert.equal((await readCheckpoint(out))!.step, 1);
  }));

Deno.test("weights that are not finite are never saved", () =>
  inFolder(async (folder) => {
    const tokens = await writeTokens(folder, someTokens(3000)), out = join(folder, "out");
    const { code, stderr } = await runTrain([
      ...[...TINY, "--tokens", tokens, "--steps", "1", "--lr", "1e300", "--json", "--out", out],
    ]);
    assert.equal(code, 1);
    assert.match(
      stderr,
      /^Cannot keep step 1: weights and moments must be finite, received [^\n]+\n$/,
    );
    assert.deepEqual(await savedIn(out), []);
  }));

Deno.test({
  name: "a disk without room ends the run with code 1; the checkpoint before it stays whole",
  ignore: Deno.build.os === "windows",
  fn: () =>
    inFolder(async (folder) => {
      const tokens = await writeTokens(folder, someTokens(3000)), out = join(folder, "out");
      await trainJson([...TINY, "--tokens", tokens, "--steps", "2", "--out", out]);
      // No file may grow beyond 64 KiB: the moments need 96 KiB, the weights 48. The signal that
      // the kernel sends by default is ignored, so that writing fails as on a full disk.
      const limited = `trap '' XFSZ; ulimit -f 128; exec "$0" run -A cli.ts train "$@"`;
      const how = ["--steps", "4", "--device", "reference", "--json"];
      const resume = ["--resume", out, "--tokens", tokens, ...how];
      const { code, stdout, stderr } = await new Deno.Command("sh", {
        args: ["-c", limited, Deno.execPath(), ...resume],
        cwd: ROOT,
        signal: AbortSignal.timeout(HANG_LIMIT_MS),
      }).output();
      const [lines, errors] = [stdout, stderr].map((bytes) => new TextDecoder().decode(bytes));
      assert.equal(code, 1, errors);
      assert.match(
        errors!,
        /\nCannot write the checkpoint .*step-00000004: its disk must have room .*, received File too large .*; the checkpoints before it stay\n$/,
      );
      assert.deepEqual(jsonLines(lines!).map(({ step }) => step), [3, 4]);
      assert.deepEqual(await savedIn(out), ["step-00000002"]);
      assert.equal((await readCheckpoint(out))!.step, 2);
    }),
});
