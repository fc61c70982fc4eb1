/**
 * The command line of a launcher.
 *
 * @module
 */

import type { Host } from "./hosts.ts";

/** A command, and what it wants in its environment beside what is there. */
export interface CommandLine {
  readonly env: Readonly<Record<string, string>>;
  readonly words: readonly string[];
}

/** What is to be started. */
export interface RankCommand {
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
export function hydraLine(launcher: string, job: RankCommand): CommandLine {
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
export function openMpiLine(
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
export const shellWord = (word: string): string =>
  /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;

/** A command line for a shell. */
export const shellLine = ({ env, words }: CommandLine): string =>
  [
    ...Object.entries(env).map(([name, value]) => `${name}=${shellWord(value)}`),
    ...words.map(shellWord),
  ].join(" ");
