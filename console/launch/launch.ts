/**
 * `troupe launch` runs a job: starts its launcher, passes on the output of the ranks, watches for
 * stalls, and restarts the job after a failure.
 *
 * [Note: looks of a launch] As in a run, a stall is a number of consecutive looks, not a span of time,
 * because a suspended machine misses looks.
 *
 * [Note: the whole job] MPI cannot continue without a rank, and its launchers stop all ranks when one
 * dies. So the whole job is restarted. It continues from its newest checkpoint with the same bits.
 *
 * @module
 */

import { delay } from "@std/async/delay";
import { lockFolder } from "../../actors/checkpoints/lock.ts";
import { readFinished } from "../../actors/checkpoints/markers.ts";
import { countRestarts } from "../../actors/runtime/failure.ts";
import {
  decodeLiveness,
  END_REQUEST,
  LAUNCH_VARIABLE,
  type Liveness,
} from "../../actors/transports/mpi/launch_watch.ts";
import type { CommandContext } from "../command.ts";
import { refusal, resultOr } from "../../kernels/internal.ts";
import { answersItself, rawArguments } from "../parse.ts";
import { linesOf, print, printError, quotedForShell, writeAll, writeOutput } from "../terminal.ts";
import { TRAIN_SYNTAX } from "../train/flags.ts";
import {
  type CommandLine,
  type Death,
  findLauncher,
  type Launcher,
  type LineFilter,
  placeRanks,
  readHosts,
  shellLine,
  slurmScript,
} from "./launcher.ts";
import {
  LAUNCH_FLAGS,
  LAUNCH_SYNTAX,
  type LaunchRequest,
  newestStep,
  readLaunchRequest,
  splitArguments,
  troupeCommand,
} from "./flags.ts";

/** Milliseconds between two looks. */
const LOOK_MS = 250;

/** Multiple of the stall timeout for the start, because ranks load programs and hosts differ. */
const START_FACTOR = 5;

/**
 * Starts to watch a job.
 *
 * @param isTrain whether ranks join first; ranks of other commands may join at any time.
 * @param stallMs longest time without a sign of rank 0, and for the ranks to leave.
 * @param onStall called once, when the job has stalled.
 */
export function openJobWatch(
  { isTrain, stallMs }: { readonly isTrain: boolean; readonly stallMs: number },
  onStall: () => void,
) {
  const ranks = new Map<number, Liveness>();
  let quietMs = 0, phaseMs = 0, stalled: string | undefined;
  const seconds = (ms: number) => `${ms / 1000} s`;
  const problem = (): string | undefined => {
    const phase = ranks.get(0)?.phase, startMs = START_FACTOR * stallMs;
    if (phase === "left" || (phase === undefined && !isTrain)) return undefined;
    if (phase === undefined || phase === "joining") {
      if (phaseMs <= startMs) return undefined;
      return `the ranks did not connect within ${seconds(startMs)}`;
    }
    if (quietMs > stallMs) return `rank 0 made no progress for ${seconds(stallMs)}`;
    if (phase !== "leaving" || phaseMs <= stallMs) return undefined;
    return `the ranks did not end within ${seconds(stallMs)}`;
  };
  const timer = setInterval(() => {
    quietMs += LOOK_MS;
    phaseMs += LOOK_MS;
    stalled = problem();
    if (stalled === undefined) return;
    clearInterval(timer);
    onStall();
  }, LOOK_MS);
  return {
    /** Records a sign of life. */
    hear(sign: Liveness) {
      // The last sign of a thread that is being terminated may arrive late.
      if (ranks.get(sign.rank)?.phase === "left") return;
      if (sign.rank === 0) {
        quietMs = 0;
        if (sign.phase !== ranks.get(0)?.phase) phaseMs = 0;
      }
      ranks.set(sign.rank, sign);
    },
    /** The reason for stopping the job; undefined if it has not stalled. */
    get stalled() {
      return stalled;
    },
    /** The last sign of each rank. */
    ranks: ranks as ReadonlyMap<number, Liveness>,
    close: () => clearInterval(timer),
  };
}

/** Options of {@linkcode runJob}. */
interface JobOptions {
  readonly line: CommandLine;
  /** The name of the launch, which ranks and `finished.json` repeat. */
  readonly launch: string;
  /** Milliseconds without progress after which a job counts as stalled, and to wait for its end. */
  readonly stallMs: number;
  /** True if the ranks run `train`, whose ranks send a sign of life when they start. */
  readonly isTrain: boolean;
  /** Aborted to stop the job in good order. */
  readonly signal: AbortSignal;
  /** Filters that find the reports of the launcher in the output. */
  readonly filters: { readonly stdout: LineFilter; readonly stderr: LineFilter };
}

/** The end of one try of a job. */
export type JobEnd = Awaited<ReturnType<typeof runJob>>;

/** Milliseconds that a launcher has to stop its ranks before it is killed. */
const GRACE_MS = 5000;

/** Runs one try of a job to its end. */
async function runJob(options: JobOptions) {
  const { line: { env, words: [command, ...args] }, launch, isTrain, signal, filters } = options;
  const child = new Deno.Command(command!, {
    args,
    env: { ...env, [LAUNCH_VARIABLE]: launch },
    stdin: "piped",
    stdout: "piped",
    stderr: "piped",
    // Only this program receives Ctrl-C from the terminal; it asks the job to stop.
    detached: true,
  }).spawn();
  const input = child.stdin.getWriter();
  // The process may have just ended.
  const kill = (how: Deno.Signal) => resultOr(() => child.kill(how), undefined);
  const killAtOnce = () => kill("SIGKILL");
  globalThis.addEventListener("unload", killAtOnce);
  let killing: ReturnType<typeof setTimeout> | undefined;
  const giveUp = () => {
    kill("SIGTERM");
    killing ??= setTimeout(killAtOnce, GRACE_MS);
  };
  const watch = openJobWatch(options, giveUp);
  const askToEnd = () => {
    // A rank that has not started has nothing to save, and may never start.
    if (isTrain && watch.ranks.size === 0) giveUp();
    else input.write(new TextEncoder().encode(END_REQUEST)).catch(() => {});
  };
  if (signal.aborted) askToEnd();
  signal.addEventListener("abort", askToEnd);
  /** The error of writing the job's output, after which the job was asked to stop. */
  let unheard: unknown;
  const lose = (error: unknown) => {
    unheard ??= error;
    askToEnd();
  };
  const reading = new AbortController(), streams = { signal: reading.signal, lose };
  const read = Promise.all([
    passOn(child.stdout, Deno.stdout, filters.stdout, streams),
    passOn(child.stderr, Deno.stderr, filters.stderr, { ...streams, hear: watch.hear }),
  ]);
  const { code, signal: killed } = await child.status; // of the launcher
  clearTimeout(killing);
  globalThis.removeEventListener("unload", killAtOnce);
  signal.removeEventListener("abort", askToEnd);
  watch.close();
  // A remaining rank may keep a pipe open.
  const timer = setTimeout(() => reading.abort(), GRACE_MS);
  await read;
  clearTimeout(timer);
  input.close().catch(() => {});
  const death: Death | undefined = filters.stdout.death ?? filters.stderr.death ??
    (killed === null ? undefined : { signal: killed });
  return { code, death, stalled: watch.stalled, ranks: watch.ranks, unheard };
}

/**
 * Passes lines on, except signs of life, to the end of the stream or until the signal is aborted.
 *
 * @param lose called once, when a line cannot be written. Reading continues, because ranks would
 * otherwise block on a full pipe.
 */
async function passOn(
  from: ReadableStream<Uint8Array<ArrayBuffer>>,
  to: typeof Deno.stdout | typeof Deno.stderr,
  filter: LineFilter,
  { signal, lose, hear = () => {} }: {
    readonly signal: AbortSignal;
    readonly lose: (error: unknown) => void;
    readonly hear?: (sign: Liveness) => void;
  },
): Promise<void> {
  let isHeard = true;
  const say = (lines: readonly string[]) => {
    if (!isHeard) return;
    try {
      lines.forEach((line) => writeAll(to, `${line}\n`));
    } catch (error) {
      isHeard = false;
      lose(error);
    }
  };
  try {
    for await (const line of linesOf(from, signal)) {
      const sign = decodeLiveness(line);
      if (sign) hear(sign);
      else say(filter.take(line));
    }
  } catch {
    // The stream is broken or no longer awaited.
  }
  say(filter.rest());
}

/** Options of {@linkcode relaunch}. */
interface Relaunch extends Omit<JobOptions, "line" | "filters"> {
  /** The folder of the checkpoints; undefined if the job is never restarted. */
  readonly out: string | undefined;
  readonly maxRestarts: number;
  /** Runs one try, which continues from a checkpoint if there is one. */
  run(hasCheckpoint: boolean): Promise<JobEnd>;
}

/** Delays of restarts. Failures are counted until a new checkpoint is written. */
const LIMITS = { periodMs: Infinity, firstMs: 1000, maxMs: 60_000 } as const;

/** Exit codes of `train`, and so of rank 0: bad input, an interrupted run. */
const REFUSED = 2, INTERRUPTED = 130;

/**
 * Runs a job, restarts it after failures, and returns the exit code.
 *
 * @throws {Error} when its output cannot be written, it failed too often, or no rank started.
 */
export async function relaunch(job: Relaunch): Promise<number> {
  const { out, launch, maxRestarts, signal } = job;
  const count = () => countRestarts({ intensity: maxRestarts, ...LIMITS });
  let restarts = count(), step = out === undefined ? undefined : await newestStep(out);
  let hasBegun = false;
  for (let failures = 1;; failures++) {
    const end = await job.run(step !== undefined);
    if (out === undefined) return signal.aborted ? INTERRUPTED : end.code;
    if ((await readFinished(out))?.launch === launch) return 0;
    if (end.unheard !== undefined) throw end.unheard;
    if (signal.aborted) return INTERRUPTED;
    if (end.code === REFUSED && end.death?.signal === undefined) return REFUSED;
    hasBegun ||= end.ranks.size > 0 || end.death !== undefined || !job.isTrain;
    if (!hasBegun) throw neverBegan(end);
    const before = step;
    step = await newestStep(out);
    if ((step ?? 0) > (before ?? 0)) {
      failures = 1;
      restarts = count();
    }
    const waitMs = restarts.failed(performance.now()), how = describeEnd(end);
    const from = step === undefined ? "the beginning" : `step ${step}`;
    const last = step === undefined ? "there is no checkpoint" : `the last checkpoint is ${from}`;
    if (waitMs === undefined) {
      throw new Error(
        `Cannot restart the job: it failed ${failures} times without a new checkpoint: ${how}; ${last}`,
      );
    }
    printError(`${how}; continuing from ${from} (restart ${failures} of ${maxRestarts})`);
    await delay(waitMs, { signal }).catch(() => {});
    if (signal.aborted) return INTERRUPTED;
    await untilFree(out, job.stallMs);
  }
}

/** Returns the error if no rank started, for example on an unknown host. Another try would fail too. */
function neverBegan({ code, stalled }: JobEnd): Error {
  const received = `${stalled ?? `its exit code ${code}`} before any of them started`;
  const must = "the launcher must start the ranks";
  return refusal("launch", must, `${received}; its output is above`, Error);
}

/** Describes the end of a try in a sentence. */
function describeEnd({ code, death, stalled, ranks }: JobEnd): string {
  if (stalled !== undefined) return `The job was stopped: ${stalled}`;
  const { signal, pid, host } = death ?? {};
  const rank = death?.rank ?? rankOf([...ranks.values()], death);
  const who = rank !== undefined
    ? `Rank ${rank}`
    : pid !== undefined
    ? `Process ${pid}`
    : "The job";
  const where = host === undefined ? "" : ` on ${host}`;
  if (signal !== undefined) return `${who}${where} died of ${signal}`;
  return `${who}${where} ended too early with exit code ${death?.code ?? code}`;
}

/** Finds the rank of a process by its pid. The host only decides ties, as its name may differ. */
function rankOf(ranks: readonly Liveness[], { pid, host }: Death = {}): number | undefined {
  const found = ranks.filter((rank) => rank.pid === pid);
  return (found.length > 1 ? found.find((rank) => rank.host === host) : found[0])?.rank;
}

/** Milliseconds between two tries to lock the folder. */
const RESTART_LOOK_MS = 100;

/** Waits until the folder is unlocked: remaining processes of a try end by themselves. */
async function untilFree(out: string, limitMs: number): Promise<void> {
  for (let waitedMs = 0; waitedMs < limitMs; waitedMs += RESTART_LOOK_MS) {
    try {
      using _lock = lockFolder(out);
      return;
    } catch {
      await delay(RESTART_LOOK_MS);
    }
  }
}

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
  if (flags.slurm) {
    writeScript(request, launcher, args, first);
    made.move(); // the run folder stays empty until Slurm runs the script
    return 0;
  }
  if (flags.print) return print(first), 0;
  printError(first);
  begin("the job");
  const job = { launch: crypto.randomUUID(), stallMs, isTrain, signal };
  return await relaunch({
    ...job,
    out,
    maxRestarts: flags["max-restarts"],
    run: (hasCheckpoint) =>
      runJob({ ...job, line: lineOf(hasCheckpoint), filters: launcher.filters() }),
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
    writeOutput(script, text);
    printError(`Wrote ${script}; submit it with: sbatch ${quotedForShell(script)}`);
  }
}
