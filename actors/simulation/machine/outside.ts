/**
 * What actors wait for outside of the simulation.
 *
 * [Note: outside takes no time] How long it really takes must decide nothing. So nothing else is
 * done until it has ended, and what is begun later ends later; then its end is a message like any
 * other, whose turn the strategy chooses.
 *
 * @module
 */

import { exempt } from "../traps/guard.ts";

/** Work outside that is under way. */
export class Outside {
  #last: Promise<unknown> | undefined;

  /** Does something outside, where the traps do not matter; ends after what was begun before. */
  readonly run = <T>(work: () => T | Promise<T>): Promise<T> => {
    const before = this.#last, result = exempt(async () => await work());
    const end = before ? before.then(() => result) : result;
    this.#last = end.then(() => {}, () => {});
    return end;
  };

  /** All that was begun has ended; undefined when nothing was. */
  ended(): Promise<unknown> | undefined {
    const last = this.#last;
    this.#last = undefined;
    return last;
  }
}
