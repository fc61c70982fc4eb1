import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import { doneOf, mpiTest, runCommand, runJob } from "./launchers.ts";
import { assertBitsOfWorkers, jobOf, RUNS, trainArgs } from "./train_runs.ts";

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
  await assertBitsOfWorkers(await runJob(launcher, jobOf(4, RUNS)));
});

mpiTest("rank 0 alone prints, and its last line is what the run came to", async (launcher) => {
  const args = trainArgs(RUNS[1]!).filter((arg) => arg !== "--json");
  const out = await Deno.makeTempDir();
  const output = await runJob(launcher, [4, ...args, "--runtime", "mpi", "--out", out]);
  await Deno.remove(out, { recursive: true });
  assert.equal(output.code, 0, output.stderr);
  const lines = output.stdout.trimEnd().split("\n"), done = JSON.parse(lines.at(-1)!);
  assert.equal(done.done, true);
  assert.equal(done.runtime, "mpi");
  const onWorkers = await runCommand([Deno.execPath(), ...trainArgs(RUNS[1]!)]);
  assert.equal(done.weightsHash, doneOf(onWorkers).weightsHash);
  assert.equal(lines.filter((line) => line.startsWith("schedule 1f1b")).length, 1, output.stdout);
});
