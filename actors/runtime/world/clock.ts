/**
 * Time as actors see it. A simulation puts a virtual clock in its place.
 *
 * @module
 */

/** A source of time and of timers. */
export interface Clock {
  /** Milliseconds; never goes back. */
  now(): number;
  /** Calls `fire` once after `delayMs`, unless the function returned is called before. */
  after(delayMs: number, fire: () => void): () => void;
  /** A virtual clock: when nothing can run, jumps to the next timer, fires it, and says whether
   * there was one. Absent where time passes by itself. */
  advance?(): boolean;
}

/** Longest delay of a platform timer, in milliseconds; a longer one would fire at once. */
const MAX_TIMEOUT_MS = 2 ** 31 - 1;

/** The wall clock, the same in every isolate of a process, and timers of the platform. */
export function realClock(now?: () => number): Clock {
  return {
    now: now ?? (() => performance.timeOrigin + performance.now()),
    after(delayMs, fire) {
      if (delayMs === Infinity) return () => {};
      const timer = setTimeout(fire, Math.min(Math.max(0, delayMs), MAX_TIMEOUT_MS));
      return () => clearTimeout(timer);
    },
  };
}
