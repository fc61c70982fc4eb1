/**
 * Messages that are put behind all others, and stay there.
 *
 * @module
 */

import type { Candidate } from "../../runtime/mod.ts";

/** First in, first out, except for messages that are late. */
export class LateOrder {
  /** Places of late messages among each other, by the number of their enqueuing. */
  readonly #places = new Map<number, number>();

  /** Forgets which messages are late. */
  clear(): void {
    this.#places.clear();
  }

  /** Puts a message behind all others, also behind those that are late already. */
  put({ seq }: Candidate): void {
    this.#places.set(seq, this.#places.size);
  }

  /** Whether a message is late. */
  isLate({ seq }: Candidate): boolean {
    return this.#places.has(seq);
  }

  /** Index of the candidate whose turn it is. */
  first(candidates: readonly Candidate[]): number {
    if (this.#places.size === 0) return 0;
    const places = candidates.map(({ seq }) => this.#places.get(seq) ?? -1);
    return places.indexOf(Math.min(...places));
  }
}
