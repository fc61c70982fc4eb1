/**
 * Looks whether anything still moves while answers are waited for.
 *
 * [Note: looks, not moments] A stall is a row of looks at which nobody was at work. A machine that
 * was suspended, or whose clock has jumped, has missed some looks and seen none, so it does not
 * take the time in between for a stall.
 *
 * @module
 */

import type { System } from "./runtime/mod.ts";

/** Looks in the time after which a run counts as stalled. */
const LOOKS = 8;

/**
 * Looks from now on, until the function returned is called or there is a stall. In virtual time
 * nobody looks: whoever simulates sees when nobody can do anything.
 *
 * @param stallMs how long nobody may be at work.
 * @param onStall called once.
 */
export function watchForStall(
  { activity }: Pick<System, "activity">,
  stallMs: number,
  onStall: () => void,
): () => void {
  if (!activity) return () => {};
  let seen = activity(), quiet = 0;
  const timer = setInterval(() => {
    const now = activity();
    quiet = now === seen ? quiet + 1 : 0;
    seen = now;
    if (quiet < LOOKS) return;
    clearInterval(timer);
    onStall();
  }, stallMs / LOOKS);
  return () => clearInterval(timer);
}
