/** The command `train` on ranks: its output, its journal and its checkpoints. */

import assert from "node:assert/strict";
import { basename, join } from "node:path";
import { inFolder, namesIn } from "../../../in_folder.ts";
import {
  bitsOf,
  type JobOutput,
  type Launcher,
  mpiTest,
  runCommand,
  runJob,
  trainArgs,
  type TrainRun,
} from "./launchers.ts";

const MPI = ["--runtime", "mpi"];

const PAIR: TrainRun = { schedule: "1f1b", workers: 2 };

/** Runs the command in one isolate of a process. */
const here = (...args: string[]) => runCommand([Deno.execPath(), ...args, "--runtime", "local"]);

mpiTest(
  "rank 0 alone prints, and its journal replays without ranks, whole and for one worker",
  (launcher) =>
    inFolder(async (folder) => {
      const journal = join(folder, "journal.jsonl");
      const args = trainArgs({ schedule: "chimera", workers: 2 }).filter((arg) => arg !== "--json");
      const more = [
        ...MPI,
        "--out",
        join(folder, "out"),
        "--journal",
        journal,
        "--journal-messages",
      ];
      const output = await runJob(launcher, [2, ...args, ...more]);
      assert.equal(output.code, 0, output.stderr);
      const lines = output.stdout.trimEnd().split("\n"), done = JSON.parse(lines.at(-1)!);
      assert.deepEqual([done.done, done.runtime], [true, "mpi"]);
      assert.equal(lines.filter((line) => line.startsWith("schedule chimera")).length, 1);

      const replay = (...flags: string[]) =>
        runCommand([
          Deno.execPath(),
          ...args.slice(0, args.indexOf("train")),
          "replay",
          journal,
          ...flags,
        ]);
      const whole = await replay();
      assert.equal(whole.code, 0, whole.stderr);
      assert.match(whole.stdout, /^\d{3} steps as recorded, hash [0-9a-f]{16}$/m);
      assert.ok(whole.stdout.includes(`"weightsHash":"${done.weightsHash}"`), whole.stdout);
      const { stdout } = await replay("--actor", "worker-1");
      assert.match(stdout, /^worker-1: \d+ messages, \d+ doings and \d+ states as recorded$/m);
    }),
);

/** Two ranks, each with another working directory, so that a path means another file in each. */
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
      const args = [...trainArgs(PAIR), ...MPI, "--out", "/proc/self/cwd/out"];
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
      assert.deepEqual(bitsOf(gathered), bitsOf(await here(...trainArgs(PAIR))));
      const [saved] = (await namesIn(join(folders[0]!, "out"))).filter((name) =>
        /^step/.test(name)
      );
      assert.ok((await namesIn(join(folders[0]!, "out", saved!))).includes("model.safetensors"));
      assert.deepEqual(await namesIn(folders[1]!), []);
    }),
);

/** Weights and moments that take a while to be written. */
const LARGE = ["--hidden", "256", "--checkpoint-every", "1"];

/** Kills a rank of a job when the folder of step 2 appears; returns the names left in `out`. */
async function killedAmidWriting(launcher: Launcher, out: string): Promise<string[]> {
  await Deno.mkdir(out);
  const args = [...trainArgs(PAIR), ...MPI, ...LARGE, "--out", out];
  const job = runJob(launcher, [2, ...args]);
  using watcher = Deno.watchFs(out);
  let rank: number | undefined;
  for await (const { paths } of watcher) {
    rank ??= rankOf(out, 1);
    if (!paths.some((path) => basename(path).startsWith(".step-00000002-"))) continue;
    Deno.kill(rank, "SIGKILL");
    break;
  }
  assert.notEqual((await job).code, 0);
  return await namesIn(out);
}

/** Finds the process of a rank of the job whose checkpoints go to a folder. */
function rankOf(out: string, rank: number): number {
  const read = (pid: string, what: string) => {
    try {
      return Deno.readTextFileSync(`/proc/${pid}/${what}`).split("\0");
    } catch {
      return [];
    }
  };
  const isRank = (pid: string) =>
    read(pid, "environ").some((one) =>
      /^(PMI|OMPI_COMM_WORLD)_RANK=/.test(one) && one.endsWith(`=${rank}`)
    );
  const pids = [...Deno.readDirSync("/proc")].map(({ name }) => name).filter((name) =>
    /^\d+$/.test(name)
  );
  return Number(pids.find((pid) => read(pid, "cmdline").includes(out) && isRank(pid)));
}

mpiTest(
  "a rank that is killed while it writes leaves the checkpoints before it",
  (launcher) =>
    inFolder(async (folder) => {
      const whole = await here(...trainArgs(PAIR), ...LARGE, "--out", join(folder, "whole"));
      for (let tries = 1;; tries++) {
        const out = join(folder, `${tries}`), left = await killedAmidWriting(launcher, out);
        assert.ok(left.includes("step-00000001"), left.join());
        const goneOn = await here(...trainArgs(PAIR), ...LARGE, "--resume", out);
        assert.equal(bitsOf(goneOn).at(-1), bitsOf(whole).at(-1));
        // The folder may have been whole before the signal came.
        if (left.some((name) => name.startsWith(".step-00000002-"))) {
          assert.ok(!left.includes("step-00000002"));
          return assert.match(goneOn.stderr, /step-00000002.*received a part; it is passed over/);
        }
        assert.ok(tries < 5, `the kill must come amid a write once, received ${left}`);
      }
    }),
);
