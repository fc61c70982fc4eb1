/**
 * Transfers of MPI that are under way, tested until they are done.
 *
 * [Note: progress] MPI moves bytes while it is called, and may say that a send is done when its bytes
 * are still in a buffer of its own, or a connection is still coming about. So a rank that is idle calls
 * it now and then, for those who wait for the rest, which takes less than a hundredth of a core.
 *
 * @module
 */

import { setImmediate } from "node:timers";
import { yieldCore } from "./library/yield_core.ts";
import type { Mpi, MpiRequest } from "./mpi.ts";

/** A test carries a part of a large transfer; so many are made before others have their turn. */
const TESTS = 8;

/** How often an idle rank calls MPI, in milliseconds. */
const IDLE_MS = 20;

/** What waits for transfers. */
export interface Progress {
  /** Calls `done` when a transfer is over. */
  await(request: MpiRequest, done: () => void): void;
  /** Resolves when a transfer is over. */
  end(request: MpiRequest): Promise<void>;
  /** Resolves when nothing is under way. */
  settled(): Promise<void>;
  /** MPI is called no more. */
  close(): void;
}

/** Opens it; a transfer that fails is told to `failed`. */
export function openProgress(
  mpi: Pick<Mpi, "test" | "advance">,
  failed: (error: Error) => void,
): Progress {
  let waiting: { readonly request: MpiRequest; readonly done: () => void }[] = [];
  let isPolling = false;
  const idle: (() => void)[] = [];
  /** Tests all that is under way, until something is over or it has been done often enough. */
  const test = () => {
    const finished: (() => void)[] = [];
    if (waiting.length === 0) mpi.advance();
    for (let n = 0; n < TESTS && waiting.length > 0 && finished.length === 0; n++) {
      waiting = waiting.filter(({ request, done }) => {
        const isDone = mpi.test(request);
        if (isDone) finished.push(done);
        return !isDone;
      });
    }
    return finished;
  };
  const poll = () => {
    try {
      for (const done of test()) done();
    } catch (error) {
      waiting = [];
      clearInterval(timer);
      failed(error as Error);
    }
    isPolling = waiting.length > 0;
    if (isPolling) {
      yieldCore();
      setImmediate(poll);
    } else for (const resolve of idle.splice(0)) resolve();
  };
  const begin: Progress["await"] = (request, done) => {
    waiting.push({ request, done });
    if (isPolling) return;
    isPolling = true;
    queueMicrotask(poll);
  };
  const timer = setInterval(() => isPolling || poll(), IDLE_MS);
  return {
    await: begin,
    end: (request) => new Promise((resolve) => begin(request, resolve)),
    settled: () =>
      waiting.length === 0 ? Promise.resolve() : new Promise((resolve) => idle.push(resolve)),
    close: () => clearInterval(timer),
  };
}
