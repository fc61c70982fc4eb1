/** The launchers of MPI that this machine has, as Debian's packages mpich and openmpi-bin name them. */

import assert from "node:assert/strict";

/** A launcher. */
export interface Launcher {
  readonly name: string;
  /** The package that brings it. */
  readonly package: string;
  readonly command: string;
  /** Before everything else. */
  readonly args: readonly string[];
}

/** Both of them. */
export const LAUNCHERS: readonly Launcher[] = [
  { name: "MPICH", package: "mpich", command: "mpirun.mpich", args: [] },
  {
    name: "Open MPI",
    package: "openmpi-bin",
    command: "mpirun.openmpi",
    args: ["--oversubscribe"],
  },
];

/** Open MPI wants to be told that root means it; shared memory of MPICH is in the way of no test. */
const ENVIRONMENT = { OMPI_ALLOW_RUN_AS_ROOT: "1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM: "1" };

const isThere = ({ command }: Launcher) =>
  (Deno.env.get("PATH") ?? "").split(":").some((folder) => {
    try {
      return Deno.statSync(`${folder}/${command}`).isFile;
    } catch {
      return false;
    }
  });

/** Registers a test for each launcher; where it is missing, the test is skipped by its name. */
export function mpiTest(name: string, fn: (launcher: Launcher) => Promise<void>): void {
  for (const launcher of LAUNCHERS) {
    Deno.test({
      name: `${launcher.name}: ${name}`,
      ignore: !isThere(launcher),
      fn: () => fn(launcher),
    });
  }
}

/** What a job has said, and how it has ended. */
export interface JobOutput {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs Deno on ranks: each part is a number of ranks and what they run. */
export async function runJob(
  { command, args }: Launcher,
  ...parts: readonly (readonly [ranks: number, ...args: string[]])[]
): Promise<JobOutput> {
  const all = parts.flatMap(([ranks, ...one], i) => [
    ...i > 0 ? [":"] : [],
    "-n",
    String(ranks),
    Deno.execPath(),
    ...one,
  ]);
  const { code, stdout, stderr } = await new Deno.Command(command, {
    args: [...args, ...all],
    env: { ...ENVIRONMENT, NO_COLOR: "1" },
    stdin: "null",
  }).output();
  const [out, err] = [stdout, stderr].map((bytes) => new TextDecoder().decode(bytes));
  return { code, stdout: out!, stderr: err! };
}

/** The last line of a run that has ended well, as JSON. */
export function doneOf({ code, stdout, stderr }: JobOutput): Record<string, unknown> {
  assert.equal(code, 0, stderr);
  return JSON.parse(stdout.trimEnd().split("\n").at(-1)!);
}
