/** Ranks read and write the parts of checkpoints that they hold; any other layout goes on from them. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { inFolder, namesIn } from "../../../in_folder.ts";
import {
  bitsOf,
  doneOf,
  type JobOutput,
  type Launcher,
  mpiTest,
  runCommand,
  runJob,
} from "./launchers.ts";
import { trainArgs } from "./train_runs.ts";

const CHIMERA = { schedule: "chimera", workers: 2, replicas: 2 };
const MPI = ["--runtime", "mpi"];

/** A run of four steps, two of which another run has made. */
const goingOn = (out: string) => [...trainArgs(CHIMERA), "--steps", "4", "--resume", out];

const onWorkers = (...args: string[]) => runCommand([Deno.execPath(), ...args]);

const hashOf = (output: JobOutput) => doneOf(output).weightsHash;

const copy = async (from: string, to: string) => {
  await Deno.mkdir(to, { recursive: true });
  for (const name of await namesIn(from)) await Deno.copyFile(join(from, name), join(to, name));
};

mpiTest(
  "ranks write shards, and workers, ranks and a serial run go on from them",
  (launcher) =>
    inFolder(async (folder) => {
      const out = join(folder, "ranks"),
        whole = await onWorkers(...trainArgs(CHIMERA), "--steps", "4");
      const first = [...trainArgs(CHIMERA), "--steps", "2", "--checkpoint-every", "1"];
      const half = await runJob(launcher, [4, ...first, ...MPI, "--out", out]);
      const saved = join(out, "step-00000002");
      assert.equal(doneOf(half).checkpoint, saved);
      assert.equal((await namesIn(saved)).filter((name) => /-of-00002/.test(name)).length, 4);

      const others = ["workers", "back"].map((name) => join(folder, name));
      for (const other of others) await copy(saved, join(other, "step-00000002"));
      const onRanks = await runJob(launcher, [4, ...goingOn(out), ...MPI]);
      const elsewhere = await onWorkers(...goingOn(others[0]!));
      assert.deepEqual(bitsOf(onRanks), bitsOf(whole).slice(2));
      assert.deepEqual(bitsOf(elsewhere), bitsOf(whole).slice(2));
      assert.equal(hashOf(onRanks), hashOf(whole));

      // What workers have written as one file, ranks read in parts.
      const longer = ["--steps", "5", "--resume"];
      const back = await runJob(launcher, [
        4,
        ...trainArgs(CHIMERA),
        ...MPI,
        ...longer,
        others[0]!,
      ]);
      const serial = await onWorkers(...trainArgs(CHIMERA), "--runtime", "serial", ...longer, out);
      assert.deepEqual(bitsOf(back), bitsOf(serial));
    }),
);

mpiTest(
  "weights of a folder of shards are read by the ranks that need them",
  (launcher) =>
    inFolder(async (folder) => {
      const run = { schedule: "1f1b", workers: 2, replicas: 1 },
        args = [...trainArgs(run), "--tie"];
      const made = await runJob(launcher, [2, ...args, ...MPI, "--out", folder]);
      const again = [...args, "--steps", "1", "--weights", String(doneOf(made).checkpoint)];
      const onRanks = await runJob(launcher, [2, ...again, ...MPI]);
      assert.deepEqual(bitsOf(onRanks), bitsOf(await onWorkers(...again)));
    }),
);

/** Two ranks, each in a folder of its own: what a path names there is not what it names here. */
function runApart(
  { command, args }: Launcher,
  folders: readonly string[],
  rank: readonly string[],
): Promise<JobOutput> {
  const parts = folders.map((folder) => ["-n", "1", "-wdir", folder, Deno.execPath(), ...rank]);
  return runCommand([command, ...args, ...parts[0]!, ":", ...parts[1]!]);
}

mpiTest(
  "ranks without a folder in common are refused, unless rank 0 gathers",
  (launcher) =>
    inFolder(async (folder) => {
      const folders = ["one", "two"].map((name) => join(folder, name));
      for (const one of folders) await Deno.mkdir(one);
      const run = { schedule: "1f1b", workers: 2, replicas: 1 };
      const args = [...trainArgs(run), ...MPI, "--out", "/proc/self/cwd/out"];
      const refused = await runApart(launcher, folders, args);
      assert.equal(refused.code, 2, refused.stderr);
      assert.equal(refused.stdout, "");
      assert.match(
        refused.stderr,
        /every rank must see the files of rank 0.*received on rank 1.*--gather/,
      );
      assert.equal(refused.stderr.match(/^Cannot/gm)?.length, 1, refused.stderr);
      assert.deepEqual(await namesIn(folders[0]!), [], "nothing was trained");

      const gathered = await runApart(launcher, folders, [...args, "--gather"]);
      assert.deepEqual(bitsOf(gathered), bitsOf(await onWorkers(...trainArgs(run))));
      const [saved] = (await namesIn(join(folders[0]!, "out"))).filter((name) =>
        /^step/.test(name)
      );
      assert.ok((await namesIn(join(folders[0]!, "out", saved!))).includes("model.safetensors"));
      assert.deepEqual(await namesIn(folders[1]!), []);
    }),
);
