/** `troupe launch` with the launchers of this machine: the bits are the same after any failure. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { readCheckpoint } from "../../../actors/checkpoints/read.ts";
import { readFinished } from "../../../actors/checkpoints/markers.ts";
import { readRecord } from "../../../actors/run_folder/read.ts";
import { once } from "../../actors/runs.ts";
import { isThere, type Launcher, LAUNCHERS, mpiTest } from "../../actors/runtime/mpi/launchers.ts";
import { folderTest, inFolder } from "../../in_folder.ts";
import { testNeeding } from "../../needs.ts";
import {
  jsonLines,
  type Outcome,
  printedHere,
  ROOT,
  runProgram,
  runTroupe,
  trainHere,
} from "../command.ts";
import { type JobProcess, Launched, mpiFlag, SMALL_JOB } from "./launched.ts";

const STEPS = ["--steps", "12"];

/** Registers a test for a launcher, with a folder for checkpoints. */
const test = (
  name: string,
  fn: (launcher: Launcher, out: string) => Promise<void>,
) => mpiTest(name, (launcher) => inFolder((folder) => fn(launcher, join(folder, "out"))));

/** The hash of the undisturbed run. */
const unharmed = once(async (_: string) =>
  (await trainHere([...SMALL_JOB.slice(1), ...STEPS])).last.weightsHash
);

const isRank = (wanted: number) => ({ rank }: JobProcess) => rank === wanted;

/** Signals a process of a job once it has printed a step. */
async function signal(
  job: Launched,
  step: number,
  wanted: (one: JobProcess) => boolean,
  how: Deno.Signal = "SIGKILL",
): Promise<void> {
  await job.running.printed("stdout", new RegExp(`"step":${step},`));
  Deno.kill(await job.process(wanted), how);
}

/** Expects exit code 0 and the bits of the undisturbed run. */
async function assertUnharmed({ code, stdout, stderr }: Outcome): Promise<void> {
  assert.equal(code, 0, stderr);
  const done = jsonLines(stdout).at(-1)!;
  assert.deepEqual([done.done, done.weightsHash], [true, await unharmed("")]);
}

/** A fake remote shell: makes two hosts of this one, and runs their commands here. */
async function hostFlags(out: string): Promise<string[]> {
  const hosts = `${out}.hosts`, shell = `${out}.sh`;
  await Deno.writeTextFile(hosts, "node1:1\nnode2:1\n");
  const script = '#!/bin/bash\n[ "$1" = -x ] && shift\nshift\nexec bash -c "$*"\n';
  await Deno.writeTextFile(shell, script, { mode: 0o755 });
  return ["--hosts", hosts, "--remote-shell", shell];
}

test("a job with killed ranks overwrites another run, and ends unharmed", async (launcher, out) => {
  // The other run has a later step than this one reaches.
  await trainHere([...SMALL_JOB.slice(1), "--steps", "16", "--seed", "2", "--out", out]);
  const flags = [mpiFlag(launcher), ...await hostFlags(out), "--"];
  const job = new Launched([...flags, ...SMALL_JOB, ...STEPS, "--out", out, "--overwrite"]);
  // Before MPI_Init.
  Deno.kill(await job.process(isRank(1)), "SIGKILL");
  await signal(job, 6, isRank(0));
  const outcome = await job.end(), { stderr } = outcome;
  await assertUnharmed(outcome);
  const finished = (await readFinished(out))!;
  assert.deepEqual([finished.step, finished.weightsHash], [12, await unharmed("")]);
  const first = /^(Rank 1|The job|Process \d+).*; continuing from the beginning \(restart/m;
  assert.match(stderr, first);
  // On several hosts hydra reports a signal as an exit code.
  const said = /^Rank 0 on \S+ .*(signal 9\).*|exit code 9); continuing from step [46] /m;
  assert.match(stderr, said);
  assert.match(stderr, /^Resuming from \S+, after step [46]\.$/m);
  assert.equal(readRecord(out)!.starts.length, 2);
});

test("a job goes on after a stopped rank, a dead proxy and Ctrl-C", async (launcher, out) => {
  const flags = [mpiFlag(launcher), "--", ...SMALL_JOB, "--out", out, "--stall-timeout", "3"];
  const job = new Launched([...flags, "--steps", "5000"]), { running } = job;
  // Rank 0 reports stalls of other ranks; the launch command reports a stall of rank 0.
  const [stopped, sentence, starter] = launcher.name === "MPICH"
    ? [0, /^The job was stopped: rank 0 made no progress for 3 s; continuing from step/m, "proxy"]
    : [1, /stalled for 3000 ms: .*worker-1 does not answer/, "mpirun"] as const;
  await signal(job, 3, isRank(stopped), "SIGSTOP");
  await running.printed("stderr", /^Resuming from/m);
  assert.match(running.stderr, sentence);
  Deno.kill(await job.process(({ kind }) => kind === starter), "SIGKILL");
  await running.printed("stderr", /(^Resuming from[^]*){2}/m);
  const before = running.stdout.length;
  await running.printed("stdout", new RegExp(`^[^]{${before}}[^]*"step":`));
  running.interrupt("group");
  const { code, stdout, stderr } = await job.end(), last = jsonLines(stdout).at(-1)!;
  assert.equal(code, 130, stderr);
  assert.equal(last.interrupted, true);
  const { path, step } = (await readCheckpoint(out))!;
  assert.deepEqual([last.checkpoint, last.steps], [path, step]);
  assert.equal(await readFinished(out), undefined);

  const more = ["--steps", `${step + 2}`, "--resume", out];
  assert.ok((await printedHere("launch", "--print", ...flags, ...more)).includes(more.join(" ")));
  assert.equal((await trainHere([...SMALL_JOB.slice(1), ...more])).last.steps, step + 2);
});

test("a command of the user is launched, and resumes", async (launcher, out) => {
  const script = join(ROOT, "tests/console/launch/own_train.ts");
  const flags = [mpiFlag(launcher), "--ranks", "2", "--out", out, "--"];
  const job = new Launched([...flags, Deno.execPath(), "run", "-A", "--no-check", script, out]);
  await job.running.printed("stdout", /^step 4$/m);
  Deno.kill(await job.process(isRank(1)), "SIGKILL");
  const { code, stdout, stderr } = await job.end();
  assert.equal(code, 0, stderr);
  const { weightsHash } = (await readFinished(out))!;
  assert.match(stdout, new RegExp(`^${weightsHash}\n$`, "m"));
  // Hydra may name a rank that it has killed itself.
  const said = /^Rank \d on \S+ died of Killed \(signal 9\).*; continuing from step [2-9]/m;
  assert.match(stderr, said);
});

folderTest("a launch whose output is closed ends its job", async (folder) => {
  const mpirun = `#!/bin/sh\n[ "$1" = --version ] && { echo HYDRA; exit; }\nexec timeout 15 yes`;
  await Deno.writeTextFile(join(folder, "mpirun"), mpirun, { mode: 0o755 });
  const launch =
    `"$@" -- train --schedule 1f1b --out ${folder}/out | head -1; echo \${PIPESTATUS[0]}`;
  const words = [Deno.execPath(), "run", "-A", "--no-check", "cli.ts", "launch"];
  const env = { PATH: `${folder}:${Deno.env.get("PATH")}` };
  const { stdout, stderr } = await runProgram("bash", ["-c", launch, "-", ...words], { env });
  assert.equal(stdout, "y\n141\n");
  assert.doesNotMatch(stderr, /pipe/);
});

/** A fake srun that runs MPICH's launcher, kills rank 1 of the first try, and counts tries. */
const SRUN = `#!/bin/bash
tasks=\${1#--ntasks=}; shift
[ "$1" = --mpi=pmi2 ] || exit 9
while [ "\${1#--}" != "$1" ]; do shift; done
echo try >> "$TRIES"
if [ $(wc -l < "$TRIES") = 1 ]; then
  mpirun.mpich -n "$tasks" sh -c '[ $PMI_RANK = 1 ] && kill -9 $$; exec "$0" "$@"' "$@" > /dev/null
  echo "srun: error: node1: task 1: Exited with exit code 7" >&2
  exit 7
fi
exec mpirun.mpich -n "$tasks" "$@"
`;

const MPICH = { isThere: isThere(LAUNCHERS[0]!), reason: "MPICH" };

folderTest("the script for sbatch starts ranks with srun, also when one died", async (folder) => {
  const script = join(folder, "a job.sh"), out = join(folder, "out");
  const flags = ["--mpi", "mpich", "--max-restarts", "2", "--slurm", script, "--"];
  const written = await runTroupe(["launch", ...flags, ...SMALL_JOB, ...STEPS, "--out", out]);
  const next = `Wrote ${script}; submit it with: sbatch '${script}'\n`;
  assert.deepEqual([written.code, written.stderr], [0, next]);
  const text = await Deno.readTextFile(script);
  assert.match(text, /^#!\/bin\/bash\n#SBATCH/);
  assert.match(text, /^# {3}srun --ntasks=2 --mpi=pmi2 /m);
  await Deno.writeTextFile(join(folder, "srun"), SRUN, { mode: 0o755 });
  const TRIES = join(folder, "tries"), PATH = `${folder}:${Deno.env.get("PATH")}`;
  const outcome = await runProgram("bash", [script], { env: { PATH, TRIES } });
  await assertUnharmed(outcome);
  assert.equal(await Deno.readTextFile(TRIES), "try\ntry\n");
  const died = /^Rank 1 on node1 ended too early with exit code 7; continuing from/m;
  assert.match(outcome.stderr, died);
}, (name, fn) => testNeeding(MPICH, name, fn));
