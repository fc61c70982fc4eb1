import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import { doneOf, mpiTest, runJob } from "./launchers.ts";

const ENTRY = fileURLToPath(new URL("./contract_entry.ts", import.meta.url));
const CLI = fileURLToPath(new URL("../../../../cli.ts", import.meta.url));

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

const SIZES = "--layers 4 --hidden 16 --heads 2 --seq 8 --steps 3 --json".split(" ");

/** Schedules with the workers and replicas of a job of four ranks. */
const RUNS = [
  ["message-driven", 4, 1],
  ["1f1b", 4, 1],
  ["chimera", 2, 2],
  ["zb-v", 2, 2],
  ["pipedream-2bw", 4, 1],
] as const;

mpiTest("four ranks train with the bits of Deno workers", async (launcher) => {
  for (const [schedule, workers, replicas] of RUNS) {
    const args = ["run", "-A", "--no-check", CLI, "train", "--schedule", schedule]
      .concat("--workers", `${workers}`, "--replicas", `${replicas}`, SIZES);
    const onRanks = doneOf(await runJob(launcher, [4, ...args, "--runtime", "mpi"]));
    const { code, stdout } = await new Deno.Command(Deno.execPath(), { args }).output();
    const onWorkers = doneOf({ code, stdout: new TextDecoder().decode(stdout), stderr: "" });
    assert.equal(onRanks.runtime, "mpi");
    assert.equal(onRanks.weightsHash, onWorkers.weightsHash, schedule);
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
      const command = [
        "run",
        "-A",
        "--no-check",
        CLI,
        "train",
        "--runtime",
        "mpi",
        ...args,
        ...SIZES,
      ];
      const { code, stdout, stderr } = await runJob(launcher, [2, ...command]);
      assert.equal(code, 2, stdout + stderr);
      assert.match(stderr, sentence);
      assert.equal(stderr.match(/^Cannot/gm)?.length, 1, stderr);
    }
  },
);
