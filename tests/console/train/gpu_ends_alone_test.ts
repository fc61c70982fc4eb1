/** Runs on the GPU end like others, without output of libraries on standard error. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { readCheckpoint } from "../../../actors/checkpoints/read.ts";
import { childProcesses } from "../../actors/child_processes.ts";
import { gpuTest } from "../../gpu.ts";
import { folderTest, jsonLines, runTrain, words } from "../command.ts";
import { Running, TRAIN } from "../running.ts";

/** Worker processes notice within this time that the main process has ended. */
const GRACE_MS = 60_000;

const COMPUTES = "device webgpu computes on .*, which is software, no GPU";

/** A model with few kernels: compiling them takes most of the time. */
const TRAINED = words`--model mlp --hidden 8 --layers 1 --micro-batch-size 2 --micro-batches 2
  --device webgpu --workers 2 --schedule 1f1b --json`;

/** Variables in which libraries look for a display, and print a warning if there is none. */
const NO_DISPLAY = { XDG_RUNTIME_DIR: "" };

folderTest("a run on the GPU outlives a killed worker, and ends well by Ctrl-C", async (folder) => {
  const out = join(folder, "out"), train = [...TRAINED, "--out", out];
  // A slow link, so that few steps come before the kill.
  const slow = words`--steps 5000 --emulate-link 20000,10`;
  const run = new Running([...TRAIN, ...train, ...slow], false, NO_DISPLAY);
  await run.printed("stdout", /"step":2,/);
  Deno.kill(childProcesses(run.pid).at(-1)!, "SIGKILL");
  await run.printed("stderr", /the run continues from the last committed step/);
  const seen = run.stdout.split("\n").length;
  await run.printed("stdout", new RegExp(`(.*\n){${seen + 2}}`));
  run.interrupt("group");
  const { code, stdout, stderr } = await run.end(GRACE_MS);
  assert.equal(code, 130, stderr);
  const lines = jsonLines(stdout), { steps, weightsHash } = lines.at(-1)!;
  assert.equal((await readCheckpoint(out))!.step, steps);
  const told = [
    COMPUTES,
    "worker-. failed in step .*: killed by SIGKILL; the run continues from the last committed step",
    "Finishing the step under way; press Ctrl-C again to end immediately\\.",
    "Interrupted after step .*",
  ];
  // The first run on a machine fetches the digits.
  assert.match(stderr.replace(/^Fetching .*\n/, ""), new RegExp(`^${told.join("\n")}\n$`));

  const alone = words`${TRAINED} --workers 1 --steps ${steps as number}`;
  const peace = await runTrain(alone, NO_DISPLAY);
  assert.equal(peace.code, 0, peace.stderr);
  assert.match(peace.stderr, new RegExp(`^${COMPUTES}\n$`));
  const { weightsHash: expected } = jsonLines(peace.stdout).at(-1)!;
  assert.equal(weightsHash, expected);
}, gpuTest);
