/**
 * `train` as the ranks of an MPI job run it: rank 0 leads, and the others say nothing.
 *
 * @module
 */

import {
  follow,
  isFollower,
  isLaunched,
  lead,
  type MpiRunOptions,
} from "../../actors/run/mpi_run.ts";
import { rawArguments } from "../flags/parse.ts";
import { TRAIN_FLAGS } from "./train_flags.ts";
import { withConfig } from "./with_config.ts";

/** Runs a command where `--runtime mpi` says so as rank 0 of a job, or lends this rank to it. */
export async function inJob(
  typed: readonly string[],
  command: () => Promise<number>,
): Promise<number> {
  let options: MpiRunOptions | undefined;
  try {
    options = jobOf(typed);
  } catch (error) {
    // Rank 0 says what is wrong.
    if (isFollower()) return 2;
    throw error;
  }
  if (!options) return await command();
  if (isFollower()) return await follow(options) ? 0 : 2;
  await using job = await lead(options);
  return await Promise.race([command(), job.lost]);
}

/** How `--runtime mpi` asks to join the job of this process; undefined where there is none. */
function jobOf(typed: readonly string[]): MpiRunOptions | undefined {
  if (!isLaunched()) return undefined;
  const { flags } = rawArguments(withConfig(typed).args, TRAIN_FLAGS);
  if (flags.runtime !== "mpi") return undefined;
  const text = (name: string) => flags[name] === undefined ? undefined : String(flags[name]);
  return { library: text("mpi-library"), interface: text("mpi-interface") };
}
