/**
 * Chance by name: one root seed, and for each label a sequence of its own. No two sequences share
 * a state, so who draws first changes nothing.
 *
 * @module
 */

import { xoroshiro128plusFromState } from "pure-rand/generator/xoroshiro128plus";

/** FNV-1a over UTF-16 code units, from a given basis. */
function hash(text: string, basis: number): number {
  let value = basis;
  for (let index = 0; index < text.length; index++) {
    value = Math.imul(value ^ text.charCodeAt(index), 0x01000193);
  }
  return value;
}

/**
 * The sequence of numbers in [0, 1), 53 bits each, that `seed` and `name` determine.
 *
 * @param seed the root seed.
 * @param name who draws for what.
 */
export function substream(seed: number, name: string): () => number {
  const text = `${seed}\0${name}`;
  // Four words, each hashed from another basis; the last is odd, as an all-zero state never moves.
  const words = [0x811c9dc5, 0x9e3779b9, 0x85ebca6b, 0xc2b2ae35].map((basis) => hash(text, basis));
  const generator = xoroshiro128plusFromState([words[0]!, words[1]!, words[2]!, words[3]! | 1]);
  // FNV leaves like names with like words; a few rounds tell them apart.
  for (let round = 0; round < 16; round++) generator.next();
  return () => ((generator.next() >>> 5) * 2 ** 26 + (generator.next() >>> 6)) / 2 ** 53;
}
