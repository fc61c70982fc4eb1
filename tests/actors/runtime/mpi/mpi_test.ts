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

mpiTest("rank 0 alone prints, and its last line is what the run came to", async (launcher) => {
  const args = trainArgs(RUNS[1]!).filter((arg) => arg !== "--json");
  const out = await Deno.makeTempDir();
  const output = await runJob(launcher, [4, ...args, "--runtime", "mpi", "--out", out]);
  await Deno.remove(out, { recursive: true });
  assert.equal(output.code, 0, output.stderr);
  const lines = output.stdout.trimEnd().split("\n"), done = JSON.parse(lines.at(-1)!);
  assert.equal(done.done, true);
  assert.deepEqual(done.weightsHash, (await bitsOnWorkers(RUNS[1]!)).at(-1));
  assert.equal(lines.filter((line) => line.startsWith("schedule 1f1b")).length, 1, output.stdout);
});
