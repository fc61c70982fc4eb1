/**
 * Chance by name: one root seed, and for each label a sequence of its own. No two sequences share
 * a state, so who draws first changes nothing.
 *
 * [Note: full collections] V8 lets a heap grow for as long as little in it survives: the part for
 * young objects to 64 MiB, and that for old ones several times over before it looks what of it is
 * dead. Its flags for that are read when a process starts, and a program cannot set them: only a full
 * collection gives the memory back.
 *
 * @module
 */

import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { xoroshiro128plusFromState } from "pure-rand/generator/xoroshiro128plus";

/** A source of time and of timers. */
export interface Clock {
  /** Milliseconds; never goes back. */
  now(): number;
  /** Calls `fire` once after `delayMs`, unless the function returned is called before. */
  after(delayMs: number, fire: () => void): () => void;
  /** A virtual clock: when nothing can run, jumps to the next timer, fires it, and says whether
   * there was one. Absent where time passes by itself. */
  advance?(): boolean;
}

/** Longest delay of a platform timer, in milliseconds; a longer one would fire at once. */
const MAX_TIMEOUT_MS = 2 ** 31 - 1;

/** The wall clock, the same in every isolate of a process, and timers of the platform. */
export function realClock(now?: () => number): Clock {
  return {
    now: now ?? (() => performance.timeOrigin + performance.now()),
    after(delayMs, fire) {
      if (delayMs === Infinity) return () => {};
      const timer = setTimeout(fire, Math.min(Math.max(0, delayMs), MAX_TIMEOUT_MS));
      return () => clearTimeout(timer);
    },
  };
}

const LOOK_MS = 1000;

/** What a heap may grow by beyond what it was at first, or what lives in it: bytes, and a part. */
const GROWTH_BYTES = 2 ** 23, GROWTH = 0.1;

/** The most of its time that an isolate spends on collections. */
const SHARE = 0.005;

/** Taken before a simulation can set a trap. */
const { memoryUsage } = Deno, now = performance.now.bind(performance);

let collect: (() => void) | undefined;

/** Bytes of the heap, and of the arrays that its objects hold. */
function heldBytes(): number {
  const { heapTotal, external } = memoryUsage();
  return heapTotal + external;
}

/**
 * Collects the garbage of this isolate whenever its heap has grown, until it is disposed of. Does not
 * keep the program from its end.
 */
export function watchHeap(): Disposable {
  setFlagsFromString("--expose-gc");
  collect ??= runInNewContext("globalThis.gc");
  let limitBytes = 0, nextMs = 0;
  const timer = setInterval(() => {
    const isFirst = limitBytes === 0, began = now();
    if (!isFirst && (began < nextMs || heldBytes() <= limitBytes)) return;
    if (!isFirst) collect?.();
    nextMs = began + (now() - began) / SHARE;
    const held = heldBytes();
    limitBytes = Math.max(limitBytes, held + Math.max(GROWTH_BYTES, GROWTH * held));
  }, LOOK_MS);
  Deno.unrefTimer(timer);
  return { [Symbol.dispose]: () => clearInterval(timer) };
}

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
