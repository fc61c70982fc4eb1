/**
 * The pulse of an isolate: whether its actors are at work, in memory that other threads can see.
 *
 * [Note: busy is not wedged] An isolate whose thread computes hears and says nothing until it has
 * done, which may take minutes. Only what it wrote before tells it from one that hangs. So actors
 * say what may take its time ({@linkcode Context.busy}), another thread looks, and what is busy for
 * longer than any work takes hangs all the same.
 *
 * @module
 */

/** Work that goes on for longer is none. */
const MAX_WORK_MS = 3_600_000;

/** Time between two looks counts up to here: a suspended machine does not work. */
const MAX_LOOK_MS = 60_000;

/** Places of the counts. */
const BEGUN = 0, ENDED = 1;

/** Counts the work of an isolate that has begun and ended. */
export class Pulse {
  /** Shared with those who look. */
  readonly buffer: SharedArrayBuffer;
  readonly #counts: Int32Array;
  /** What was seen last, when, and for how long it has been the same. */
  #seen = 0;
  #lookedAt = 0;
  #sameMs = 0;

  /** @param buffer that of the isolate, where this is another. */
  constructor(buffer: SharedArrayBuffer = new SharedArrayBuffer(2 * Int32Array.BYTES_PER_ELEMENT)) {
    this.buffer = buffer;
    this.#counts = new Int32Array(buffer);
  }

  /** Runs what may take its time. */
  async busy<T>(run: () => T | Promise<T>): Promise<T> {
    Atomics.add(this.#counts, BEGUN, 1);
    try {
      return await run();
    } finally {
      Atomics.add(this.#counts, ENDED, 1);
    }
  }

  /** Whether there is work, or has been since this was asked last. */
  stirs(): boolean {
    const begun = Atomics.load(this.#counts, BEGUN), ended = Atomics.load(this.#counts, ENDED);
    const seen = begun + ended, isSame = seen === this.#seen, now = performance.now();
    this.#sameMs = isSame ? this.#sameMs + Math.min(now - this.#lookedAt, MAX_LOOK_MS) : 0;
    this.#seen = seen;
    this.#lookedAt = now;
    return !isSame || (begun !== ended && this.#sameMs < MAX_WORK_MS);
  }
}
