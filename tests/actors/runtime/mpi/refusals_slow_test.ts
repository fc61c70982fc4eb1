/** Jobs that no rank can join, or that rank 0 refuses: each says one sentence. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { inFolder } from "../../../in_folder.ts";
import { ROOT } from "../../../repository.ts";
import { type JobOutput, mpiTest, runCommand, runJob, trainArgs } from "./launchers.ts";

const RUN = trainArgs({ schedule: "1f1b", workers: 2 }).concat("--runtime", "mpi");

/** Expects that a job says one sentence, with these parts, and exits with 2. */
function assertRefused({ code, stdout, stderr }: JobOutput, ...parts: readonly string[]): void {
  assert.equal(code, 2, stdout + stderr);
  assert.equal(stdout, "");
  for (const part of parts) assert.ok(stderr.includes(part), `${part}: ${stderr}`);
  assert.equal(stderr.match(/^(Cannot|Requires)/gm)?.length, 1, stderr);
  assert.doesNotMatch(stderr, /^ +at /m);
}

mpiTest("a refusal of rank 0 ends the job with one sentence", async (launcher) => {
  const sentence = "there must be a rank for each of the 3 workers, or a map of them, received 2";
  assertRefused(await runJob(launcher, [2, ...RUN, "--workers", "3"]), sentence);
});

mpiTest(
  "ranks with other options or other code are refused, with both values",
  (launcher) =>
    inFolder(async (copy) => {
      assertRefused(
        await runJob(launcher, [1, ...RUN, "--seed", "1"], [1, ...RUN, "--seed=2"]),
        "Cannot join the job: --seed must be the same on all ranks, received 1 on rank 0 and 2 on rank 1",
      );
      await new Deno.Command("cp", { args: ["-r", ...PARTS, copy], cwd: ROOT }).output();
      const changed = join(copy, "actors", "pipeline", "worker", "compute.ts");
      await Deno.writeTextFile(changed, "\n", { append: true });
      const other = RUN.map((arg) => arg.replace(/.*cli\.ts$/, join(copy, "cli.ts")));
      const output = await runJob(launcher, [1, ...RUN], [1, ...other]);
      assertRefused(output, "hash of Troupe's modules must be the same on all ranks");
      assert.match(output.stderr, /, received (\w{64}) on rank 0 and (?!\1)\w{64} on rank 1$/m);
    }),
);

/** The files and folders of the command. */
const PARTS = ["actors", "kernels", "schedules", "console", "compat", "cli.ts", "mod.ts"]
  .concat("testing.ts", "deno.json", "deno.lock");

mpiTest("a library that is not the launcher's is refused by its name", async (launcher) => {
  const other = { MPICH: "libmpi.so.40", "Open MPI": "libmpich.so.12" }[launcher.name]!;
  const output = await runJob(launcher, [2, ...RUN, "--mpi-library", other]);
  if (output.stderr.includes("does not load")) return; // it is not installed
  const must = `must be that of the launcher, ${launcher.name}, received ${other}, which is `;
  assertRefused(output, must);
});

const canHide = await hideAndRun(["none"], "true").then(({ code }) => code === 0, () => false);

mpiTest("a library that is not installed is named with its package", async (launcher) => {
  const { command, args, library } = launcher;
  const output = await hideAndRun(
    [library.name],
    ...[command, ...args, "-n", "2", Deno.execPath(), ...RUN],
  );
  const install = `on Debian, apt-get install ${library.package}, or name another`;
  assertRefused(output, `received ${library.name}, which does not load`, install);
}, { need: { isThere: canHide, reason: "root, to hide libraries" } });

/** Runs a command for which libraries of the system are hidden. */
function hideAndRun(libraries: readonly string[], ...command: string[]): Promise<JobOutput> {
  const script = `
    folder=$(dirname $(ldconfig -p | sed -n 's|.* /|/|p' | grep /libc.so.6))
    over=$(mktemp -d) && mount -t tmpfs none $over && mkdir $over/upper $over/work
    for one in ${libraries.join(" ")}; do mknod $over/upper/$one c 0 0; done
    mount -t overlay none -o lowerdir=$folder,upperdir=$over/upper,workdir=$over/work $folder &&
    umount -l $over && rmdir $over && exec "$@"`;
  return runCommand(["unshare", "--mount", "sh", "-c", script, "-", ...command]);
}

mpiTest(
  "ranks whose library does not know the other ranks are refused",
  async ({ name, alone }) => {
    const ranks = [0, 1].map((rank) => runCommand([Deno.execPath(), ...RUN], alone(rank, 2)));
    const [first, second] = await Promise.all(ranks) as [JobOutput, JobOutput];
    assertRefused(first, "a launcher that has started 2 ranks and a library, ", `(${name} `);
    assert.deepEqual(second, { code: 2, stdout: "", stderr: "" });
  },
);

const JOB = import.meta.resolve("../../../../actors/runtime/transports/mpi/job.ts");

/** A rank that joins its job; rank 1 ends before. */
const JOIN = `import { launchedRanks, openJob } from "${JOB}";
if (launchedRanks().rank === 1) Deno.exit(3);
await openJob({ joinMs: 2000 }).then(() => console.log("joined"), (error) => {
  console.error(error.message);
  Deno.exit(1);
});`;

mpiTest("ranks do not wait for ever for one that never joins", async (launcher) => {
  const output = await runJob(launcher, [3, "eval", "--no-check", "--ext=js", JOIN]);
  assert.notEqual(output.code, 0);
  assert.equal(output.stdout.match(/joined/g), null);
  if (launcher.name === "MPICH") {
    const sentence = "Cannot join the job: all of its 3 ranks must open MPI within 2 s, received";
    assert.ok(output.stderr.includes(sentence), output.stderr);
  }
});

mpiTest("a permission that ranks lack is named once", async (launcher) => {
  for (const kind of ["ffi", "net"]) {
    const [run, ...rest] = RUN as [string, ...string[]];
    const output = await runJob(launcher, [2, run, `--deny-${kind}`, ...rest]);
    assertRefused(
      output,
      `Requires ${kind} access to "`,
      `run again with the --allow-${kind} flag`,
    );
  }
});

Deno.test("without a launcher, the runtime mpi is refused with the launcher to use", async () => {
  const output = await runCommand([Deno.execPath(), ...RUN]);
  assertRefused(
    output,
    "it must be started by a launcher of MPI, such as mpirun -n 2, received none",
  );
});
