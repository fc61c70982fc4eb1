/**
 * What a rank of an MPI job does that does not lead it: the same command, of which it says nothing.
 *
 * @module
 */

import { isFollower, type MpiRunOptions } from "../../actors/run/mpi_run.ts";
import { parseFlags } from "../flags/parse.ts";
import { TRAIN_FLAGS } from "./train_flags.ts";
import { withConfig } from "./with_config.ts";

/** How this process joins the run that rank 0 leads; undefined where it leads one itself. */
export function followedJob(typed: readonly string[]): MpiRunOptions | undefined {
  if (!isFollower()) return undefined;
  const flags = parseFlags(withConfig(typed).args, TRAIN_FLAGS);
  if (flags.runtime !== "mpi") return undefined;
  return { library: flags["mpi-library"], hostname: flags["mpi-interface"] };
}
