/**
 * Clocks, named random sequences, and garbage collection. Each label has a separate sequence,
 * derived from the root seed. Sequences share no state, so the order of draws does not matter.
 *
 * [Note: full collections] V8 lets a heap grow while few objects survive: the young generation
 * up to 64 MiB, and the old generation to several times its size before it is collected. The flags
 * that limit this are read at the start of a process and cannot be set by a program, so only a full
 * collection gives the memory back.
 *
 * @module
 */

import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { xoroshiro128plusFromState } from "pure-rand/generator/xoroshiro128plus";

/** A source of time and of timers. */
export interface Clock {
  /** Returns the time in milliseconds. It never goes back. */
  now(): number;
  /** Calls `fire` once after `delayMs`. The function returned cancels it. */
  after(delayMs: number, fire: () => void): () => void;
  /** Advances a virtual clock when no actor can run: fires the next timer and returns true, or
   * returns false if there is none. Absent for a real clock. */
  advance?(): boolean;
}

/** Maximum delay of a platform timer, in milliseconds; a longer one would fire immediately. */
const MAX_TIMEOUT_MS = 2 ** 31 - 1;

/** Returns the wall clock, which is the same in every isolate of a process, with timers of the
 * platform. */
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

/** Growth of a heap before its next collection: in bytes, or as a fraction if that is more. */
const GROWTH_BYTES = 2 ** 23, GROWTH = 0.1;

/** Maximum fraction of its time that an isolate spends on these collections. */
const SHARE = 0.005;

/** Read before a simulation can replace them. */
const { memoryUsage } = Deno, now = performance.now.bind(performance);

let collect: (() => void) | undefined;

/** Returns the bytes of the heap and of the buffers that its objects hold. */
function heldBytes(): number {
  const { heapTotal, external } = memoryUsage();
  return heapTotal + external;
}

/**
 * Collects the garbage of this isolate when its heap has grown, until it is disposed of. Does not
 * keep the program running.
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

/** Returns the FNV-1a hash of UTF-16 code units, from a given basis. */
function hash(text: string, basis: number): number {
  let value = basis;
  for (let index = 0; index < text.length; index++) {
    value = Math.imul(value ^ text.charCodeAt(index), 0x01000193);
  }
  return value;
}

/**
 * Returns a generator of numbers in [0, 1), 53 bits each, determined by `seed` and `name`.
 *
 * @param seed the root seed.
 * @param name the name of the sequence.
 */
export function substream(seed: number, name: string): () => number {
  const text = `${seed}\0${name}`;
  // Four words, each hashed from another basis. The last is odd because an all-zero state never
  // changes.
  const words = [0x811c9dc5, 0x9e3779b9, 0x85ebca6b, 0xc2b2ae35].map((basis) => hash(text, basis));
  const generator = xoroshiro128plusFromState([words[0]!, words[1]!, words[2]!, words[3]! | 1]);
  // FNV gives similar words to similar names; a few rounds make them differ.
  for (let round = 0; round < 16; round++) generator.next();
  return () => ((generator.next() >>> 5) * 2 ** 26 + (generator.next() >>> 6)) / 2 ** 53;
}
