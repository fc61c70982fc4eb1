/**
 * What the scenario waits for: answers, a moment, or until nobody can do anything. Time passes no
 * further than to where the scenario has to go on.
 *
 * @module
 */

import type { VirtualClock } from "./virtual_clock.ts";

/** The waits of a scenario. */
export class ScenarioWaits {
  /** Something ended that the scenario may wait for. */
  isVisible = false;
  /** The scenario says how far time goes. */
  isTimed = false;
  readonly #openAsks = new Set<number>();
  /** What it waits for besides answers, and until which moment. */
  #waiters: { readonly until: number; readonly resolve: () => void }[] = [];
  #isClosed = false;

  /** @param clock the time that must not pass too far. */
  constructor(private readonly clock: VirtualClock) {}

  /** Whether the scenario waits for anything but answers. */
  get isWaiting(): boolean {
    return this.#waiters.length > 0;
  }

  /** The scenario waits for an answer. */
  forAnswer(ask: number): void {
    this.#openAsks.add(ask);
    this.#setLimit();
  }

  /** Sees which answers have come. */
  lookAtAnswers(open: { has(ask: number): boolean }): void {
    for (const ask of this.#openAsks) {
      if (open.has(ask)) continue;
      this.#openAsks.delete(ask);
      this.#setLimit();
      this.isVisible = true;
    }
  }

  /** The scenario waits until nobody can do anything, or for a moment. */
  until(moment: number): Promise<void> {
    return new Promise((resolve) => {
      this.#waiters.push({ until: moment, resolve });
      this.#setLimit();
    });
  }

  /** Lets the scenario go on where it waits for no later moment than this. */
  wake(moment = Infinity): void {
    const reached = this.#waiters.filter(({ until }) => until <= moment);
    this.#waiters = this.#waiters.filter(({ until }) => until > moment);
    this.#setLimit();
    for (const { resolve } of reached) resolve();
  }

  /** The scenario is over: the clock is somebody else's. */
  close(): void {
    this.#isClosed = true;
  }

  #setLimit(): void {
    if (this.#isClosed) return;
    const isOpen = !this.isTimed || this.#openAsks.size > 0;
    this.clock.limit = this.isWaiting
      ? Math.min(...this.#waiters.map(({ until }) => until))
      : isOpen
      ? Infinity
      : this.clock.now();
  }
}
