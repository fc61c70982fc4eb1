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

/** Waits for transfers. */
export class Progress {
  readonly #mpi: Pick<Mpi, "test" | "advance">;
  readonly #failed: (error: Error) => void;
  #waiting: { readonly request: MpiRequest; readonly done: () => void }[] = [];
  #isPolling = false;
  readonly #idle: (() => void)[] = [];
  readonly #timer = setInterval(() => this.#isPolling || this.#poll(), IDLE_MS);

  /** @param failed called when a transfer fails. */
  constructor(mpi: Pick<Mpi, "test" | "advance">, failed: (error: Error) => void) {
    this.#mpi = mpi;
    this.#failed = failed;
  }

  /** Resolves when a transfer is over. */
  end(request: MpiRequest): Promise<void> {
    return new Promise((done) => {
      this.#waiting.push({ request, done });
      if (this.#isPolling) return;
      this.#isPolling = true;
      queueMicrotask(() => this.#poll());
    });
  }

  /** Resolves when nothing is under way. */
  settled(): Promise<void> {
    return this.#waiting.length === 0
      ? Promise.resolve()
      : new Promise((resolve) => this.#idle.push(resolve));
  }

  /** MPI is called no more. */
  close(): void {
    clearInterval(this.#timer);
  }

  #poll(): void {
    try {
      for (const done of this.#test()) done();
    } catch (error) {
      this.#waiting = [];
      this.close();
      this.#failed(error as Error);
    }
    this.#isPolling = this.#waiting.length > 0;
    if (this.#isPolling) {
      yieldCore();
      setImmediate(() => this.#poll());
    } else for (const resolve of this.#idle.splice(0)) resolve();
  }

  /** Tests all that is under way, until something is over or it has been done often enough. */
  #test(): (() => void)[] {
    const finished: (() => void)[] = [];
    if (this.#waiting.length === 0) this.#mpi.advance();
    for (let n = 0; n < TESTS && this.#waiting.length > 0 && finished.length === 0; n++) {
      this.#waiting = this.#waiting.filter(({ request, done }) => {
        const isDone = this.#mpi.test(request);
        if (isDone) finished.push(done);
        return !isDone;
      });
    }
    return finished;
  }
}
