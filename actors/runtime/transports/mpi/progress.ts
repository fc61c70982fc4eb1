/**
 * Transfers of MPI that are under way, tested until they are done. While there is none, nothing runs:
 * an idle rank uses no core.
 *
 * @module
 */

import { setImmediate } from "node:timers";
import type { Mpi, MpiRequest } from "./mpi.ts";

/** What waits for transfers. */
export interface Progress {
  /** Calls `done` when a transfer is over. */
  await(request: MpiRequest, done: () => void): void;
  /** Resolves when a transfer is over. */
  end(request: MpiRequest): Promise<void>;
  /** Resolves when nothing is under way. */
  settled(): Promise<void>;
}

/** Opens it; a transfer that fails is told to `failed`. */
export function openProgress(mpi: Pick<Mpi, "test">, failed: (error: Error) => void): Progress {
  let waiting: { readonly request: MpiRequest; readonly done: () => void }[] = [];
  let isPolling = false;
  const idle: (() => void)[] = [];
  const poll = () => {
    const finished = new Set<() => void>();
    try {
      waiting = waiting.filter(({ request, done }) => {
        const isDone = mpi.test(request);
        if (isDone) finished.add(done);
        return !isDone;
      });
    } catch (error) {
      waiting = [];
      failed(error as Error);
    }
    for (const done of finished) done();
    isPolling = waiting.length > 0;
    if (isPolling) setImmediate(poll);
    else for (const resolve of idle.splice(0)) resolve();
  };
  const begin: Progress["await"] = (request, done) => {
    waiting.push({ request, done });
    if (isPolling) return;
    isPolling = true;
    setImmediate(poll);
  };
  return {
    await: begin,
    end: (request) => new Promise((resolve) => begin(request, resolve)),
    settled: () =>
      waiting.length === 0 ? Promise.resolve() : new Promise((resolve) => idle.push(resolve)),
  };
}
