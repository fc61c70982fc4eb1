/**
 * One try of a job: its launcher is started, what the ranks say is passed on, and somebody looks
 * whether they live.
 *
 * @module
 */

import {
  decodeSign,
  END_REQUEST,
  type SignOfLife,
} from "../../actors/runtime/transports/mpi/launcher/sign_of_life.ts";
import { LAUNCH_VARIABLE } from "../../actors/runtime/transports/mpi/launcher/launch_watch.ts";
import { writeAll } from "../print.ts";
import type { CommandLine } from "./command_line.ts";
import type { Death, LineFilter } from "./death.ts";
import { openJobWatch } from "./job_watch.ts";

/** How a try is made. */
export interface JobOptions {
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
  readonly ranks: ReadonlyMap<number, SignOfLife>;
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
    readonly hear?: (sign: SignOfLife) => void;
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
        const sign = decodeSign(line);
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
