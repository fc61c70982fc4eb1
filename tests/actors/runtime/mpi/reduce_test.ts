import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import { doneOf, type JobOutput, mpiTest, runJob } from "./launchers.ts";

const CLI = fileURLToPath(new URL("../../../../cli.ts", import.meta.url));

const SUMS = fileURLToPath(new URL("./sums_entry.ts", import.meta.url));

const GIVEN_UP = fileURLToPath(new URL("./given_up_entry.ts", import.meta.url));

const TRAIN = "train --layers 2 --hidden 16 --heads 2 --seq 8 --steps 3 --json".split(" ");

/** Many chunks, sums that begin while others compute, and a decision that waits for them. */
const HARD = "--bucket-size 500 --coarsening 1 --sync eager --clip 0.5".split(" ");

/** Of sums of four numbers in another order, after three steps; measured: 1.7e-8. */
const TOLERANCE = 1e-6;

/** Ranks, and how a schedule is laid on them. */
const LAYOUTS: readonly (readonly [what: string, ranks: number, flags: string])[] = [
  ["a copy a rank", 4, "--schedule chimera --workers 2 --replicas 2"],
  ["two copies on a rank", 2, "--schedule chimera --workers 2 --replicas 2 --map 0,1,1,0"],
  ["f16", 3, "--schedule 1f1b --workers 1 --replicas 3 --precision fp16"],
];

/** The same run in this machine's one isolate. */
async function runHere(command: readonly string[]): Promise<JobOutput> {
  const args = command.filter((one, i) => one !== "--map" && command[i - 1] !== "--map");
  const ran = await new Deno.Command(Deno.execPath(), { args: [...args, "--runtime", "local"] })
    .output();
  const [stdout, stderr] = [ran.stdout, ran.stderr].map((text) => new TextDecoder().decode(text));
  return { code: ran.code, stdout: stdout!, stderr: stderr! };
}

/** Losses and norms of all steps. */
function figuresOf(output: JobOutput): number[] {
  assert.equal(doneOf(output).done, true);
  const steps = output.stdout.trimEnd().split("\n").slice(0, -1).map((line) => JSON.parse(line));
  return steps.flatMap(({ loss, gradNorm }) => [loss, gradNorm]);
}

mpiTest("MPI adds gradients as the copies do, but for the order of sums", async (launcher) => {
  for (const [what, ranks, flags] of LAYOUTS) {
    const command = ["run", "-A", "--no-check", CLI, ...TRAIN, ...flags.split(" "), ...HARD];
    const job = await runJob(launcher, [ranks, ...command, "--runtime", "mpi", "--reduce", "mpi"]);
    const byMpi = figuresOf(job), byCopies = figuresOf(await runHere(command));
    assert.equal(byMpi.length, 6);
    const apart = Math.max(...byMpi.map((one, i) => Math.abs(one / byCopies[i]! - 1)));
    assert.ok(apart < TOLERANCE, `${what}: losses or norms differ by ${apart}`);
  }
});

mpiTest(
  "sums over ranks have the same bits in all members, and those half-begun are in nobody's way",
  async (launcher) => {
    const { code, stdout, stderr } = await runJob(launcher, [3, "run", "-A", "--no-check", SUMS]);
    assert.equal(code, 0, stdout + stderr);
    assert.equal(stdout, "all sums were right\n");
  },
);

mpiTest(
  "a step that is given up and a worker that fails leave no trace in what MPI adds later",
  async (launcher) => {
    const command = ["run", "-A", "--no-check", GIVEN_UP] as const;
    const { code, stdout, stderr } = await runJob(launcher, [4, ...command]);
    assert.equal(code, 0, stdout + stderr);
    assert.equal(stdout, "the same weights\n");
  },
);
