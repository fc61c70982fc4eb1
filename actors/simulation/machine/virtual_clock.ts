/**
 * Virtual time: it stands still while anybody can do anything, then jumps to the next timer.
 *
 * @module
 */

import type { Clock } from "../../runtime/world/clock.ts";

/** A timer that has not fired. */
interface Timer {
  readonly at: number;
  readonly fire: () => void;
}

/** A clock whose time is a function of what the actors do. */
export interface VirtualClock extends Clock {
  /** The moment that time must not pass; {@linkcode Infinity} where it may go on. */
  limit: number;
  /** Jumps to the next timer, if that fires by the limit, and fires it. */
  advance(): boolean;
  /** Lets time pass up to the limit, where no timer fires before. */
  reachLimit(): void;
  /** When the next timer fires, if it does so by the limit. */
  next(): number | undefined;
  /** How long the timers still run, in the order in which they will fire, in milliseconds. */
  remaining(): number[];
}

/** A virtual clock at 0. Timers of one moment fire in the order they were started. */
export function createVirtualClock(): VirtualClock {
  let now = 0;
  /** The next to fire last. Few timers run at a time, so a sorted array does. */
  const timers: Timer[] = [];

  const clock: VirtualClock = {
    limit: Infinity,
    now: () => now,
    after(delayMs, fire) {
      if (delayMs === Infinity) return () => {};
      const timer: Timer = { at: now + Math.max(0, delayMs), fire };
      let index = timers.length;
      while (index > 0 && timers[index - 1]!.at <= timer.at) index--;
      timers.splice(index, 0, timer);
      return () => {
        const place = timers.indexOf(timer);
        if (place >= 0) timers.splice(place, 1);
      };
    },
    advance() {
      if (clock.next() === undefined) return false;
      const next = timers.pop()!;
      now = next.at;
      next.fire();
      return true;
    },
    reachLimit() {
      if (clock.limit < Infinity) now = Math.max(now, clock.limit);
    },
    next() {
      const at = timers.at(-1)?.at;
      return at !== undefined && at <= clock.limit ? at : undefined;
    },
    remaining: () => timers.map(({ at }) => at - now).reverse(),
  };
  return clock;
}
