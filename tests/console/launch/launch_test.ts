/** `troupe launch` with the launchers that this machine has: whatever dies, the bits are the same. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { readCheckpoint } from "../../../actors/mod.ts";
import { readFinished } from "../../../actors/checkpoints/marks/finished.ts";
import { readRecord } from "../../../console/run_files/read_record.ts";
import { once } from "../../actors/runs.ts";
import { type Launcher, mpiTest } from "../../actors/runtime/mpi/launchers.ts";
import { inFolder, jsonLines, ROOT, trainJson } from "../command.ts";
import { Launched, mpiFlag, SMALL_JOB } from "./launched.ts";

const STEPS = ["--steps", "12"];

/** More steps than a test waits for. */
const LONG = ["--steps", "5000"];

/** Registers a test for each launcher, with a folder of its own. */
const test = (
  name: string,
  fn: (launcher: Launcher, out: string) => Promise<void>,
  options?: { readonly once: boolean },
) => mpiTest(name, (launcher) => inFolder((folder) => fn(launcher, join(folder, "out"))), options);

/** The hash of the run that nothing happens to. */
const unharmed = once(async (_: string) =>
  (await trainJson([...SMALL_JOB.slice(1), ...STEPS])).last.weightsHash as string
);

test(
  "a job whose ranks are killed ends with the bits of one left in peace",
  async (launcher, out) => {
    const job = new Launched([mpiFlag(launcher), "--", ...SMALL_JOB, ...STEPS, "--out", out]);
    // Before MPI is open.
    Deno.kill(await job.process(({ rank }) => rank === 1), "SIGKILL");
    await job.running.printed("stdout", /"step":6,/);
    Deno.kill(await job.process(({ rank }) => rank === 0), "SIGKILL");
    const { code, stdout, stderr } = await job.end(), weightsHash = await unharmed("");
    assert.equal(code, 0, stderr);
    const done = jsonLines(stdout).at(-1)!, finished = (await readFinished(out))!;
    assert.deepEqual([done.done, done.weightsHash], [true, weightsHash]);
    assert.deepEqual([finished.step, finished.weightsHash], [12, weightsHash]);
    assert.match(stderr, /^(Rank 1|The job|Process \d+).*; going on from the beginning \(restart/m);
    assert.match(stderr, /^Rank 0 on \S+ died of Killed \(signal 9\); going on from step [46] /m);
    assert.match(stderr, /^Going on from \S+, after step [46]\.$/m);
  },
);

test("a rank that is stopped is noticed, and the job is started again", async (launcher, out) => {
  const flags = [...SMALL_JOB, ...STEPS, "--out", out, "--stall-timeout", "3"];
  const job = new Launched([mpiFlag(launcher), "--", ...flags]);
  await job.running.printed("stdout", /"step":5,/);
  // Of other ranks rank 0 tells, of rank 0 the launch.
  const [stopped, sentence] = launcher.name === "MPICH"
    ? [0, /^The job was ended, as rank 0 has not moved for 3 s; going on from step/m]
    : [1, /stalled for 3000 ms: .*worker-1 does not answer/] as const;
  Deno.kill(await job.process(({ rank }) => rank === stopped), "SIGSTOP");
  const { code, stdout, stderr } = await job.end();
  assert.equal(code, 0, stderr);
  assert.equal(jsonLines(stdout).at(-1)!.weightsHash, await unharmed(""));
  assert.match(stderr, sentence);
});

test(
  "Ctrl-C saves a checkpoint and ends the job, and a new launch goes on from it",
  async (launcher, out) => {
    const flags = [mpiFlag(launcher), "--", ...SMALL_JOB, "--out", out];
    const job = new Launched([...flags, ...LONG]);
    await job.running.printed("stdout", /"step":3,/);
    job.running.interrupt("group");
    const { code, stdout, stderr } = await job.end(), last = jsonLines(stdout).at(-1)!;
    assert.equal(code, 130, stderr);
    assert.equal(last.interrupted, true);
    const { path, step } = (await readCheckpoint(out))!;
    assert.deepEqual([last.checkpoint, last.steps], [path, step]);
    assert.equal(await readFinished(out), undefined);

    const steps = ["--steps", `${step + 2}`];
    const refused = await new Launched([...flags, ...steps]).end();
    assert.equal(refused.code, 2);
    assert.match(
      refused.stderr,
      /^Cannot launch: .* must hold no checkpoints but .*; add --resume /,
    );
    const resumed = await new Launched([...flags, ...steps, "--resume", out]).end();
    assert.equal(resumed.code, 0, resumed.stderr);
    assert.equal(jsonLines(resumed.stdout).at(-1)!.steps, step + 2);
  },
);

test(
  "a launch that overwrites begins anew, and goes on from its own when a rank dies",
  async (launcher, out) => {
    // Another run, further on than this one will be.
    await trainJson([...SMALL_JOB.slice(1), "--steps", "16", "--seed", "2", "--out", out]);
    const flags = [mpiFlag(launcher), "--", ...SMALL_JOB, ...STEPS, "--out", out, "--overwrite"];
    const job = new Launched(flags);
    await job.running.printed("stdout", /"step":5,/);
    Deno.kill(await job.process(({ rank }) => rank === 1), "SIGKILL");
    const { code, stdout, stderr } = await job.end();
    assert.equal(code, 0, stderr);
    assert.match(stderr, /going on from step [46] /);
    assert.equal(jsonLines(stdout).at(-1)!.weightsHash, await unharmed(""));
    assert.equal((await readCheckpoint(out))!.step, 12);
    assert.equal(readRecord(out)!.starts.length, 2);
  },
  { once: true },
);

test(
  "when the launch is killed, or what starts ranks on a host, nobody is left",
  async (launcher, out) => {
    const starter = launcher.name === "MPICH" ? "proxy" : "mpirun";
    const job = new Launched([mpiFlag(launcher), "--", ...SMALL_JOB, ...LONG, "--out", out]);
    await job.running.printed("stdout", /"step":5,/);
    Deno.kill(await job.process(({ kind }) => kind === starter), "SIGKILL");
    await job.running.printed("stderr", /^Going on from/m);
    job.running.kill();
    await job.end();
  },
);

test(
  "ranks on other hosts are started by the shell that is named, and again when one dies",
  async (launcher, out) => {
    const hosts = `${out}.hosts`, shell = `${out}.sh`;
    await Deno.writeTextFile(hosts, "node1:1\nnode2:1\n");
    // The words behind the name of the host, run here.
    const script = '#!/bin/bash\n[ "$1" = -x ] && shift\nshift\nexec bash -c "$*"\n';
    await Deno.writeTextFile(shell, script, { mode: 0o755 });
    const flags = [mpiFlag(launcher), "--hosts", hosts, "--remote-shell", shell];
    const job = new Launched([...flags, "--", ...SMALL_JOB, ...STEPS, "--out", out]);
    await job.running.printed("stdout", /"step":5,/);
    Deno.kill(await job.process(({ rank }) => rank === 1), "SIGKILL");
    const { code, stdout, stderr } = await job.end();
    assert.equal(code, 0, stderr);
    assert.equal(jsonLines(stdout).at(-1)!.weightsHash, await unharmed(""));
    // Of several hosts hydra tells a signal as an exit code.
    assert.match(stderr, /^Rank 1 on \S+ .*(signal 9\)|exit code 9); going on from step [46] /m);
  },
);

test(
  "a command of one's own is launched, and goes on from its own checkpoints",
  async (launcher, out) => {
    const script = join(ROOT, "tests/console/launch/own_train.ts");
    const flags = [mpiFlag(launcher), "--ranks", "2", "--out", out, "--"];
    const command = [Deno.execPath(), "run", "-A", "--no-check", script, out];
    const job = new Launched([...flags, ...command]);
    await job.running.printed("stdout", /^step 4$/m);
    Deno.kill(await job.process(({ rank }) => rank === 1), "SIGKILL");
    const { code, stdout, stderr } = await job.end();
    assert.equal(code, 0, stderr);
    const { weightsHash } = (await readFinished(out))!;
    assert.match(stdout, new RegExp(`^${weightsHash}\n$`, "m"));
    assert.match(stderr, /going on from step [2-9]/);
  },
  { once: true },
);

test(
  "what rank 0 refuses is not tried again; what always fails, only so often",
  async (launcher, out) => {
    const mpi = mpiFlag(launcher);
    const map = ["--map", "0,0,1", "--out", out];
    const refused = await new Launched([mpi, "--", ...SMALL_JOB, ...map]).end();
    assert.equal(refused.code, 2, refused.stderr);
    assert.match(refused.stderr, /the map must give a rank below 2 to each of the 2 workers/);
    assert.doesNotMatch(refused.stderr, /restart/);

    // The exit code alone is no success.
    for (const [command, code] of [[["true"], 0], [["sh", "-c", "exit 3"], 3]] as const) {
      const flags = [mpi, "--ranks", "1", "--out", out, "--max-restarts", "1", "--", ...command];
      const failed = await new Launched(flags).end();
      assert.equal(failed.code, 1, failed.stderr);
      assert.equal(failed.stderr.match(/\(restart 1 of 1\)$/gm)?.length, 1, failed.stderr);
      assert.match(
        failed.stderr,
        new RegExp(`^Cannot go on: .*exit code ${code}; it stands at the b`, "m"),
      );
    }
  },
);
