/** Ranks read and write the parts of checkpoints that they hold; any other layout goes on from them. */

import assert from "node:assert/strict";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
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
import { trainArgs, type TrainRun } from "./train_runs.ts";

const MPI = ["--runtime", "mpi"];

const PAIR: TrainRun = { schedule: "1f1b", workers: 2, replicas: 1 };

const onWorkers = (...args: string[]) => runCommand([Deno.execPath(), ...args]);

/** The run that all others are parts of; made once. */
const wholes = new Map<TrainRun, Promise<readonly unknown[]>>();
const wholeOf = (run: TrainRun) => {
  const bits = wholes.get(run) ?? onWorkers(...trainArgs(run), "--steps", "4").then(bitsOf);
  wholes.set(run, bits);
  return bits;
};

/** Each worker holds two stages, and of one of them the first copy. */
const CHIMERA: TrainRun = { schedule: "chimera", workers: 2, replicas: 2 };

/** Runs on four ranks, then on workers, then on some ranks, each going on from the one before. */
const CHAINS: readonly (readonly [TrainRun, TrainRun, TrainRun?])[] = [
  [
    { schedule: "1f1b", workers: 2, replicas: 2 },
    { schedule: "zb-h1", workers: 3, replicas: 2 },
    { schedule: "gpipe", workers: 1, replicas: 2 },
  ],
  [CHIMERA, CHIMERA],
];

mpiTest(
  "ranks write shards, from which any layout goes on, and go on from a file",
  async (launcher) => {
    for (const [first, second, third] of CHAINS) {
      await inFolder(async (out) => {
        const whole = await wholeOf(first);
        const args = [...trainArgs(first), "--steps", "2", "--checkpoint-every", "1", "--out", out];
        const onRanks = await runJob(launcher, [4, ...args, ...MPI]);
        assert.equal(doneOf(onRanks).checkpoint, join(out, "step-00000002"));
        for (const step of ["step-00000001", "step-00000002"]) {
          const shards = (await namesIn(join(out, step))).filter((name) => /-of-00002/.test(name));
          assert.equal(shards.length, 4, "two of weights and two of moments");
        }
        const goOn = (
          run: TrainRun,
          steps: string,
        ) => [...trainArgs(run), "--steps", steps, "--resume", out];
        const onAny = await onWorkers(...goOn(second, "3"));
        assert.deepEqual(bitsOf(onAny)[0], whole[2], second.schedule);
        assert.ok((await namesIn(join(out, "step-00000003"))).includes("model.safetensors"));
        if (!third) return;
        const ranks = third.workers * third.replicas;
        const back = await runJob(launcher, [ranks, ...goOn(third, "4"), ...MPI]);
        assert.deepEqual(bitsOf(back), whole.slice(3), third.schedule);
      });
    }
  },
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
  { once: true },
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
      assert.deepEqual(bitsOf(gathered), bitsOf(await onWorkers(...trainArgs(PAIR))));
      const [saved] = (await namesIn(join(folders[0]!, "out"))).filter((name) =>
        /^step/.test(name)
      );
      assert.ok((await namesIn(join(folders[0]!, "out", saved!))).includes("model.safetensors"));
      assert.deepEqual(await namesIn(folders[1]!), []);
    }),
);

/** Weights and moments that take a while to be written. */
const LARGE = ["--hidden", "256", "--checkpoint-every", "1"];

/** Runs a job of which a rank is killed when the folder of step 2 appears; what is left in `out`. */
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

/** The process that is a rank of the job whose checkpoints go to a folder. */
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
      const whole = await onWorkers(...trainArgs(PAIR), ...LARGE, "--out", join(folder, "whole"));
      for (let tries = 1;; tries++) {
        const out = join(folder, `${tries}`), left = await killedAmidWriting(launcher, out);
        assert.ok(left.includes("step-00000001"), left.join());
        const goneOn = await onWorkers(...trainArgs(PAIR), ...LARGE, "--resume", out);
        assert.equal(bitsOf(goneOn).at(-1), bitsOf(whole).at(-1));
        // The folder may have been whole before the signal came.
        if (left.some((name) => name.startsWith(".step-00000002-"))) {
          assert.ok(!left.includes("step-00000002"));
          return assert.match(goneOn.stderr, /step-00000002.*received a part; it is passed over/);
        }
        assert.ok(tries < 5, `the kill must come amid a write once, received ${left}`);
      }
    }),
  { once: true },
);

const FAULTY = fileURLToPath(new URL("./faulty_entry.ts", import.meta.url));

mpiTest(
  "workers that fail amid a job begin again from its shards, with the same bits",
  (launcher) =>
    inFolder(async (folder) => {
      // Without flushes the pipe must run empty where it did, and checkpoints are where it does.
      const args = (
        runtime: string,
        ...kinds: string[]
      ) => [
        "run",
        "-A",
        "--no-check",
        FAULTY,
        runtime,
        "pipedream-2bw",
        join(folder, runtime),
        ...kinds,
      ];
      const faulty = await runJob(launcher, [2, ...args("mpi", "throw", "close")]);
      assert.deepEqual(bitsOf(faulty), bitsOf(await onWorkers(...args("workers"))));
      assert.equal(faulty.stderr.match(/going on from the last committed step$/gm)?.length, 2);
    }),
  { once: true },
);
