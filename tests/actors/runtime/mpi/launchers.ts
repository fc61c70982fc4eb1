/** The launchers of MPI that this machine has, as Debian's packages mpich and openmpi-bin name them. */

import { type Need, program, testNeeding } from "../../../needs.ts";
import assert from "node:assert/strict";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { IS_DEEP } from "../../../depth.ts";
import { type Outcome, ROOT, runProgram } from "../../../console/command.ts";

/** A launcher. */
export interface Launcher {
  readonly name: string;
  /** The package that brings it. */
  readonly package: string;
  readonly command: string;
  /** Arguments that come first. */
  readonly args: readonly string[];
  /** Its library, and the package that brings that. */
  readonly library: { readonly name: string; readonly package: string };
  /** The environment of its ranks, as a launcher of another installation has it too. */
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
    onHosts: (hosts, shell) =>
      `--mca plm_rsh_agent ${shell} --mca btl tcp,self --host ${hosts}`.split(" "),
  },
];

/** Lets root use Open MPI. */
export const ENVIRONMENT = { OMPI_ALLOW_RUN_AS_ROOT: "1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM: "1" };

/** Returns whether this machine has a launcher. */
export const isThere = ({ command }: Launcher): boolean => program(command).isThere;

const THERE = LAUNCHERS.filter(isThere);

/** True if each test runs on every MPI, as in `deno task test:deep`. */
export const ON_EACH = IS_DEEP;

/**
 * Registers a test for one launcher, and in deep runs for each; where it is missing, the test is
 * skipped by its name.
 *
 * @param fn with `isSmoke`, a short form is enough: another MPI has the whole test.
 * @param options `each`: for each launcher in every run; `need`: of the machine, beside the launcher.
 */
export function mpiTest(
  name: string,
  fn: (launcher: Launcher, isSmoke: boolean) => Promise<void>,
  { need, each = false }: { readonly need?: Need; readonly each?: boolean } = {},
): void {
  const [first = LAUNCHERS[0]!] = THERE;
  for (const launcher of ON_EACH || each ? LAUNCHERS : [first]) {
    const installed = { isThere: THERE.includes(launcher), reason: launcher.name };
    const missing = installed.isThere ? need : installed;
    testNeeding(
      missing ?? installed,
      `${launcher.name}: ${name}`,
      () => fn(launcher, !ON_EACH && launcher !== first),
    );
  }
}

/** The flags of a small training on two workers. */
export const TRAIN: readonly string[] =
  "--schedule 1f1b --workers 2 --layers 4 --hidden 16 --heads 2 --seq 8 --steps 3".split(" ");

/** The arguments of Deno for this training on ranks. */
export const RANK_TRAIN: readonly string[] = [
  ...["run", "-A", "--no-check", join(ROOT, "cli.ts"), "train", "--json", ...TRAIN],
  ...["--runtime", "mpi"],
];

/** A number of ranks and their arguments of Deno. */
export type Part = readonly [ranks: number, ...args: string[]];

/** Runs Deno on ranks. */
export const runJob = (launcher: Launcher, ...parts: readonly Part[]): Promise<Outcome> =>
  runCommand([launcher.command, ...launcher.args, ...commandsOf(parts)]);

/** The command line of parts, for a launcher; `by` runs each. */
export const commandsOf = (parts: readonly Part[], by: readonly string[] = []): readonly string[] =>
  parts.flatMap(([ranks, ...args], i) => {
    const command = ["-n", `${ranks}`, ...by, Deno.execPath(), ...args];
    return i > 0 ? [":", ...command] : command;
  });

/** Runs a command in the environment that launchers need. */
export const runCommand = (
  [command, ...args]: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<Outcome> => runProgram(command!, args, { env: { ...ENVIRONMENT, ...env } });

/** The module of job_tests.ts. */
export const JOB = fileURLToPath(new URL("./job_tests.ts", import.meta.url));

/** The ranks that run the tests of job_tests.ts, or a part of them. */
export const jobParts = (part: "all" | "smoke" | "rest"): readonly Part[] => [
  [1, "test", "-A", "--no-check", JOB, "--", part],
  [3, "run", "-A", "--no-check", JOB],
];

/** Makes sure that these tests were run, and have passed. */
export function assertJob({ code, stdout, stderr }: Outcome): void {
  assert.equal(code, 0, stdout + stderr);
  const [, passed] = /^ok \| (\d+) passed \| 0 failed/m.exec(stdout)!;
  assert.ok(Number(passed) > 3, stdout);
}
