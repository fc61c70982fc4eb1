/** Two programs with the same `--out`: one trains, the other says so. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { readCheckpoint } from "../../../actors/mod.ts";
import {
  inFolder,
  runTrain,
  savedIn,
  someTokens,
  TINY,
  trainJson,
  writeTokens,
} from "../command.ts";
import { Running, TRAIN } from "../running.ts";

Deno.test({
  name: "a folder in use is refused in one sentence, and free when its program is killed",
  ignore: Deno.build.os === "windows",
  fn: () =>
    inFolder(async (folder) => {
      const tokens = await writeTokens(folder, someTokens(100_000)), out = join(folder, "out");
      const train = [...TINY, "--tokens", tokens, "--json"];
      const endless = ["--out", out, "--checkpoint-every", "1", "--keep", "2", "--steps", "3000"];
      const first = new Running([...TRAIN, ...train, ...endless]);
      await first.printed("stdout", /"step":2,.*\n/);
      for (const flags of [["--out", out], ["--resume", out], ["--out", `${out}/../out/`]]) {
        const { code, stdout, stderr } = await runTrain([...train, ...flags, "--steps", "3000"]);
        assert.deepEqual({ code, stdout }, { code: 2, stdout: "" }, stderr);
        assert.match(
          stderr,
          /^Cannot write checkpoints to [^\n]+: it must not be in use by another run, received pid \d+ on [\w.-]+; wait for its end, or name another folder\n$/,
        );
        assert.equal(/pid (\d+)/.exec(stderr)![1], `${first.pid}`);
      }
      first.kill();
      const { stdout } = await first.end(60_000), told = stdout.split("\n").length - 1;
      const { step } = (await readCheckpoint(out))!;
      assert.ok(step >= told - 2, `${step} of ${told}`);
      const { last } = await trainJson([...train, "--resume", out, "--steps", `${step + 1}`]);
      assert.equal(last.steps, step + 1);
      const names = await savedIn(out);
      assert.ok(names.every((name) => name.startsWith("step-")), `${names}`);
    }),
});
