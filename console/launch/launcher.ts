/**
 * What starts the ranks of a job here: a launcher of MPI, or Slurm's.
 *
 * @module
 */

import {
  type CommandLine,
  hydraLine,
  openMpiLine,
  type RankCommand,
  srunLine,
} from "./command_line.ts";
import { allLines, hydraOutput, type LineFilter, openMpiErrors, srunErrors } from "./death.ts";
import { findMpi, type MpiName } from "./installed_mpi.ts";
import type { LaunchFlags } from "./launch_flags.ts";

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
