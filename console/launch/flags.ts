/**
 * Flags of `troupe launch`, and the request read from them.
 *
 * @module
 */

import { basename, dirname, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { folderEntries, stepFolder, stepFolders } from "../../actors/checkpoints/format.ts";
import { claimFolder, lockFolder } from "../../actors/checkpoints/lock.ts";
import { type CommandSyntax, COMMON_FLAGS, type FlagValues, withDefaults } from "../flag.ts";
import { parseArguments } from "../parse.ts";
import { ensure } from "../terminal.ts";
import { makeRunFolder, nextRunFolder } from "../../actors/run_folder/read.ts";
import { readTrainFlags, type TrainRequest } from "../train/request.ts";

/** Every flag of `troupe launch`. */
export const LAUNCH_FLAGS = {
  hosts: {
    kind: "path",
    otherwise: "this one",
    help: "hosts, one a line, such as node1, node1:4 or node1 slots=4",
  },
  "max-restarts": {
    kind: "integer",
    minimum: 0,
    default: 3,
    help: "number of times that the job may fail without a new checkpoint",
  },
  print: { kind: "switch", help: "print the command line without running it" },
  slurm: { kind: "switch", help: "write a script for sbatch instead, to FILE or standard output" },
  mpi: {
    kind: "choice",
    choices: ["mpich", "openmpi"],
    otherwise: "that of mpirun",
    help: "which MPI",
  },
  launcher: {
    kind: "choice",
    choices: ["mpirun", "srun"],
    otherwise: "srun within a job of Slurm, otherwise mpirun",
    help: "what starts the ranks",
  },
  interface: { kind: "text", help: "the network device between hosts, such as eth0" },
  "remote-shell": {
    kind: "path",
    value: "PROGRAM",
    otherwise: "ssh",
    help: "program with which mpirun starts processes on other hosts",
  },
  ranks: {
    kind: "integer",
    otherwise: "as the flags of train say",
    help: "ranks, for a command of your own",
  },
  out: {
    kind: "path",
    value: "DIR",
    otherwise: "as the flags of train say",
    help: "folder of checkpoints, for a command of your own",
  },
  ...COMMON_FLAGS,
} as const;

/** The values of the flags of `troupe launch`. */
export type LaunchFlags = FlagValues<typeof LAUNCH_FLAGS>;

/** The declaration of `troupe launch`. */
export const LAUNCH_SYNTAX: CommandSyntax = {
  name: "launch",
  summary: "trains on the ranks of MPI, and restarts the job when one dies",
  usage: ["[flags] -- train [flags of train]", "[flags] -- COMMAND [arguments]"],
  about: [
    "Works out how many ranks the flags of train ask for, writes the command line of the MPI that",
    "is installed, and runs it. When a rank dies, MPI ends the others; the job is restarted from its",
    "newest checkpoint, until it writes finished.json into the folder of its checkpoints.",
    "Hosts share that folder, and have Deno and Troupe at the same paths.",
    "",
    'COMMAND is one of your own that calls train({ runtime: "mpi" }), such as deno run -A mine.ts,',
    "with --ranks, and --out for the folder of its checkpoints; it resumes by itself from what",
    "readCheckpoint() finds there.",
  ],
  groups: { "": LAUNCH_FLAGS },
  notes: [
    "--slurm may be followed by FILE. On Ctrl-C the job saves a checkpoint and ends.",
    "",
    "Exit codes: 0 done; 1 a job that failed too often or never started; 2 bad input; 130 a signal;",
    "for a command of your own without --out: that of mpirun or srun.",
  ],
};

/** A job to launch. */
export type LaunchRequest = Awaited<ReturnType<typeof readLaunchRequest>>;

/** Stall timeout of commands other than `train`, in milliseconds. */
const STALL_MS = 60_000;

/** Matches a name, not the address of a module. */
const PLAIN_NAME = /^[\w-]+$/;

/** Splits the arguments of `launch` from the command after `--`. */
export function splitArguments(args: readonly string[]) {
  const end = args.indexOf("--");
  return end < 0
    ? { own: args, command: [] }
    : { own: args.slice(0, end), command: args.slice(end + 1) };
}

/**
 * Reads the arguments of `troupe launch`.
 *
 * @param made receives the run folder if one is created, to remove it if it stays empty.
 * @throws {TypeError} {@linkcode RangeError} {@linkcode SyntaxError} in one sentence for the user.
 */
export async function readLaunchRequest(args: readonly string[], made: DisposableStack) {
  const { own, command } = splitArguments(args);
  const { flags: given, words } = parseArguments(own, LAUNCH_FLAGS, { takesWords: true });
  const flags = withDefaults(LAUNCH_FLAGS, given), [script] = words;
  const hasMore = words.length > (flags.slurm ? 1 : 0), received = `${words.join(" ")} before it`;
  ensure(!hasMore, "launch", "the command must follow --", received);
  ensure(script !== "", "launch", "--slurm must be followed by FILE or nothing", '""');
  ensure(command.length > 0, "launch", "a command must follow --, such as -- train");
  const isSlurm = flags.slurm || flags.launcher === "srun";
  const unread = (["hosts", "remote-shell"] as const).find((name) => isSlurm && flags[name]);
  const must = `--${unread} must be left out, as Slurm chooses hosts and starts ranks`;
  ensure(unread === undefined, "launch", must, flags[unread!]);
  const [first, ...rest] = command;
  const asked = first === "train" ? await ofTrain(flags, rest, made) : ofCommand(flags, command);
  return {
    flags,
    /** The path of the script of `--slurm`; undefined for standard output. */
    script,
    ...asked,
  };
}

/** Reads a job that runs `train` of this program. */
async function ofTrain(flags: LaunchFlags, args: readonly string[], made: DisposableStack) {
  const request = await readTrainFlags(["--runtime=mpi", ...args]);
  const { out: said, flags: { model, overwrite, runtime } } = request;
  ensure(runtime === "mpi", "launch", "--runtime must be mpi", runtime, RangeError);
  const { out: early } = flags, after = "--out must come after --, among the flags of train";
  ensure(early === undefined, "launch", after, `${early} before it`);
  const ranks = ranksOf(request), isNamed = said !== undefined || PLAIN_NAME.test(model);
  ensure(isNamed, "launch", "--out must name the folder of checkpoints of your own model");
  const isSame = (flags.ranks ?? ranks) === ranks;
  const must = `--ranks must be ${ranks}, as the flags of train say`;
  ensure(isSame, "launch", must, flags.ranks, RangeError);
  const out = said ?? newFolder(model, flags, made);
  if (!overwrite) await checkOwn(out, request.flags.resume);
  const chosen = said === undefined ? ["--out", out] : [];
  const train = [
    ...args,
    ...["--runtime", "mpi"],
    ...chosen,
    ...overwrite ? ["--no-overwrite"] : [], // it is done before: a try must not do it again
  ];
  const stallMs = 1000 * request.flags["stall-timeout"];
  return {
    ranks,
    /** The command of each rank. */
    command: [...troupeCommand("train"), ...train],
    /** True if the command is `train`, not another command. */
    isTrain: true,
    /** The folder of the checkpoints; undefined if none is given: then the job is never restarted. */
    out,
    /** Milliseconds without progress after which a job counts as stalled. */
    stallMs,
    /** Arguments that make the command continue from the checkpoints of `out`. */
    resume: ["--resume", out],
    /** Arguments that name `out` if the user's arguments do not. */
    chosen,
    /** Removes the old run for `--overwrite`, before the first try. */
    overwrite: overwrite && !isRequeued() ? () => overwriteFolder(out, request) : undefined,
  };
}

/** Returns a numbered run folder. With `--print` the folder is not created. */
function newFolder(model: string, flags: LaunchFlags, made: DisposableStack): string {
  return flags.print ? nextRunFolder(model) : made.use(makeRunFolder(model)).path;
}

async function overwriteFolder(out: string, { checkpoint, flags }: TrainRequest): Promise<void> {
  using _lock = lockFolder(out);
  await claimFolder(out, { resume: checkpoint, overwrite: true, weights: flags.weights });
}

/** Returns whether Slurm has requeued the job. */
const isRequeued = () => Number(Deno.env.get("SLURM_RESTART_COUNT") ?? 0) > 0;

/** Returns the number of ranks: workers of all replicas, or the ranks that the map names. */
function ranksOf({ flags: { map, replicas }, schedule }: TrainRequest): number {
  return map === undefined ? replicas * schedule.workers : Math.max(...map) + 1;
}

/** Reads a job that runs another command than `train`. */
function ofCommand(flags: LaunchFlags, command: readonly string[]) {
  const { ranks, out, "max-restarts": maxRestarts } = flags;
  ensure(ranks, "launch", `--ranks must be the number of ranks of ${command[0]}`);
  const must =
    "--out must name the folder to which the command writes checkpoints, or --max-restarts be 0";
  ensure(out !== undefined || maxRestarts === 0, "launch", must, "neither");
  const none = { resume: [], chosen: [], overwrite: undefined };
  return { ranks, command, isTrain: false, out, stallMs: STALL_MS, ...none };
}

/** Returns the command line that runs a command of this program. */
export function troupeCommand(name: string): readonly string[] {
  const { mainModule } = Deno, isFile = mainModule.startsWith("file:");
  const path = isFile ? fileURLToPath(mainModule) : mainModule;
  return [Deno.execPath(), "run", "-A", path, name];
}

/**
 * Checks that the checkpoints of a folder belong to the run, because the run continues from the
 * newest one. A job that Slurm has requeued finds its own checkpoints.
 *
 * @throws {RangeError} when the folder holds other checkpoints.
 */
async function checkOwn(out: string, resume: string | undefined): Promise<void> {
  if (isRequeued()) return;
  const newest = await newestStep(out);
  if (newest === undefined) return;
  if (resume !== undefined) {
    const step = stepFolder(basename(resume))?.step;
    const folder = step === undefined ? resume : dirname(resume);
    if (resolve(folder) === resolve(out) && (step ?? newest) === newest) return;
  }
  throw new RangeError(
    `Cannot launch: ${out} must hold only checkpoints from which the run resumes, since it restarts from them when a rank dies, received one of step ${newest}; add --resume ${out} or --overwrite, or name another --out`,
  );
}

/** Returns the step of the newest checkpoint of a folder; undefined if there is none. */
export async function newestStep(directory: string): Promise<number | undefined> {
  const folders = stepFolders(await folderEntries(directory));
  return folders.find(({ kind }) => kind !== "unfinished")?.step;
}
