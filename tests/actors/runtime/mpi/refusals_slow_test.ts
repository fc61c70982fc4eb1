/** Jobs that no rank can join, or that rank 0 refuses: each says one sentence. */

import assert from "node:assert/strict";
import { join } from "node:path";
import type { Facts } from "../../../../actors/run/program_facts.ts";
import { type Outcome, ROOT, runHere } from "../../../console/command.ts";
import { folderTest } from "../../../in_folder.ts";
import { JOB, mpiTest, RANK_TRAIN, runCommand, runJob, TRAIN } from "./launchers.ts";

/** Expects that a job says one sentence, with these parts, and exits with 2. */
function assertRefused({ code, stdout, stderr }: Outcome, ...parts: readonly string[]): void {
  assert.equal(code, 2, stdout + stderr);
  assert.equal(stdout, "");
  for (const part of parts) assert.ok(stderr.includes(part), `${part}: ${stderr}`);
  assert.equal(stderr.match(/^(Cannot|Requires)/gm)?.length, 1, stderr);
  assert.doesNotMatch(stderr, /^ +at /m);
}

mpiTest("a refusal of rank 0, or of all ranks, is one sentence", async (launcher) => {
  const ofTwo = await runJob(launcher, [2, ...RANK_TRAIN, "--workers", "3"]);
  assertRefused(ofTwo, "a rank for each of the 3 workers, or a map of them, received 2");
  const cases = [
    [["--mpi-interface", "eth7"], "Cannot use --mpi-interface eth7: it must be "],
    [["--mpi-library", "libc.so.6"], "received libc.so.6, which has not all functions of MPI;"],
  ] as const;
  for (const [flags, sentence] of cases) {
    const ofOne = [Deno.execPath(), ...RANK_TRAIN, ...flags];
    assertRefused(await runCommand(ofOne, launcher.alone(0, 1)), sentence);
  }
});

const LEAD = `import { lead } from "${import.meta.resolve("../../../../actors/run/mpi_run.ts")}";
await lead({});`;

mpiTest("ranks with another option or program are refused, with both values", async (launcher) => {
  assertRefused(
    await runJob(launcher, [1, ...RANK_TRAIN, "--seed", "1"], [1, ...RANK_TRAIN, "--seed=2"]),
    "Cannot join the job: --seed must be the same on all ranks, received 1 on rank 0 and 2 on rank 1",
  );
  const other = await runJob(launcher, [1, "eval", "--ext=js", LEAD], [1, "run", "-A", JOB]);
  assert.notEqual(other.code, 0);
  const another = /hash of the program must .*, received NotFound on rank 0 and \w{64} on rank 1$/m;
  assert.match(other.stderr, another);
});

folderTest("a change of any module is a change of what ranks must have in common", async (copy) => {
  const rooms = ["actors", "kernels", "schedules", "deno.json"];
  await new Deno.Command("cp", { args: ["-r", ...rooms, copy], cwd: ROOT }).output();
  const { programFacts } = await import(join(copy, "actors/run/program_facts.ts")) as {
    readonly programFacts: () => Facts;
  };
  const changed = join(copy, "actors/pipeline/compute.ts"), before = programFacts();
  await Deno.writeTextFile(changed, "\n", { append: true });
  const after = programFacts(), modules = "the hash of Troupe's modules";
  assert.notEqual(after[modules], before[modules]);
  assert.deepEqual({ ...after, [modules]: before[modules] }, before);
});

mpiTest("ranks whose library does not know the others are refused", async ({ name, alone }) => {
  const ranks = [0, 1].map((rank) => runCommand([Deno.execPath(), ...RANK_TRAIN], alone(rank, 2)));
  const [first, second] = await Promise.all(ranks) as [Outcome, Outcome];
  assertRefused(first, "a launcher that has started 2 ranks and a library, ", `(${name} `);
  assert.deepEqual(second, { code: 2, stdout: "", stderr: "" });
});

const OPEN = import.meta.resolve("../../../../actors/transports/mpi/transport.ts");
const ABI = import.meta.resolve("../../../../actors/transports/mpi/library.ts");

/** A rank that joins its job; rank 1 ends before. */
const JOIN = `import { openJob } from "${OPEN}";
import { launchedRanks } from "${ABI}";
if (launchedRanks().rank === 1) Deno.exit(3);
await openJob({ joinMs: 1000 }).then(() => console.log("joined"), (error) => {
  console.error(error.message);
  Deno.exit(1);
});`;

mpiTest("ranks do not wait forever for a rank that never joins", async (launcher) => {
  const output = await runJob(launcher, [3, "eval", "--no-check", "--ext=js", JOIN]);
  assert.notEqual(output.code, 0);
  assert.equal(output.stdout.match(/joined/g), null);
  if (launcher.name === "MPICH") {
    const sentence = "Cannot join the job: all of its 3 ranks must open MPI within 1 s, received";
    assert.ok(output.stderr.includes(sentence), output.stderr);
  }
});

mpiTest("a permission that ranks lack is named once", async (launcher) => {
  const without = (kind: string) => RANK_TRAIN.toSpliced(1, 0, `--deny-${kind}`);
  const outputs = {
    ffi: await runJob(launcher, [2, ...without("ffi")]),
    net: await runCommand([Deno.execPath(), ...without("net")], launcher.alone(0, 1)),
  };
  for (const [kind, output] of Object.entries(outputs)) {
    assertRefused(output, `Requires ${kind} access to "`, `again with the --allow-${kind} flag`);
  }
});

Deno.test("without a launcher, the runtime mpi is refused with the launcher to use", async () => {
  const must = "it must be started by a launcher of MPI, such as mpirun -n 2, received none";
  assertRefused(await runHere(["train", ...TRAIN, "--runtime", "mpi"]), must);
});
