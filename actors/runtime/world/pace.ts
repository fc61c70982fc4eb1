/**
 * How often the loop lets the event loop have its turn, so that timers and ports are served.
 *
 * A turn is `setImmediate`: a few microseconds, where `setTimeout(0)` takes two milliseconds and
 * a promise alone never lets a message in.
 *
 * @module
 */

import { setImmediate } from "node:timers";

/** One turn of the event loop. */
export function turn(): Promise<void> {
  return new Promise((resolve) => void setImmediate(resolve));
}

/** Steps between two turns at most, where many actors share an isolate. */
const MAX_STEPS = 1024;

/** Milliseconds between two turns at most, where many actors share an isolate. */
const MAX_MS = 4;

/** Taken before a simulation can set a trap: a system may take its last breath when one begins. */
const realNow = performance.now.bind(performance);

/** Breathes now and then: for an isolate whose messages come mostly from within. */
export function relaxedPace(): () => Promise<void> | undefined {
  let steps = 0;
  let last = realNow();
  return () => {
    if (++steps < MAX_STEPS && realNow() - last < MAX_MS) return undefined;
    steps = 0;
    return turn().then(() => {
      last = realNow();
    });
  };
}
