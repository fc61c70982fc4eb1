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
