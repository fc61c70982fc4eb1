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
  /** Its library, and the package that brings that. */
  readonly library: { readonly name: string; readonly package: string };
  /** What it tells a rank in its environment, as a launcher of another installation would too. */
  readonly alone: (rank: number, size: number) => Readonly<Record<string, string>>;
  /** Its arguments for a job on several hosts: their addresses with the ranks of each, such as
   * 10.1.0.1:2, and the program that runs a command on one of them as `ssh` would. */
  readonly onHosts: (hosts: string, shell: string) => readonly string[];
}

/** Both of them. */
export const LAUNCHERS: readonly Launcher[] = [
  {
    name: "MPICH",
    package: "mpich",
    command: "mpirun.mpich",
    args: [],
    library: { name: "libmpich.so.12", package: "libmpich12" },
    alone: (rank, size) => ({ PMI_RANK: `${rank}`, PMI_SIZE: `${size}` }),
    onHosts: (hosts, shell) => ["-launcher", "ssh", "-launcher-exec", shell, "-hosts", hosts],
  },
  {
    name: "Open MPI",
    package: "openmpi-bin",
    command: "mpirun.openmpi",
    args: ["--oversubscribe"],
    library: { name: "libmpi.so.40", package: "libopenmpi3" },
    alone: (rank, size) => ({
      OMPI_COMM_WORLD_RANK: `${rank}`,
      OMPI_COMM_WORLD_SIZE: `${size}`,
      OMPI_COMM_WORLD_LOCAL_RANK: `${rank}`,
    }),
    onHosts: (
      hosts,
      shell,
    ) => ["--mca", "plm_rsh_agent", shell, "--mca", "btl", "tcp,self", "--host", hosts],
  },
];

/** Open MPI wants to be told that root means it; shared memory of MPICH is in the way of no test. */
export const ENVIRONMENT = { OMPI_ALLOW_RUN_AS_ROOT: "1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM: "1" };

/** Whether this machine has one. */
export const isThere = ({ command }: Launcher) =>
  (Deno.env.get("PATH") ?? "").split(":").some((folder) => {
    try {
      return Deno.statSync(`${folder}/${command}`).isFile;
    } catch {
      return false;
    }
  });

/** Set where each test is to run on every MPI, as `deno task test:mpi` does. */
const ON_EACH = "TROUPE_TEST_EACH_MPI";

/**
 * Registers a test for each launcher; where it is missing, the test is skipped by its name.
 *
 * @param options `once`: it is about what no MPI has a part in, and one of them is enough, unless the
 * environment says otherwise.
 */
export function mpiTest(
  name: string,
  fn: (launcher: Launcher) => Promise<void>,
  { ignore = false, once = false } = {},
): void {
  const there = LAUNCHERS.filter(isThere);
  const enough = once && !Deno.env.has(ON_EACH) ? there.slice(0, 1) : there;
  for (const launcher of LAUNCHERS) {
    if (there.includes(launcher) && !enough.includes(launcher)) continue;
    Deno.test({
      name: `${launcher.name}: ${name}`,
      ignore: ignore || !there.includes(launcher),
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

/** A number of ranks and what they run with Deno. */
export type Part = readonly [ranks: number, ...args: string[]];

/** Runs Deno on ranks. */
export const runJob = (launcher: Launcher, ...parts: readonly Part[]): Promise<JobOutput> =>
  runCommand([launcher.command, ...launcher.args, ...commandsOf(parts)]);

/** The command line of parts, for a launcher; `by` runs each. */
export const commandsOf = (parts: readonly Part[], by: readonly string[] = []): readonly string[] =>
  parts.flatMap(([ranks, ...args], i) => [
    ...i > 0 ? [":"] : [],
    "-n",
    String(ranks),
    ...by,
    Deno.execPath(),
    ...args,
  ]);

/** A job that takes longer hangs: it is ended, and its test fails, in milliseconds. */
const HANG_MS = 180_000;

/** Runs a command with what launchers want to know of their user. */
export async function runCommand(
  [command, ...args]: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<JobOutput> {
  const { code, stdout, stderr } = await new Deno.Command(command!, {
    args,
    env: { ...ENVIRONMENT, NO_COLOR: "1", ...env },
    stdin: "null",
    signal: AbortSignal.timeout(HANG_MS),
  }).output();
  const [out, err] = [stdout, stderr].map((bytes) => new TextDecoder().decode(bytes));
  return { code, stdout: out!, stderr: err! };
}

/** The rows of a run that has ended well. */
export function rowsOf({ code, stdout, stderr }: JobOutput): readonly Record<string, unknown>[] {
  assert.equal(code, 0, stderr);
  return stdout.trimEnd().split("\n").map((line) => JSON.parse(line));
}

/** The last line of a run that has ended well, as JSON. */
export const doneOf = (output: JobOutput): Record<string, unknown> => rowsOf(output).at(-1)!;

/** What must not depend on where a run was: its losses, norms, and the hash of its weights. */
export const bitsOf = (output: JobOutput): readonly unknown[] =>
  rowsOf(output).map(({ loss, gradNorm, weightsHash }) => weightsHash ?? [loss, gradNorm]);
