/**
 * A job of ranks that this machine's launcher of MPI starts, and that answers questions.
 *
 * @module
 */

import { type Conversation, linesOf, talkTo } from "../support/lines.ts";

/** Names of launchers, the first that is there is taken. */
const LAUNCHERS = ["mpirun.mpich", "mpirun", "mpirun.openmpi", "mpiexec"];

/** Open MPI wants to be told that root means it, and by default gives each rank one core. */
const OPEN_MPI = {
  args: ["--oversubscribe", "--bind-to", "none"],
  env: { OMPI_ALLOW_RUN_AS_ROOT: "1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM: "1" },
};

/** How ranks are started here. */
export interface RankLauncher {
  /** As it calls itself. */
  readonly version: string;
  /** Starts a module of this folder on so many ranks. */
  start(module: string, ranks: number): Conversation;
  /** Runs the command on so many ranks: the lines that it prints, as they come. */
  run(ranks: number, args: readonly string[]): AsyncGenerator<string>;
}

/** Starts a module on ranks. */
type Spawn = (
  ranks: number,
  path: string,
  args: readonly string[],
  stdin: "piped" | "null",
) => Deno.ChildProcess;

/**
 * Finds a launcher.
 *
 * @throws {Deno.errors.NotFound} when there is none.
 */
export async function findLauncher(): Promise<RankLauncher> {
  for (const command of LAUNCHERS) {
    const version = await versionOf(command);
    if (version === undefined) continue;
    const { args, env } = version.includes("Open MPI") || version.includes("OpenRTE")
      ? OPEN_MPI
      : { args: [], env: {} };
    const spawn: Spawn = (ranks, path, own, stdin) => {
      const url = new URL(path, import.meta.url);
      const deno = [Deno.execPath(), "run", "-A", "--no-check", url.href, ...own];
      const all = [...args, "-n", `${ranks}`, ...deno];
      return new Deno.Command(command, { args: all, env, stdin, stdout: "piped" }).spawn();
    };
    return {
      version,
      start: (module, ranks) => talkTo(spawn(ranks, `./${module}`, [], "piped")),
      run: (ranks, own) => linesOf(spawn(ranks, "../../cli.ts", own, "null").stdout),
    };
  }
  throw new Deno.errors.NotFound(
    "no launcher of MPI; on Debian, apt-get install mpich or openmpi-bin",
  );
}

/** What a launcher says of its version, in one line; undefined where there is none. */
async function versionOf(command: string): Promise<string | undefined> {
  try {
    const { stdout } = await new Deno.Command(command, { args: ["--version"] }).output();
    const text = new TextDecoder().decode(stdout), [, mpich] = /Version:\s*(\S+)/.exec(text) ?? [];
    return mpich ? `MPICH ${mpich}` : text.split("\n")[0]!.trim();
  } catch {
    return undefined;
  }
}
