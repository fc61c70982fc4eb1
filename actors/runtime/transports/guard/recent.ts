/**
 * Maps that somebody who is not trusted fills.
 *
 * @module
 */

import { BriefMap } from "../../actor/brief_map.ts";

/** A map of the newest entries: it forgets the oldest rather than to grow beyond its limit. */
export class Recent<K, V> extends BriefMap<K, V> {
  readonly #limit: number;
  /** It has forgotten some. */
  isLossy = false;

  /** @param limit entries that it holds at most. */
  constructor(limit: number) {
    super();
    this.#limit = limit;
  }

  /** Gives a key a value. */
  override set(key: K, value: V): void {
    // What is told again is newer than what was not.
    super.take(key);
    super.set(key, value);
    if (this.size <= this.#limit) return;
    const [oldest] = this;
    super.take(oldest![0]);
    this.isLossy = true;
  }
}
