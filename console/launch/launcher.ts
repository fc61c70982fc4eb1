/**
 * What starts the ranks of a job here: a launcher of MPI, or Slurm's.
 *
 * @module
 */

import { checkFile } from "../command.ts";
import { quoted } from "../terminal.ts";
import { allLines, hydraOutput, type LineFilter, openMpiErrors, srunErrors } from "./death.ts";
import type { LaunchFlags } from "./flags.ts";

/** A host with its share of the ranks. */
interface Host {
  readonly name: string;
  readonly ranks: number;
}

/** A host as a file names it. */
interface ListedHost {
  readonly name: string;
  /** How many ranks it can take, where that is said. */
  readonly slots: number | undefined;
}

/** The most bytes of such a file. */
const BYTES_MAX = 2 ** 20;

/**
 * `node1`, `node1:4` as MPICH has it, `node1 slots=4` as Open MPI has it. No name begins as an option
 * does: a remote shell would take it for one.
 */
const LINE = /^(\w[\w.-]{0,254})(?:(?:\s*:\s*|\s+slots\s*=\s*)(\d{1,6}))?$/;

/**
 * Reads a file of hosts.
 *
 * @throws {TypeError} when there is no such file.
 * @throws {SyntaxError} when a line of it names no host, or none does.
 */
export function readHosts(path: string): readonly ListedHost[] {
  checkFile("hosts", path, BYTES_MAX);
  const hosts = Deno.readTextFileSync(path).split("\n").flatMap((text, i): ListedHost[] => {
    const line = text.replace(/#.*/, "").trim();
    if (line === "") return [];
    const [, name, slots] = LINE.exec(line) ?? [];
    if (name !== undefined && slots !== "0") {
      return [{ name, slots: slots === undefined ? undefined : Number(slots) }];
    }
    throw new SyntaxError(
      `Cannot use --hosts: line ${
        i + 1
      } must be a host, such as node1, node1:4 or node1 slots=4, received ${quoted(line)}`,
    );
  });
  if (hosts.length > 0) return hosts;
  throw new SyntaxError("Cannot use --hosts: its file must name a host, received none");
}

/**
 * Gives each host its ranks, in order, as neighbours of a pipeline talk most: where no host says how
 * many it can take, even shares; else what each can take, one where it does not say.
 *
 * @returns the hosts that get some, and whether one gets more than it can take.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const [a, b] = [{ name: "a", slots: undefined }, { name: "b", slots: undefined }];
 * assert.deepEqual(placeRanks([a, b], 5).hosts, [{ name: "a", ranks: 3 }, { name: "b", ranks: 2 }]);
 * const many = placeRanks([{ ...a, slots: 4 }, b], 8);
 * assert.deepEqual(many.hosts, [{ name: "a", ranks: 7 }, { name: "b", ranks: 1 }]);
 * assert.equal(many.isTooMany, true);
 * ```
 */
export function placeRanks(
  listed: readonly ListedHost[],
  ranks: number,
): { readonly hosts: readonly Host[]; readonly isTooMany: boolean } {
  const isSaid = listed.some(({ slots }) => slots !== undefined);
  const shares = listed.map(({ slots }) => isSaid ? slots ?? 1 : 1);
  const total = shares.reduce((sum, share) => sum + share, 0), isTooMany = isSaid && ranks > total;
  const isScaled = !isSaid || isTooMany;
  let left = ranks, leftShares = total;
  const hosts = listed.map(({ name }, i): Host => {
    const share = shares[i]!;
    const taken = isScaled ? Math.ceil(left * share / leftShares) : Math.min(left, share);
    left -= taken;
    leftShares -= share;
    return { name, ranks: taken };
  });
  return { hosts: hosts.filter((host) => host.ranks > 0), isTooMany };
}

/** A command, and what it wants in its environment beside what is there. */
export interface CommandLine {
  readonly env: Readonly<Record<string, string>>;
  readonly words: readonly string[];
}

/** What is to be started. */
interface RankCommand {
  /** What every rank runs. */
  readonly command: readonly string[];
  readonly ranks: number;
  /** None where all run here. */
  readonly hosts: readonly Host[];
  /** Whether a host gets more ranks than it says that it can take. */
  readonly isTooMany: boolean;
  readonly interface: string | undefined;
  readonly remoteShell: string | undefined;
}

/** Variables that ranks on other hosts want too: Open MPI passes on only what is named. */
const PASSED_ON = /^(DENO_|TROUPE_|UCX_|FI_|NO_COLOR$|LD_LIBRARY_PATH$|OMP_NUM_THREADS$)/;

const placed = (hosts: readonly Host[]) =>
  hosts.map(({ name, ranks }) => `${name}:${ranks}`).join(",");

const option = (value: string | undefined, ...words: readonly string[]) =>
  value === undefined ? [] : [...words, value];

/** MPICH, by its launcher hydra, which passes on all of the environment. */
function hydraLine(launcher: string, job: RankCommand): CommandLine {
  const { hosts, ranks, command } = job;
  return {
    env: networkOf(job.interface),
    words: [
      launcher,
      ...hosts.length > 0 ? ["-hosts", placed(hosts)] : [],
      ...["-n", `${ranks}`],
      ...option(job.interface, "-iface"),
      ...option(job.remoteShell, "-launcher-exec"),
      ...command,
    ],
  };
}

/**
 * Open MPI. Ranks are not bound to cores: each has more threads than one, and waits without a core.
 *
 * @param variables names of the environment.
 */
function openMpiLine(
  launcher: string,
  job: RankCommand,
  variables: readonly string[],
): CommandLine {
  const { hosts, ranks, command, isTooMany } = job, here = [{ name: "localhost", ranks }];
  const env = networkOf(job.interface);
  const passed = [...new Set([...variables, ...Object.keys(env)])].filter((name) =>
    PASSED_ON.test(name)
  );
  return {
    env,
    words: [
      launcher,
      ...["--host", placed(hosts.length > 0 ? hosts : here)],
      ...["-n", `${ranks}`, "--bind-to", "none"],
      ...isTooMany ? ["--oversubscribe"] : [],
      // Else node1.a and node1.b are both taken for node1.
      ...hosts.some(({ name }) => name.includes("."))
        ? ["--mca", "orte_keep_fqdn_hostnames", "1"]
        : [],
      ...option(job.interface, "--mca", "btl_tcp_if_include"),
      ...option(job.interface, "--mca", "oob_tcp_if_include"),
      ...option(job.remoteShell, "--mca", "plm_rsh_agent"),
      ...hosts.length > 0 ? passed.flatMap((name) => ["-x", name]) : [],
      ...command,
    ],
  };
}

/** Slurm's launcher, which has its hosts from the job of Slurm that it runs in. */
export function srunLine(pmi: "pmi2" | "pmix", job: RankCommand): CommandLine {
  return {
    env: networkOf(job.interface),
    words: [
      ...["srun", `--ntasks=${job.ranks}`, `--mpi=${pmi}`],
      // Rank 0 alone hears the launch, and whoever dies takes all with it.
      ...["--input=0", "--kill-on-bad-exit=1", "--cpu-bind=none"],
      ...job.command,
    ],
  };
}

/** UCX, which carries the messages of either MPI, is told its network too; a user may know better. */
function networkOf(name: string | undefined): Record<string, string> {
  if (name === undefined || Deno.env.has("UCX_NET_DEVICES")) return {};
  return { UCX_NET_DEVICES: name };
}

/** A word as a shell reads it back. */
const shellWord = (word: string): string =>
  /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;

/** A command line for a shell. */
export const shellLine = ({ env, words }: CommandLine): string =>
  [
    ...Object.entries(env).map(([name, value]) => `${name}=${shellWord(value)}`),
    ...words.map(shellWord),
  ].join(" ");

/** Which MPI. */
type MpiName = NonNullable<LaunchFlags["mpi"]>;

/** A launcher that was found. */
interface FoundMpi {
  readonly name: MpiName;
  /** What it is called. */
  readonly command: string;
}

/** What launchers are called: first as whoever has both has set it, then as Debian names them. */
const COMMANDS = ["mpirun", "mpiexec.hydra", "mpirun.mpich", "mpirun.openmpi"];

/** How each says who it is. */
const VERSIONS: Readonly<Record<MpiName, RegExp>> = { mpich: /HYDRA/, openmpi: /Open (MPI|RTE)/ };

const TITLES: Readonly<Record<MpiName, string>> = { mpich: "MPICH", openmpi: "Open MPI" };

/**
 * Finds a launcher.
 *
 * @param wanted which MPI; by default that of `mpirun`.
 * @throws {TypeError} when there is none.
 */
async function findMpi(wanted: MpiName | undefined): Promise<FoundMpi> {
  for (const command of COMMANDS) {
    const name = await whoseIs(command);
    if (name !== undefined && (wanted ?? name) === name) return { name, command };
  }
  const what = wanted === undefined ? "MPI" : TITLES[wanted];
  throw new TypeError(
    `Cannot launch: ${what} must be installed, as by Debian's package ${
      wanted === "openmpi" ? "openmpi-bin" : "mpich"
    }, received none of ${COMMANDS.join(", ")} of it`,
  );
}

async function whoseIs(command: string): Promise<MpiName | undefined> {
  try {
    const { stdout } = await new Deno.Command(command, { args: ["--version"], stdin: "null" })
      .output();
    const text = new TextDecoder().decode(stdout);
    return (Object.keys(VERSIONS) as MpiName[]).find((name) => VERSIONS[name].test(text));
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
}

/** A launcher. */
export interface Launcher {
  /** Which MPI the ranks use. */
  readonly mpi: MpiName;
  /** Its command line for a job. */
  line(job: RankCommand): CommandLine;
  /** For what it says of its own while a job runs. */
  filters(): { readonly stdout: LineFilter; readonly stderr: LineFilter };
}

/** What ranks of each MPI need of Slurm to find each other. */
const PMI = { mpich: "pmi2", openmpi: "pmix" } as const;

/**
 * Finds the launcher that the flags ask for.
 *
 * @throws {TypeError} when it is not there.
 */
export async function findLauncher(flags: LaunchFlags): Promise<Launcher> {
  const isInSlurm = Deno.env.has("SLURM_JOB_ID") && flags.hosts === undefined;
  const isSlurm = flags.slurm || (flags.launcher ?? (isInSlurm ? "srun" : "mpirun")) === "srun";
  if (isSlurm) {
    const mpi = flags.mpi ?? (await findMpi(undefined)).name;
    return {
      mpi,
      line: (job) => srunLine(PMI[mpi], job),
      filters: () => ({ stdout: allLines(), stderr: srunErrors() }),
    };
  }
  const { name: mpi, command } = await findMpi(flags.mpi);
  if (mpi === "mpich") {
    return {
      mpi,
      line: (job) => hydraLine(command, job),
      filters: () => ({ stdout: hydraOutput(), stderr: allLines() }),
    };
  }
  const variables = Object.keys(Deno.env.toObject());
  return {
    mpi,
    line: (job) => openMpiLine(command, job, variables),
    filters: () => ({ stdout: allLines(), stderr: openMpiErrors() }),
  };
}

/** What the script runs. */
interface SlurmJob {
  readonly ranks: number;
  /** The folder in which it was written. */
  readonly folder: string;
  /** `troupe launch`, with all that it needs. */
  readonly launch: readonly string[];
  /** What that runs, for the reader. */
  readonly srun: string;
}

/** Seconds before the end of its time in which a job saves a checkpoint. */
const GRACE_SECONDS = 120;

/** Writes the script. A job that Slurm puts back into its queue goes on from its checkpoint too. */
export function slurmScript({ ranks, folder, launch, srun }: SlurmJob): string {
  return [
    "#!/bin/bash",
    "#SBATCH --job-name=troupe",
    `#SBATCH --ntasks=${ranks}`,
    "#SBATCH --cpus-per-task=2",
    "#SBATCH --requeue",
    "#SBATCH --open-mode=append",
    `#SBATCH --signal=B:TERM@${GRACE_SECONDS}`,
    "",
    `cd ${shellWord(folder)} || exit 2`,
    `# The ranks are started, and started again when one dies, by:`,
    `#   ${srun.replaceAll("\n", " ")}`,
    `exec ${launch.map(shellWord).join(" ")}`,
    "",
  ].join("\n");
}
