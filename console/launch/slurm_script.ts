/**
 * A script for `sbatch`: it runs `troupe launch` within the job, which starts the ranks with `srun`
 * and, when one dies, starts them again.
 *
 * @module
 */

import { shellWord } from "./command_line.ts";

/** What the script runs. */
export interface SlurmJob {
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
