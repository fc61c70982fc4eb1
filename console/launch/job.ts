/**
 * One try of a job: its launcher is started, what the ranks say is passed on, and somebody looks
 * whether they live.
 *
 * [Note: looks of a launch] As in a run, a stall is a row of looks and no span of time: a machine that
 * was suspended has missed some.
 *
 * [Note: the whole job] MPI cannot go on without a rank, and its launchers end all when one dies. So
 * the whole job is started again, and goes on from its newest checkpoint with the same bits.
 *
 * @module
 */

import { delay } from "@std/async/delay";
import { lockFolder } from "../../actors/checkpoints/lock.ts";
import { readFinished } from "../../actors/checkpoints/markers.ts";
import { countRestarts } from "../../actors/runtime/restarts.ts";
import {
  decodeLiveness,
  END_REQUEST,
  LAUNCH_VARIABLE,
  type Liveness,
} from "../../actors/transports/mpi/launch_watch.ts";
import { printError, writeAll } from "../terminal.ts";
import type { Death, LineFilter } from "./death.ts";
import { newestStep } from "./flags.ts";
import type { CommandLine } from "./launcher.ts";

/** Milliseconds from one look to the next. */
const LOOK_MS = 250;

/** Ranks may take so many times longer to start: programs are loaded, and hosts differ. */
const START_FACTOR = 5;

/** Who looks. */
interface JobWatch {
  /** Takes a sign of life. */
  hear(sign: Liveness): void;
  /** Why the job has been given up, in words, if it has. */
  readonly stalled: string | undefined;
  /** The last sign of each rank. */
  readonly ranks: ReadonlyMap<number, Liveness>;
  /** Nobody looks any more. */
  close(): void;
}

/**
 * Opens a watch.
 *
 * @param isTrain whether ranks begin by joining; else they may do anything before.
 * @param stallMs how long nothing may be heard of rank 0, or ranks may take to leave.
 * @param onStall called once, when that is over.
 */
export function openJobWatch(
  { isTrain, stallMs }: { readonly isTrain: boolean; readonly stallMs: number },
  onStall: () => void,
): JobWatch {
  const ranks = new Map<number, Liveness>();
  let quietMs = 0, phaseMs = 0, stalled: string | undefined;
  const seconds = (ms: number) => `${ms / 1000} s`;
  const problem = (): string | undefined => {
    const phase = ranks.get(0)?.phase, startMs = START_FACTOR * stallMs;
    if (phase === "left" || (phase === undefined && !isTrain)) return undefined;
    if (phase === undefined || phase === "joining") {
      if (phaseMs <= startMs) return undefined;
      return `the ranks have not found each other within ${seconds(startMs)}`;
    }
    if (quietMs > stallMs) return `rank 0 has not moved for ${seconds(stallMs)}`;
    if (phase !== "leaving" || phaseMs <= stallMs) return undefined;
    return `the ranks have not ended within ${seconds(stallMs)}`;
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
    hear(sign) {
      // A last sign of a thread that is being ended may come late.
      if (ranks.get(sign.rank)?.phase === "left") return;
      if (sign.rank === 0) {
        quietMs = 0;
        if (sign.phase !== ranks.get(0)?.phase) phaseMs = 0;
      }
      ranks.set(sign.rank, sign);
    },
    get stalled() {
      return stalled;
    },
    ranks,
    close: () => clearInterval(timer),
  };
}

/** How a try is made. */
interface JobOptions {
  readonly line: CommandLine;
  /** The name of the launch, which ranks and `finished.json` repeat. */
  readonly launch: string;
  /** Time after which a job in which nothing moves is taken for dead. */
  readonly stallMs: number;
  /** Whether the ranks run `train`, and no command of one's own. */
  readonly isTrain: boolean;
  /** Aborted when the job is to end in good order. */
  readonly signal: AbortSignal;
  /** What the launcher says of its own, beside what ranks say. */
  readonly filters: { readonly stdout: LineFilter; readonly stderr: LineFilter };
}

/** How it ended. */
export interface JobEnd {
  /** The exit code of the launcher. */
  readonly code: number;
  readonly death: Death | undefined;
  /** Why the job was ended from here, in words. */
  readonly stalled: string | undefined;
  /** The ranks that have been heard of. */
  readonly ranks: ReadonlyMap<number, Liveness>;
  /** What kept words of the job from being passed on: it was asked to end then. */
  readonly unheard: unknown;
}

/** How long a launcher may take to end its ranks before it is killed itself, in milliseconds. */
const GRACE_MS = 5000;

/** Runs a job to its end. */
export async function runJob(options: JobOptions): Promise<JobEnd> {
  const { line: { env, words: [command, ...args] }, launch, isTrain, signal, filters } = options;
  const child = new Deno.Command(command!, {
    args,
    env: { ...env, [LAUNCH_VARIABLE]: launch },
    stdin: "piped",
    stdout: "piped",
    stderr: "piped",
    // Ctrl-C of a terminal is for this program alone, which hands it on.
    detached: true,
  }).spawn();
  const input = child.stdin.getWriter();
  const kill = (how: Deno.Signal) => {
    try {
      child.kill(how);
    } catch {
      // It has just ended.
    }
  };
  const killAtOnce = () => kill("SIGKILL");
  globalThis.addEventListener("unload", killAtOnce);
  let killing: ReturnType<typeof setTimeout> | undefined;
  const giveUp = () => {
    kill("SIGTERM");
    killing ??= setTimeout(killAtOnce, GRACE_MS);
  };
  const watch = openJobWatch(options, giveUp);
  const askToEnd = () => {
    // A rank that has not begun has nothing to save, and may never begin.
    if (isTrain && watch.ranks.size === 0) giveUp();
    else input.write(new TextEncoder().encode(END_REQUEST)).catch(() => {});
  };
  if (signal.aborted) askToEnd();
  signal.addEventListener("abort", askToEnd);
  let unheard: unknown;
  const lose = (error: unknown) => {
    unheard ??= error;
    askToEnd();
  };
  const reading = [
    passOn(child.stdout, Deno.stdout, filters.stdout, { lose }),
    passOn(child.stderr, Deno.stderr, filters.stderr, { lose, hear: watch.hear }),
  ];
  const { code, signal: killed } = await child.status;
  clearTimeout(killing);
  globalThis.removeEventListener("unload", killAtOnce);
  signal.removeEventListener("abort", askToEnd);
  watch.close();
  await endReading(reading);
  input.close().catch(() => {});
  const death = filters.stdout.death ?? filters.stderr.death ??
    (killed === null ? undefined : { signal: killed });
  return { code, death, stalled: watch.stalled, ranks: watch.ranks, unheard };
}

/** What is being passed on. */
interface Reading {
  readonly done: Promise<void>;
  stop(): void;
}

/**
 * Passes lines on, but for signs of life.
 *
 * @param lose called once, where nobody takes them any more; then they are read in vain, lest ranks
 * wait for somebody to do so.
 */
function passOn(
  from: ReadableStream<Uint8Array<ArrayBuffer>>,
  to: typeof Deno.stdout | typeof Deno.stderr,
  filter: LineFilter,
  { lose, hear = () => {} }: {
    readonly lose: (error: unknown) => void;
    readonly hear?: (sign: Liveness) => void;
  },
): Reading {
  const reader = from.pipeThrough(new TextDecoderStream()).getReader();
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
  const read = async () => {
    let begun = "";
    for (;;) {
      const { value, done } = await reader.read();
      const lines = (begun + (value ?? "")).split("\n");
      begun = lines.pop()!;
      for (const line of lines) {
        const sign = decodeLiveness(line);
        if (sign) hear(sign);
        else say(filter.take(line));
      }
      if (done) break;
    }
    say([...begun === "" ? [] : filter.take(begun), ...filter.rest()]);
  };
  return { done: read().catch(() => {}), stop: () => void reader.cancel().catch(() => {}) };
}

/** Waits for the last words; a rank that is left over must not keep anybody waiting. */
async function endReading(readings: readonly Reading[]): Promise<void> {
  const timer = setTimeout(() => readings.forEach(({ stop }) => stop()), GRACE_MS);
  await Promise.all(readings.map(({ done }) => done));
  clearTimeout(timer);
}

/** What is run. */
interface Relaunch {
  /** The folder of the checkpoints; undefined where nothing is started again. */
  readonly out: string | undefined;
  /** The name of the launch. */
  readonly launch: string;
  readonly maxRestarts: number;
  /** Time after which what is left of a try is not waited for. */
  readonly stallMs: number;
  /** Whether ranks are heard of as soon as they begin, as those of `train` are. */
  readonly isTrain: boolean;
  /** Aborted when the job is to end. */
  readonly signal: AbortSignal;
  /** Makes one try, which goes on from a checkpoint if there is one. */
  run(hasCheckpoint: boolean): Promise<JobEnd>;
}

/** Delays of restarts. A failure counts until there is a new checkpoint. */
const LIMITS = { periodMs: Infinity, firstMs: 1000, maxMs: 60_000 } as const;

/** Of train, and so of rank 0: bad input, an interrupted run. */
const REFUSED = 2, INTERRUPTED = 130;

/**
 * Runs a job; returns the exit code.
 *
 * @throws {Error} when its words cannot be passed on, it has failed too often, or the launcher has started nothing.
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
    if (waitMs === undefined) {
      throw new Error(
        `Cannot go on: the job may fail ${maxRestarts} times without a new checkpoint, and failed again: ${how}; it stands at ${from}`,
      );
    }
    printError(`${how}; going on from ${from} (restart ${failures} of ${maxRestarts})`);
    await delay(waitMs, { signal }).catch(() => {});
    if (signal.aborted) return INTERRUPTED;
    await untilFree(out, job.stallMs);
  }
}

/** Of a launcher that can start nothing, as on a host that is not there: another try would be in vain. */
const neverBegan = ({ code, stalled }: JobEnd) =>
  new Error(
    `Cannot launch: the launcher must start the ranks, received ${
      stalled ?? `its exit code ${code}`
    } before any of them had begun; what it says stands above`,
  );

/** How a try has ended, in words. */
function describeEnd({ code, death, stalled, ranks }: JobEnd): string {
  if (stalled !== undefined) return `The job was ended, as ${stalled}`;
  const { signal, pid, host } = death ?? {};
  const rank = death?.rank ?? rankOf([...ranks.values()], death);
  const who = rank !== undefined
    ? `Rank ${rank}`
    : pid !== undefined
    ? `Process ${pid}`
    : "The job";
  const where = host === undefined ? "" : ` on ${host}`;
  if (signal !== undefined) return `${who}${where} died of ${signal}`;
  return `${who}${where} ended before its time with exit code ${death?.code ?? code}`;
}

/** The rank of a process: hosts may call themselves otherwise than whoever lists them. */
function rankOf(ranks: readonly Liveness[], { pid, host }: Death = {}): number | undefined {
  const found = ranks.filter((rank) => rank.pid === pid);
  return (found.length > 1 ? found.find((rank) => rank.host === host) : found[0])?.rank;
}

/** Milliseconds from one look at a folder to the next. */
const RESTART_LOOK_MS = 100;

/** Waits until nobody has the folder any more: what is left of a try ends by itself. */
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
