/** Ranks that are not alike: none of them trains, and the first says what differs. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { type Launcher, mpiTest, type Part, runJob } from "./launchers.ts";
import { ROOT } from "../../../repository.ts";
import { trainArgs } from "./train_runs.ts";

const RUN = trainArgs({ schedule: "1f1b", workers: 2, replicas: 1 }).concat("--runtime", "mpi");

async function assertRefused(launcher: Launcher, parts: readonly Part[], sentence: RegExp) {
  const { code, stdout, stderr } = await runJob(launcher, ...parts);
  assert.equal(code, 2, stdout + stderr);
  assert.equal(stdout, "");
  assert.match(stderr, sentence);
  assert.equal(stderr.match(/^Cannot/gm)?.length, 1, stderr);
}

mpiTest(
  "ranks that were asked different things are refused, with both values",
  async (launcher) => {
    await assertRefused(
      launcher,
      [[1, ...RUN, "--seed", "1"], [1, ...RUN, "--seed=2"]],
      /^Cannot join .*--seed must be the same .*received 1 on rank 0 and 2 on rank 1$/m,
    );
  },
);

mpiTest("ranks of which one has another line of code are refused", async (launcher) => {
  const copy = await Deno.makeTempDir();
  try {
    await copyTree(ROOT, copy);
    const changed = join(copy, "actors", "pipeline", "worker", "compute.ts");
    await Deno.writeTextFile(changed, "\n", { append: true });
    const other = RUN.map((arg) => arg.replace(/.*cli\.ts$/, join(copy, "cli.ts")));
    await assertRefused(
      launcher,
      [[1, ...RUN], [1, ...other]],
      /^Cannot join .*hash of Troupe's modules must be the same .*, received \w{64} on rank 0 and \w{64} on rank 1$/m,
    );
  } finally {
    await Deno.remove(copy, { recursive: true });
  }
});

/** What the command is made of. */
const PARTS = ["actors", "kernels", "schedules", "console", "compat", "cli.ts", "mod.ts"]
  .concat("testing.ts", "deno.json", "deno.lock");

async function copyTree(from: string, to: string): Promise<void> {
  const copy = async (name: string) => {
    if ((await Deno.stat(join(from, name))).isFile) {
      return await Deno.copyFile(join(from, name), join(to, name));
    }
    await Deno.mkdir(join(to, name));
    for await (const entry of Deno.readDir(join(from, name))) await copy(join(name, entry.name));
  };
  for (const name of PARTS) await copy(name);
}
