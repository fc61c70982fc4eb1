import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import { type JobOutput, mpiTest, runCommand, runJob } from "./launchers.ts";
import { RUNS, trainArgs } from "./train_runs.ts";

const JOIN = fileURLToPath(new URL("./join_entry.ts", import.meta.url));
const TEXT = fileURLToPath(import.meta.url);
const ON_RANKS = [...trainArgs(RUNS[1]!), "--runtime", "mpi"];

/** A job of two ranks that says one sentence, and exits with 2. */
function assertRefused({ code, stdout, stderr }: JobOutput, ...parts: readonly string[]): void {
  assert.equal(code, 2, stdout + stderr);
  for (const part of parts) assert.ok(stderr.includes(part), `${part}: ${stderr}`);
  assert.equal(stderr.match(/^(Cannot|Requires)/gm)?.length, 1, stderr);
  assert.ok(!stdout.includes("{") && !stderr.includes(" at "), stdout + stderr);
}

mpiTest("what rank 0 refuses ends the job with its one sentence", async (launcher) => {
  for (
    const [args, sentence] of [
      [
        "--workers 3",
        "there must be a rank for each of the 3 workers, or a map of them, received 2",
      ],
      ["--workers 2 --map 0,2", "a rank below 2 to each of the 2 workers"],
      ["--wokers 2", "did you mean --workers"],
      ["--config /nonexistent.json", "/nonexistent.json"],
    ] as const
  ) {
    assertRefused(await runJob(launcher, [2, ...ON_RANKS, ...args.split(" ")]), sentence);
  }
});

mpiTest("a library that is not the launcher's is refused by what it is", async (launcher) => {
  const other = { MPICH: "libmpi.so.40", "Open MPI": "libmpich.so.12" }[launcher.name]!;
  const must = `Cannot use MPI on ${Deno.hostname()}: the launcher is ${launcher.name}, whose`;
  const install = `; on Debian, apt-get install ${launcher.library.package}, or name another`;
  for (
    const [library, ...parts] of [
      [TEXT, must, "invalid ELF header", install],
      ["libc.so.6", must, "received libc.so.6, which has not all functions of MPI", install],
      [other, `must be that of the launcher, ${launcher.name}, received ${other}, which is `],
    ] as const
  ) {
    const output = await runJob(launcher, [2, ...ON_RANKS, "--mpi-library", library]);
    if (output.stderr.includes("does not load") && library === other) continue; // not installed
    assertRefused(output, ...parts);
  }
});

const canHide = await hideAndRun(["none"], "true").then(({ code }) => code === 0, () => false);

mpiTest("a library that is not installed is named with its package", async (launcher) => {
  const { command, args, library } = launcher;
  const output = await hideAndRun(
    [library.name],
    ...[command, ...args, "-n", "2", Deno.execPath(), ...ON_RANKS],
  );
  const install = `on Debian, apt-get install ${library.package}, or name another`;
  assertRefused(output, `received ${library.name}, which does not load`, install);
}, { ignore: !canHide });

/** Runs a command to which libraries of the system are not there. */
function hideAndRun(libraries: readonly string[], ...command: string[]): Promise<JobOutput> {
  const script = `
    folder=$(dirname $(ldconfig -p | sed -n 's|.* /|/|p' | grep /libc.so.6))
    over=$(mktemp -d) && mount -t tmpfs none $over && mkdir $over/upper $over/work
    for one in ${libraries.join(" ")}; do mknod $over/upper/$one c 0 0; done
    mount -t overlay none -o lowerdir=$folder,upperdir=$over/upper,workdir=$over/work $folder &&
    umount -l $over && rmdir $over && exec "$@"`;
  return runCommand(["unshare", "--mount", "sh", "-c", script, "-", ...command]);
}

mpiTest("ranks whose library knows nothing of the others are refused", async ({ name, alone }) => {
  const ranks = [0, 1].map((rank) => runCommand([Deno.execPath(), ...ON_RANKS], alone(rank, 2)));
  const [first, second] = await Promise.all(ranks) as [JobOutput, JobOutput];
  assertRefused(first, "a launcher that has started 2 ranks and a library, ", `(${name} `);
  assert.deepEqual(second, { code: 2, stdout: "", stderr: "" });
});

mpiTest("a rank that never joins is not waited for for ever", async (launcher) => {
  const { code, stdout, stderr } = await runJob(launcher, [
    3,
    "run",
    "-A",
    "--no-check",
    JOIN,
    "1",
  ]);
  assert.notEqual(code, 0);
  assert.equal(stdout.match(/has joined/g), null);
  if (launcher.name === "MPICH") {
    assert.match(
      stderr,
      /Cannot join the job: all of its 3 ranks must open MPI within 2 s, received/,
    );
  }
});

mpiTest("a permission that a rank lacks is named once", async (launcher) => {
  for (const kind of ["ffi", "net"]) {
    const [run, ...rest] = ON_RANKS as [string, ...string[]];
    const output = await runJob(launcher, [2, run, `--deny-${kind}`, ...rest]);
    assertRefused(
      output,
      `Requires ${kind} access to "`,
      `run again with the --allow-${kind} flag`,
    );
  }
});

Deno.test("without a launcher, runtime mpi says which to use", async () => {
  const output = await runCommand([Deno.execPath(), ...ON_RANKS]);
  assertRefused(
    output,
    "it must be started by a launcher of MPI, such as mpirun -n 4, received none",
  );
});
