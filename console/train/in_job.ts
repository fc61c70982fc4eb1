/**
 * `train` as the ranks of an MPI job run it: rank 0 leads, and the others say nothing.
 *
 * @module
 */

import {
  follow,
  isFollower,
  launchedRanks,
  lead,
  letLeaderSpeak,
  type MpiRunOptions,
} from "../../actors/run/mpi_run.ts";
import type { CommandContext } from "../command.ts";
import { rawArguments } from "../flags/parse.ts";
import { TRAIN_FLAGS } from "./train_flags.ts";
import { withConfig } from "./with_config.ts";

/** How a rank joins, and what all must be asked alike. */
interface Asked {
  readonly options: MpiRunOptions;
  readonly facts: Readonly<Record<string, string>>;
}

/**
 * Runs a command where `--runtime mpi` says so as rank 0 of a job, or lends this rank to it.
 *
 * @param begin called where it is lent: launchers send signals to all ranks, and rank 0 ends them.
 */
export async function inJob(
  typed: readonly string[],
  command: () => Promise<number>,
  begin: CommandContext["begin"],
): Promise<number> {
  let asked: Asked | undefined;
  try {
    asked = jobOf(typed);
  } catch (error) {
    if (!isFollower()) throw error;
    await letLeaderSpeak();
    return 2;
  }
  if (!asked) return await command();
  const { options, facts } = asked;
  if (isFollower()) {
    begin("");
    return await follow(options, facts) ? 0 : 2;
  }
  await using job = await lead(options, facts);
  return await Promise.race([command(), job.lost.catch(lostJob)]);
}

/** Of a job that is lost, whenever that is, another try may go well: EX_TEMPFAIL of sysexits.h. */
function lostJob(error: Error): never {
  throw Object.assign(error, { exitCode: 75 });
}

/** How `--runtime mpi` asks to join the job of this process; undefined where there is none. */
function jobOf(typed: readonly string[]): Asked | undefined {
  const { flags, takenBack } = rawArguments(withConfig(typed).args, TRAIN_FLAGS);
  if (flags.runtime !== "mpi" || !launchedRanks()) return undefined;
  const text = (name: string) => flags[name] === undefined ? undefined : String(flags[name]);
  const facts = [...Object.entries(flags), ...takenBack.map((name) => [name, "false"] as const)]
    .filter(([name]) => !OF_A_HOST.includes(name))
    .map(([name, value]) => [`--${name}`, String(value)]);
  return {
    options: { library: text("mpi-library"), interface: text("mpi-interface") },
    facts: Object.fromEntries(facts),
  };
}

/** The flags that may differ from host to host. */
const OF_A_HOST: readonly string[] = ["mpi-library", "mpi-interface"];
