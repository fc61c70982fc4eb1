/**
 * How many failures a run outlives: so many of each worker within a period, after which the next try
 * would hardly go better.
 *
 * @module
 */

import { commandLine } from "../command_line.ts";
import { countRestarts, type Restarts } from "../../runtime/supervision/restarts.ts";
import type { WorkerLost } from "../../pipeline/protocol.ts";

/** A worker is gone, and with it the step under way. */
export class WorkerLostError extends Error {
  /** Tells it from other errors, also where the class is another. */
  override readonly name = "WorkerLostError";
  /** Who failed first, and how. */
  readonly lost: WorkerLost;

  /** Says which worker failed at what. */
  constructor(lost: WorkerLost) {
    super(lost.message);
    this.lost = lost;
  }
}

/**
 * A worker does not answer and cannot be ended, since it is a thread of this program: only the end of
 * the program ends it.
 */
export class WedgedError extends Error {
  /** Tells it from other errors, also where the class is another. */
  override readonly name = "WedgedError";
  /** What the program should end with: the next try may go well (EX_TEMPFAIL of sysexits.h). */
  readonly exitCode = 75;

  /**
   * Says who waits for whom, and how to go on.
   *
   * @param message who waits for whom.
   * @param checkpoint the last one.
   */
  constructor(message: string, checkpoint: string | null) {
    const how = checkpoint
      ? `go on with: ${commandLine("train", "--resume", checkpoint)}`
      : "no checkpoint has been written";
    super(`${message}; the program must end, as only a process can be ended: ${how}`);
  }
}

/** Failures older than the period are forgotten when the run has got on since. */
const LIMITS = { periodMs: 600_000, firstMs: 50, maxMs: 5000 } as const;

/** What decides. */
export interface RetryOptions {
  /** How often each worker may fail within ten minutes. */
  readonly retries: number;
  /** Whether a worker that does not answer can be ended: it has a process of its own. */
  readonly canKill: boolean;
  /** Milliseconds since any moment. Default: the platform's. */
  readonly now?: (() => number) | undefined;
}

/** Counts failures. */
export interface Retries {
  /**
   * Counts one.
   *
   * @returns how long to wait before the next try, in milliseconds.
   * @throws {WorkerLostError} when there have been enough.
   */
  failed(error: WorkerLostError): number;
  /** The run has got on: something was done that had not been done before. */
  gotOn(): void;
}

/** Opens the count of a run. */
export function openRetries(
  { retries, canKill, now = () => performance.now() }: RetryOptions,
): Retries {
  const workers = new Map<string, Restarts>();
  let lastMessage: string | undefined;
  const countOf = (worker: string) => {
    const known = workers.get(worker);
    if (known) return known;
    const count = countRestarts({ intensity: retries, ...LIMITS });
    workers.set(worker, count);
    return count;
  };
  return {
    failed({ lost }) {
      const { worker, message, kind, isWedged } = lost, waitMs = countOf(worker).failed(now());
      // What a handler throws twice at the same action, it would throw a third time.
      const isSame = kind !== "exit" && message === lastMessage;
      lastMessage = message;
      if (isWedged && !canKill) throw new WorkerLostError(lost);
      // The others are ended like any that fails: another run can begin where this one was.
      const ended = { ...lost, isWedged: false };
      if (retries === 0 || isSame) throw new WorkerLostError(ended);
      if (waitMs !== undefined) return waitMs;
      throw new WorkerLostError({
        ...ended,
        message:
          `Cannot go on: ${worker} may fail ${retries} times in ten minutes, and failed again; ${message}`,
      });
    },
    gotOn() {
      for (const count of workers.values()) count.gotOn();
      lastMessage = undefined;
    },
  };
}
