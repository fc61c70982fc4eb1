/**
 * Keeps the heap of an isolate small.
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
