/**
 * Launchers that start the ranks of a job: `mpirun` of an MPI, or `srun` of Slurm; and the deaths of
 * ranks that they report.
 *
 * @module
 */

import { checkFile } from "../command.ts";
import { ensure, quoted, quotedForShell } from "../terminal.ts";
import type { LaunchFlags } from "./flags.ts";
import { refusal } from "../../kernels/internal.ts";

/** The death of a rank, as far as the launcher reports it. */
export interface Death {
  readonly rank?: number;
  readonly pid?: number;
  readonly host?: string;
  /** The signal that killed it, such as `Killed (signal 9)`. */
  readonly signal?: string;
  readonly code?: number;
}

/** Filters the lines of a stream and finds the first death in them. */
export interface LineFilter {
  /** Takes a line and returns the lines to print now. */
  take(line: string): readonly string[];
  /** Returns the lines still held back when the stream ends. */
  rest(): readonly string[];
  /** The first death found. */
  readonly death: Death | undefined;
}

/**
 * Opens a filter, which passes every line and finds no death by default.
 *
 * @param take returns the lines to print now; calls `die` if it finds a death.
 */
function openFilter(
  take: (line: string, die: (death: Death) => void) => readonly string[] = (line) => [line],
  rest: () => readonly string[] = () => [],
): LineFilter {
  let death: Death | undefined;
  return {
    take: (line) => take(line, (found) => death ??= found),
    rest,
    get death() {
      return death;
    },
  };
}

/** The start of hydra's final report on standard output: a ruler and a title. */
const HYDRA_RULER = /^={60,}$/, HYDRA_TITLE = /^= +BAD TERMINATION/;

/** Filters standard output of MPICH's hydra. Ranks print nothing after its final report. */
export function hydraOutput(): LineFilter {
  let held: string[] = [], told: string | undefined;
  return {
    take(line) {
      if (told !== undefined) told += `${line}\n`;
      else if (line === "" || (HYDRA_RULER.test(line) && !held.some((one) => one !== ""))) {
        held.push(line);
      } else if (HYDRA_TITLE.test(line) && HYDRA_RULER.test(held.at(-1) ?? "")) {
        told = "";
        held = [];
      } else return [...held.splice(0), line];
      return [];
    },
    rest: () => held.splice(0),
    get death() {
      return told === undefined ? undefined : hydraDeath(told);
    },
  };
}

function hydraDeath(text: string): Death {
  const [, pid, host] = /^= +PID (\d+) RUNNING AT (\S+)/m.exec(text) ?? [];
  const [, signal] = /EXIT STRING: (.+\(signal \d+\))/.exec(text) ?? [];
  const [, code] = /EXIT CODE: (\d+)/.exec(text) ?? [];
  // Hydra names the first dead rank, even if it has killed that rank after the death of another.
  const cause = signal?.startsWith("Killed") ? ", perhaps after another rank" : "";
  return {
    ...pid !== undefined && { pid: Number(pid), host: host! },
    ...signal !== undefined
      ? { signal: signal + cause }
      : code !== undefined && { code: Number(code) },
  };
}

const OPEN_MPI_RULER = /^-{60,}$/;

/** Filters standard error of Open MPI, which reports deaths and the abort between rulers. */
export function openMpiErrors(): LineFilter {
  const block: string[] = [];
  return openFilter((line, die) => {
    const isRuler = OPEN_MPI_RULER.test(line), isEnd = isRuler && block.length > 0;
    if (block.length === 0 && !isRuler) return [line];
    block.push(line);
    if (!isEnd) return [];
    const lines = block.splice(0), text = lines.join("\n"), death = openMpiDeath(text);
    if (death) die(death);
    return death || /job has been aborted/.test(text) ? [] : lines;
  }, () => block.splice(0));
}

function openMpiDeath(text: string): Death | undefined {
  const [, rank, host, number, name] =
    /process rank (\d+) with PID \d+ on node (\S+) exited on\s+signal (\d+) \((.+?)\)/.exec(text) ??
      [];
  if (rank !== undefined) {
    return { rank: Number(rank), host: host!, signal: `${name} (signal ${number})` };
  }
  const [, other, code] = /Process name: \[\[\d+,\d+\],(\d+)\]\s+Exit code:\s+(\d+)/.exec(text) ??
    [];
  return other === undefined ? undefined : { rank: Number(other), code: Number(code) };
}

/** Filters standard error of Slurm's srun, which reports each failed task in one line. */
export const srunErrors = (): LineFilter =>
  openFilter((line, die) => {
    const [, host, task, how] = /^srun: error: (\S+): tasks? (\d+)[\d,-]*: (.+)$/.exec(line) ?? [];
    if (task === undefined) return [line];
    const [, code] = /^Exited with exit code (\d+)/.exec(how!) ?? [];
    const way = code === undefined ? { signal: how! } : { code: Number(code) };
    die({ rank: Number(task), host: host!, ...way });
    return [line];
  });

/** A host with its number of ranks. */
type Host = ReturnType<typeof placeRanks>["hosts"][number];

/** A host of a hosts file, with the number of ranks it can take if the file gives it. */
type ListedHost = ReturnType<typeof readHosts>[number];

/** Largest size of a hosts file, in bytes. */
const BYTES_MAX = 2 ** 20;

/**
 * A host: `node1`, `node1:4` (MPICH) or `node1 slots=4` (Open MPI). A name cannot start with `-`,
 * because a remote shell would read it as an option.
 */
const LINE = /^(\w[\w.-]{0,254})(?:(?:\s*:\s*|\s+slots\s*=\s*)(\d{1,6}))?$/;

/**
 * Reads a hosts file.
 *
 * @throws {TypeError} when the file does not exist.
 * @throws {SyntaxError} when a line is not a host, or the file names none.
 */
export function readHosts(path: string) {
  checkFile("hosts", path, BYTES_MAX);
  const hosts = Deno.readTextFileSync(path).split("\n").flatMap((text, i) => {
    const line = text.replace(/#.*/, "").trim();
    if (line === "") return [];
    const [, name, slots] = LINE.exec(line) ?? [];
    if (name !== undefined && slots !== "0") {
      return [{ name, slots: slots === undefined ? undefined : Number(slots) }];
    }
    const must = `line ${i + 1} must be a host, such as node1, node1:4 or node1 slots=4`;
    throw refusal("use --hosts", must, quoted(line), SyntaxError);
  });
  ensure(hosts.length > 0, "use --hosts", "its file must name a host", "none", SyntaxError);
  return hosts;
}

/**
 * Assigns ranks to hosts in order, because neighbours of a pipeline communicate most. If no host has
 * a slot count, the shares are even. Otherwise a host gets as many ranks as its slots, or one rank if
 * it has no slot count.
 *
 * @returns the hosts with ranks, and whether a host gets more ranks than slots.
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
export function placeRanks(listed: readonly ListedHost[], ranks: number) {
  const isSaid = listed.some(({ slots }) => slots !== undefined);
  const shares = listed.map(({ slots }) => isSaid ? slots ?? 1 : 1);
  const total = shares.reduce((sum, share) => sum + share, 0), isTooMany = isSaid && ranks > total;
  const isScaled = !isSaid || isTooMany;
  let left = ranks, leftShares = total;
  const hosts = listed.map(({ name }, i) => {
    const share = shares[i]!;
    const taken = isScaled ? Math.ceil(left * share / leftShares) : Math.min(left, share);
    left -= taken;
    leftShares -= share;
    return { name, ranks: taken };
  });
  return { hosts: hosts.filter((host) => host.ranks > 0), isTooMany };
}

/** A command line with variables to add to its environment. */
export interface CommandLine {
  readonly env: Readonly<Record<string, string>>;
  readonly words: readonly string[];
}

/** Ranks to start, and their hosts; none if all ranks run on this host. */
interface RankCommand extends ReturnType<typeof placeRanks> {
  /** Command of each rank. */
  readonly command: readonly string[];
  readonly ranks: number;
  readonly interface: string | undefined;
  readonly remoteShell: string | undefined;
}

/** Variables to pass to ranks on other hosts: Open MPI passes only the variables it is given. */
const PASSED_ON = /^(DENO_|TROUPE_|UCX_|FI_|NO_COLOR$|LD_LIBRARY_PATH$|OMP_NUM_THREADS$)/;

const placed = (hosts: readonly Host[]) =>
  hosts.map(({ name, ranks }) => `${name}:${ranks}`).join(",");

const option = (value: string | undefined, ...words: readonly string[]) =>
  value === undefined ? [] : [...words, value];

/** Returns the command line of MPICH's launcher hydra, which passes on the whole environment. */
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
 * Returns the command line of Open MPI. Ranks are not bound to cores, because each has several
 * threads and does not use a core while it waits.
 */
function openMpiLine(launcher: string, job: RankCommand): CommandLine {
  const { hosts, ranks, command, isTooMany } = job, here = [{ name: "localhost", ranks }];
  const env = networkOf(job.interface);
  const passed = Object.keys({ ...Deno.env.toObject(), ...env }).filter((name) =>
    PASSED_ON.test(name)
  );
  return {
    env,
    words: [
      launcher,
      ...["--host", placed(hosts.length > 0 ? hosts : here)],
      ...["-n", `${ranks}`, "--bind-to", "none"],
      ...isTooMany ? ["--oversubscribe"] : [],
      // Otherwise Open MPI shortens node1.a and node1.b to node1.
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

/** Returns the command line of srun, which takes its hosts from the surrounding Slurm job. */
export function srunLine(pmi: "pmi2" | "pmix", job: RankCommand): CommandLine {
  return {
    env: networkOf(job.interface),
    words: [
      ...["srun", `--ntasks=${job.ranks}`, `--mpi=${pmi}`],
      // Only rank 0 reads the requests of the launch, and a rank that dies stops all.
      ...["--input=0", "--kill-on-bad-exit=1", "--cpu-bind=none"],
      ...job.command,
    ],
  };
}

/** Sets the network of UCX, the transport of both MPIs, unless the user has set it. */
function networkOf(name: string | undefined): Record<string, string> {
  if (name === undefined || Deno.env.has("UCX_NET_DEVICES")) return {};
  return { UCX_NET_DEVICES: name };
}

/** Formats a command line for a shell. */
export const shellLine = ({ env, words }: CommandLine): string =>
  [
    ...Object.entries(env).map(([name, value]) => `${name}=${quotedForShell(value)}`),
    ...words.map(quotedForShell),
  ].join(" ");

/** The name of an MPI. */
type MpiName = NonNullable<LaunchFlags["mpi"]>;

/** Programs to try: the default of the system first, then the names of Debian. */
const COMMANDS = ["mpirun", "mpiexec.hydra", "mpirun.mpich", "mpirun.openmpi"];

/** The MPIs by name. */
const MPIS = {
  mpich: {
    title: "MPICH",
    /** Matches the output of `--version`. */
    pattern: /HYDRA/,
    debianPackage: "mpich",
    /** The PMI plugin of Slurm by which ranks find each other. */
    pmi: "pmi2",
    line: hydraLine,
    filters: () => ({ stdout: hydraOutput(), stderr: openFilter() }),
  },
  openmpi: {
    title: "Open MPI",
    pattern: /Open (MPI|RTE)/,
    debianPackage: "openmpi-bin",
    pmi: "pmix",
    line: openMpiLine,
    filters: () => ({ stdout: openFilter(), stderr: openMpiErrors() }),
  },
} as const;

const MPI_NAMES = ["mpich", "openmpi"] as const satisfies readonly MpiName[];

/**
 * Finds an MPI launcher.
 *
 * @param wanted the MPI; default: the one of `mpirun`.
 * @throws {TypeError} when none is installed.
 */
async function findMpi(wanted: MpiName | undefined) {
  for (const command of COMMANDS) {
    const text = await versionOf(command) ?? "";
    const name = MPI_NAMES.find((name) => MPIS[name].pattern.test(text));
    if (name === undefined || (wanted ?? name) !== name) continue;
    return { name, command, version: `${MPIS[name].title} ${/\d+\.\d\S*/.exec(text)?.[0]}` };
  }
  const { title, debianPackage } = MPIS[wanted ?? "mpich"];
  const what = wanted === undefined ? "MPI" : title;
  const must = `${what} must be installed, as by Debian's package ${debianPackage}`;
  throw refusal("launch", must, `none of ${COMMANDS.join(", ")} of it`, TypeError);
}

/** Returns what a program prints for `--version`; undefined if it is not installed. */
async function versionOf(command: string): Promise<string | undefined> {
  try {
    const { stdout } = await new Deno.Command(command, { args: ["--version"], stdin: "null" })
      .output();
    return new TextDecoder().decode(stdout);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
}

/** Starts the ranks of a job. */
export type Launcher = Awaited<ReturnType<typeof findLauncher>>;

/**
 * Finds the launcher that the flags ask for.
 *
 * @throws {TypeError} when it is not installed.
 */
export async function findLauncher(flags: LaunchFlags) {
  const isInSlurm = Deno.env.has("SLURM_JOB_ID") && flags.hosts === undefined;
  const isSlurm = flags.slurm || (flags.launcher ?? (isInSlurm ? "srun" : "mpirun")) === "srun";
  if (isSlurm) {
    const isRun = !flags.slurm && !flags.print;
    const isThere = !isRun || await versionOf("srun") !== undefined;
    ensure(isThere, "launch", "srun of Slurm must be installed");
    const mpi = flags.mpi ?? (await findMpi(undefined)).name;
    return {
      /** The MPI of the ranks. */
      mpi,
      /** Name and version of the program. */
      version: "srun",
      /** Returns the command line for a job. */
      line: (job: RankCommand) => srunLine(MPIS[mpi].pmi, job),
      /** Returns filters that find the launcher's own reports in the output of a job. */
      filters: () => ({ stdout: openFilter(), stderr: srunErrors() }),
    };
  }
  const { name: mpi, command, version } = await findMpi(flags.mpi), { line, filters } = MPIS[mpi];
  return { mpi, version, line: (job: RankCommand) => line(command, job), filters };
}

/** The job of a Slurm script. */
interface SlurmJob {
  readonly ranks: number;
  /** The working directory of the job. */
  readonly folder: string;
  /** The command line of `troupe launch`. */
  readonly launch: readonly string[];
  /** The srun command that it runs, for a comment in the script. */
  readonly srun: string;
}

/** Seconds before its time limit at which a job receives SIGTERM, to save a checkpoint. */
const GRACE_SECONDS = 120;

/** Formats the script. A job that Slurm requeues also continues from its checkpoint. */
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
    `cd ${quotedForShell(folder)} || exit 2`,
    `# The ranks are started, and started again when one dies, by:`,
    `#   ${srun.replaceAll("\n", " ")}`,
    `exec ${launch.map(quotedForShell).join(" ")}`,
    "",
  ].join("\n");
}
