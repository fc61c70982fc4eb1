/**
 * What a journal lacks at its end.
 *
 * @module
 */

import type { Journal } from "../../actors/simulation/mod.ts";

/** What a journal lacks, as the rest of a sentence. */
export function describeEnds({ isTorn, unfinished }: Journal): string {
  const ends = unfinished.length === 0 ? [] : [
    `; the end of isolate ${
      unfinished.join(", ")
    } is missing: it was killed, or the journal was cut`,
  ];
  return [...(isTorn ? ["; its last line is torn"] : []), ...ends].join("");
}
