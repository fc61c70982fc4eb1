/**
 * The MPI that is installed, by its launcher.
 *
 * @module
 */

import type { LaunchFlags } from "./launch_flags.ts";

/** Which MPI. */
export type MpiName = NonNullable<LaunchFlags["mpi"]>;

/** A launcher that was found. */
export interface FoundMpi {
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
export async function findMpi(wanted: MpiName | undefined): Promise<FoundMpi> {
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
