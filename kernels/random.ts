/**
 * Chance, keyed by (seed, label): the same whatever the order of draws or the stage.
 *
 * @module
 */

import { createHash } from "node:crypto";
import { xoroshiro128plusFromState } from "pure-rand/generator/xoroshiro128plus";
import type { RandomGenerator as PureRandomGenerator } from "pure-rand/types/RandomGenerator";

/** A generator of random 32-bit integers, as npm's `pure-rand` has them. */
export type RandomGenerator = PureRandomGenerator;

/** A generator of its own for each (seed, label): neighbouring seeds and labels share nothing. */
export function substream(seed: number, label: string): RandomGenerator {
  const digest = createHash("sha256").update(`${seed}/${label}`).digest();
  const word = (i: number) => digest.readInt32LE(4 * i);
  return xoroshiro128plusFromState([word(0), word(1), word(2), word(3)]);
}
