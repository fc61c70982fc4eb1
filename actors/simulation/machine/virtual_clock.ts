/**
 * Virtual time: it stands still while anybody can do anything, then jumps to the next timer.
 *
 * @module
 */

import type { Clock } from "../../runtime/world/clock.ts";

/** A clock whose time is a function of what the actors do. Timers of one moment fire in the order in
 * which they were started. */
export class VirtualClock implements Clock {
  /** The moment that time must not pass; {@linkcode Infinity} where it may go on. */
  limit = Infinity;
  #now = 0;
  /** The next to fire last. Few timers run at a time, so a sorted array does. */
  readonly #timers: { readonly at: number; readonly fire: () => void }[] = [];

  readonly now = (): number => this.#now;

  readonly after = (delayMs: number, fire: () => void): () => void => {
    if (delayMs === Infinity) return () => {};
    const timers = this.#timers, timer = { at: this.#now + Math.max(0, delayMs), fire };
    let index = timers.length;
    while (index > 0 && timers[index - 1]!.at <= timer.at) index--;
    timers.splice(index, 0, timer);
    return () => {
      const place = timers.indexOf(timer);
      if (place >= 0) timers.splice(place, 1);
    };
  };

  /** Jumps to the next timer, if that fires by the limit, and fires it. */
  advance(): boolean {
    if (this.next() === undefined) return false;
    const next = this.#timers.pop()!;
    this.#now = next.at;
    next.fire();
    return true;
  }

  /** Lets time pass up to the limit, where no timer fires before. */
  reachLimit(): void {
    if (this.limit < Infinity) this.#now = Math.max(this.#now, this.limit);
  }

  /** The moment at which the next timer fires, if that is by the limit. */
  next(): number | undefined {
    const at = this.#timers.at(-1)?.at;
    return at !== undefined && at <= this.limit ? at : undefined;
  }

  /** Milliseconds that each timer still runs, in the order in which they will fire. */
  remaining(): number[] {
    return this.#timers.map(({ at }) => at - this.#now).reverse();
  }
}
