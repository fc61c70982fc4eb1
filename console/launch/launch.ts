/**
 * `troupe launch`: trains on MPI ranks, and restarts the job when a rank dies.
 *
 * @module
 */

import type { CommandContext } from "../command.ts";
import { answersItself, rawArguments } from "../parse.ts";
import { print, printError } from "../terminal.ts";
import { TRAIN_SYNTAX } from "../train/flags.ts";
import {
  LAUNCH_FLAGS,
  LAUNCH_SYNTAX,
  type LaunchRequest,
  newestStep,
  readLaunchRequest,
  splitArguments,
  troupeCommand,
} from "./flags.ts";
import { relaunch, runJob } from "./job.ts";
import {
  type CommandLine,
  findLauncher,
  type Launcher,
  placeRanks,
  readHosts,
  shellLine,
  slurmScript,
} from "./launcher.ts";

/** Runs `troupe launch` and returns the exit code. */
export async function launchCommand(
  args: readonly string[],
  { begin, signal }: Pick<CommandContext, "begin" | "signal">,
): Promise<number> {
  const { own, command: [name, ...rest] } = splitArguments(args);
  if (answersItself(own, LAUNCH_SYNTAX)) return 0;
  if (name === "train" && answersItself(rest, TRAIN_SYNTAX)) return 0;
  using made = new DisposableStack();
  const request = await readLaunchRequest(args, made), launcher = await findLauncher(request.flags);
  const { flags, out, stallMs, isTrain } = request, lineOf = lines(request, launcher);
  const isOnlyShown = flags.slurm || flags.print;
  if (!isOnlyShown) await request.overwrite?.();
  const hasCheckpoint = out !== undefined && !(isOnlyShown && request.overwrite) &&
    await newestStep(out) !== undefined;
  const first = shellLine(lineOf(hasCheckpoint));
  if (flags.slurm) return writeScript(request, launcher, args, first), 0;
  if (flags.print) return print(first), 0;
  printError(first);
  begin("the job");
  const launch = crypto.randomUUID();
  return await relaunch({
    out,
    launch,
    maxRestarts: flags["max-restarts"],
    stallMs,
    isTrain,
    signal,
    run: (hasCheckpoint) =>
      runJob({
        line: lineOf(hasCheckpoint),
        launch,
        stallMs,
        isTrain,
        signal,
        filters: launcher.filters(),
      }),
  });
}

/** Returns the command line of a try, which continues from a checkpoint if there is one. */
function lines(
  { flags, ranks, command, isTrain, resume }: LaunchRequest,
  launcher: Launcher,
): (hasCheckpoint: boolean) => CommandLine {
  const listed = flags.hosts === undefined ? undefined : readHosts(flags.hosts);
  const placed = listed ? placeRanks(listed, ranks) : { hosts: [], isTooMany: false };
  const network = flags.interface;
  return (hasCheckpoint) =>
    launcher.line({
      ...placed,
      ranks,
      interface: network,
      remoteShell: flags["remote-shell"],
      command: [
        ...command,
        ...isTrain && network !== undefined ? ["--mpi-interface", network] : [],
        ...hasCheckpoint ? resume : [],
      ],
    });
}

/** Flags that the script leaves out: they concern the script, or the script sets them. */
const OF_SCRIPT = ["slurm", "print", "launcher", "mpi"];

function writeScript(
  { flags, script, ranks, chosen }: LaunchRequest,
  { mpi }: Launcher,
  args: readonly string[],
  srun: string,
): void {
  const { own: asked, command } = splitArguments(args);
  const typed = rawArguments(asked, LAUNCH_FLAGS, { takesWords: true }).flags;
  const kept = Object.entries(typed).filter(([name]) => !OF_SCRIPT.includes(name))
    .map(([name, value]) => `--${name}=${value}`);
  const own = [...kept, "--launcher=srun", `--mpi=${mpi}`];
  const launch = [...troupeCommand("launch"), ...own, "--", ...command, ...chosen];
  const text = slurmScript({ ranks, folder: Deno.cwd(), launch, srun });
  if (script === undefined || flags.print) print(text.trimEnd());
  else {
    Deno.writeTextFileSync(script, text);
    printError(`Wrote ${script}; submit it with: sbatch ${script}`);
  }
}
