/**
 * Random numbers keyed by (seed, label): independent of the order of draws and of the stage.
 *
 * @module
 */

import { xoroshiro128plusFromState } from "pure-rand/generator/xoroshiro128plus";
import type { RandomGenerator as PureRandomGenerator } from "pure-rand/types/RandomGenerator";
import { builtin } from "./builtin.ts";

const { createHash } = builtin("node:crypto");

/** A generator of random 32-bit integers, from npm's `pure-rand`. */
export type RandomGenerator = PureRandomGenerator;

/** Returns the generator of (seed, label); neighbouring seeds and labels are independent. */
export function substream(seed: number, label: string): RandomGenerator {
  const digest = createHash("sha256").update(`${seed}/${label}`).digest();
  const word = (i: number) => digest.readInt32LE(4 * i);
  return xoroshiro128plusFromState([word(0), word(1), word(2), word(3)]);
}
