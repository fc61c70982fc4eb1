/**
 * Virtual time: it stands still while anybody can do anything, then jumps to the next timer.
 *
 * @module
 */

import type { Clock } from "../runtime/clock.ts";

/** A timer that has not fired. */
interface Timer {
  readonly at: number;
  readonly fire: () => void;
}

/** A clock whose time is a function of what the actors do. */
export interface VirtualClock extends Clock {
  advance(): boolean;
  /** How long the timers still run, in the order in which they will fire, in milliseconds. */
  remaining(): number[];
}

/** A virtual clock at 0. Timers of one moment fire in the order they were started. */
export function createVirtualClock(): VirtualClock {
  let now = 0;
  /** The next to fire last. Few timers run at a time, so a sorted array does. */
  const timers: Timer[] = [];

  return {
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
      const next = timers.pop();
      if (!next) return false;
      now = next.at;
      next.fire();
      return true;
    },
    remaining: () => timers.map(({ at }) => at - now).reverse(),
  };
}
