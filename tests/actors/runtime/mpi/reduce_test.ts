import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import type { TrainOptions } from "../../../../actors/mod.ts";
import { mpiTest, runJob } from "./launchers.ts";
import { bitsOfJob, bitsOn, jobOf } from "./train_runs.ts";

const SUMS = fileURLToPath(new URL("./sums_entry.ts", import.meta.url));

const GIVEN_UP = fileURLToPath(new URL("./given_up_entry.ts", import.meta.url));

/** Many chunks, sums that begin while others compute, and a decision that waits for them. */
const HARD = { bucketSize: 500, coarsening: 1, sync: "eager", clip: 0.5 } as const;

/** Of sums of four numbers in another order, after three steps; measured: 1.7e-8. */
const TOLERANCE = 1e-6;

/** How a schedule is laid on the ranks. */
const LAYOUTS: readonly (readonly [what: string, run: Partial<TrainOptions>, map: number[]])[] = [
  ["a copy a rank", { schedule: "chimera", workers: 2, replicas: 2 }, [0, 1, 2, 3]],
  ["two copies on a rank", { schedule: "chimera", workers: 2, replicas: 2 }, [0, 1, 1, 0]],
  ["f16", { schedule: "1f1b", workers: 1, replicas: 3, precision: "fp16" }, [0, 1, 3]],
];

mpiTest("MPI adds gradients as the copies do, but for the order of sums", async (launcher) => {
  const runs = LAYOUTS.map(([, run, map]) => ({ ...run, ...HARD, reduce: "mpi", mpi: { map } }));
  const byMpi = bitsOfJob(await runJob(launcher, jobOf(4, runs as Partial<TrainOptions>[])));
  for (const [i, [what, run]] of LAYOUTS.entries()) {
    const [one, other] = [byMpi[i]!, await bitsOn("local", { ...run, ...HARD })]
      .map(({ losses, norms }) => [...losses, ...norms]) as [number[], number[]];
    assert.equal(one.length, 6);
    const apart = Math.max(...one.map((figure, j) => Math.abs(figure / other[j]! - 1)));
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
