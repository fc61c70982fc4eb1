/**
 * Looks whether anything still moves while answers are waited for.
 *
 * [Note: looks, not moments] A stall is a row of looks at which nobody was at work. A machine that
 * was suspended, or whose clock has jumped, has missed some looks and seen none, so it does not
 * take the time in between for a stall.
 *
 * @module
 */

import type { System } from "../../runtime/mod.ts";

/** Looks in the time after which a run counts as stalled. */
const LOOKS = 8;

/** Who looks. */
export interface StallWatch {
  /** From now on somebody waits, and nobody may be at rest for longer than `limitMs`. */
  begin(limitMs: number): void;
  /** Nobody waits any longer. */
  end(): void;
  /** Nobody will look any more. */
  close(): void;
}

/**
 * Opens a watch. In virtual time nobody looks: whoever simulates sees when nobody can do anything.
 *
 * @param stallMs a usual limit; an eighth of it is the time between looks.
 * @param onStall called once for each wait that lasts, with its limit.
 */
export function openStallWatch(
  { activity }: Pick<System, "activity">,
  stallMs: number,
  onStall: (limitMs: number) => void,
): StallWatch {
  if (!activity) return { begin() {}, end() {}, close() {} };
  const lookMs = stallMs / LOOKS;
  let limit = Infinity, seen: number | undefined, quiet = 0;
  // One timer for the whole run: steps are many, and a timer for each would be set and cleared.
  const timer = setInterval(() => {
    if (limit === Infinity) return;
    const now = activity();
    quiet = now === seen ? quiet + 1 : 0;
    seen = now;
    if (quiet * lookMs < limit) return;
    const stalledMs = limit;
    limit = Infinity;
    onStall(stalledMs);
  }, lookMs);
  return {
    begin(limitMs) {
      limit = limitMs;
      // The first look may come at once; it only sees how things stand.
      seen = undefined;
    },
    end() {
      limit = Infinity;
    },
    close: () => clearInterval(timer),
  };
}
