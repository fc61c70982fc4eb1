/** Runs on the GPU end like any other, with nothing of a library on standard error. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { readCheckpoint } from "../../../actors/mod.ts";
import { childProcesses } from "../../actors/child_processes.ts";
import { gpuTest } from "../../gpu.ts";
import { inFolder, jsonLines, someTokens, TINY_MODEL, writeTokens } from "../command.ts";
import { Running, TRAIN } from "../running.ts";

/** Processes of workers notice within this time that their root is gone. */
const GRACE_MS = 60_000;

const COMPUTES = "device webgpu computes on .*, which is software, no GPU";

async function flags(folder: string): Promise<string[]> {
  const tokens = await writeTokens(folder, someTokens(64_001));
  return [
    ...[...TINY_MODEL, "--micro-batches", "2", "--device", "webgpu", "--workers", "2", "--json"],
    ...["--schedule", "1f1b", "--tokens", tokens, "--out", join(folder, "out")],
  ];
}

/** Libraries look for a display there, and say so where there is none. */
const NO_DISPLAY = { XDG_RUNTIME_DIR: "" };

gpuTest(
  "a worker on the GPU is killed: the run has the bits of one in peace; Ctrl-C ends it in good order",
  () =>
    inFolder(async (folder) => {
      const train = await flags(folder), out = join(folder, "out");
      const run = new Running([...TRAIN, ...train, "--steps", "2000"], false, NO_DISPLAY);
      await run.printed("stdout", /"step":2,/);
      Deno.kill(childProcesses(run.pid).at(-1)!, "SIGKILL");
      await run.printed("stderr", /going on from the last committed step/);
      const seen = run.stdout.split("\n").length;
      await run.printed("stdout", new RegExp(`(.*\n){${seen + 2}}`));
      run.interrupt("group");
      const { code, stdout, stderr } = await run.end(GRACE_MS);
      assert.equal(code, 130, stderr);
      const lines = jsonLines(stdout), { steps, weightsHash } = lines.at(-1)!;
      assert.equal((await readCheckpoint(out))!.step, steps);
      const told = [
        COMPUTES,
        "worker-. failed in step .*: killed by SIGKILL; going on from the last committed step",
        "Finishing the step under way; press Ctrl-C again to end at once\\.",
        "Interrupted after step .*",
      ];
      assert.match(stderr, new RegExp(`^${told.join("\n")}\n$`));

      const whole = ["--steps", `${steps}`, "--out", join(folder, "whole")];
      const peace = new Running(["task", "-q", "train", ...train, ...whole], false, NO_DISPLAY);
      const outcome = await peace.end();
      assert.equal(outcome.code, 0, outcome.stderr);
      assert.match(outcome.stderr, new RegExp(`^${COMPUTES}\n$`));
      const { weightsHash: expected } = jsonLines(outcome.stdout).at(-1)!;
      assert.equal(weightsHash, expected);
    }),
);
