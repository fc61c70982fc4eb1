import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import { bitsOf, doneOf, mpiTest, runJob } from "./launchers.ts";
import { bitsOnWorkers, RUNS, trainArgs } from "./train_runs.ts";

const ENTRY = fileURLToPath(new URL("./contract_entry.ts", import.meta.url));

mpiTest("what holds for an actor in any isolate holds on ranks", async (launcher) => {
  const { code, stdout, stderr } = await runJob(
    launcher,
    [1, "test", "-A", "--no-check", ENTRY],
    [2, "run", "-A", "--no-check", ENTRY],
  );
  assert.equal(code, 0, stdout + stderr);
  const [, passed] = /^ok \| (\d+) passed \| 0 failed/m.exec(stdout)!;
  assert.ok(Number(passed) > 100, stdout);
});

mpiTest("four ranks train with the bits of Deno workers", async (launcher) => {
  for (const run of RUNS) {
    const onRanks = await runJob(launcher, [4, ...trainArgs(run), "--runtime", "mpi"]);
    assert.equal(doneOf(onRanks).runtime, "mpi");
    assert.deepEqual(bitsOf(onRanks), await bitsOnWorkers(run), run.schedule);
  }
});

mpiTest(
  "what rank 0 refuses ends the job with its one sentence and exit code 2",
  async (launcher) => {
    for (
      const [args, sentence] of [
        [["--workers", "3"], /there must be a rank for each of the 3 workers.*received 2 ranks/],
        [["--workers", "2", "--map", "0,2"], /a rank below 2 to each of the 2 workers/],
        [["--wokers", "2"], /did you mean --workers/],
      ] as const
    ) {
      const command = [...trainArgs(RUNS[1]!), "--runtime", "mpi", ...args];
      const { code, stdout, stderr } = await runJob(launcher, [2, ...command]);
      assert.equal(code, 2, stdout + stderr);
      assert.match(stderr, sentence);
      assert.equal(stderr.match(/^Cannot/gm)?.length, 1, stderr);
    }
  },
);
