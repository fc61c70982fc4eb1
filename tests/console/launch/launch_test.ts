/** `troupe launch` with the launchers that this machine has: whatever dies, the bits are the same. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { readFinished } from "../../../actors/checkpoints/finished.ts";
import { mpiTest } from "../../actors/runtime/mpi/launchers.ts";
import { inFolder, jsonLines, trainJson } from "../command.ts";
import { Launched, mpiFlag, SMALL_JOB } from "./launched.ts";

const STEPS = ["--steps", "12"];

mpiTest(
  "a job whose ranks are killed ends with the bits of one left in peace",
  async (launcher) => {
    await inFolder(async (folder) => {
      const { last } = await trainJson([...SMALL_JOB.slice(1), ...STEPS]);
      const out = join(folder, "out");
      const job = new Launched([mpiFlag(launcher), "--", ...SMALL_JOB, ...STEPS, "--out", out]);
      // Before MPI is open.
      Deno.kill(await job.process(({ rank }) => rank === 1), "SIGKILL");
      await job.running.printed("stdout", /"step":6,/);
      Deno.kill(await job.process(({ rank }) => rank === 0), "SIGKILL");
      const { code, stdout, stderr } = await job.end();
      assert.equal(code, 0, stderr);
      const done = jsonLines(stdout).at(-1)!, finished = (await readFinished(out))!;
      assert.equal(done.done, true);
      assert.equal(done.weightsHash, last.weightsHash);
      assert.deepEqual([finished.step, finished.weightsHash], [12, last.weightsHash]);
      assert.match(
        stderr,
        /^(Rank 1|The job|Process \d+).*; going on from the beginning \(restart/m,
      );
      assert.match(stderr, /^Rank 0 on \S+ died of Killed \(signal 9\); going on from step [46] /m);
    });
  },
);
