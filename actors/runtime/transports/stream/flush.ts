/**
 * Lets what is large leave before the next step.
 *
 * A socket holds but a part of a tensor, and the rest goes only while the event loop has its turn.
 * A step that computes for long would keep a tensor here that its receiver could work on.
 *
 * @module
 */

import type { Outbox } from "./stream.ts";

/** What waits is large from here on; less fits into a socket. */
const LARGE_BYTES = 65_536;

/** Milliseconds that are waited for receivers who take nothing: they may compute themselves. */
const PATIENCE_MS = 2;

/** A promise that what is large has left, as far as it is taken; undefined when nothing is. */
export function flush(outboxes: readonly Outbox[]): Promise<void> | undefined {
  const large = outboxes.filter(({ waitingBytes }) => waitingBytes >= LARGE_BYTES);
  return large.length > 0 ? flushLarge(large) : undefined;
}

async function flushLarge(outboxes: readonly Outbox[]): Promise<void> {
  const waiting = () => outboxes.reduce((sum, { waitingBytes }) => sum + waitingBytes, 0);
  const all = Promise.all(outboxes.map(({ idle }) => idle));
  for (let before = Infinity; waiting() > 0 && waiting() < before;) {
    before = waiting();
    let timer;
    const patience = new Promise((resolve) => timer = setTimeout(resolve, PATIENCE_MS));
    await Promise.race([all, patience]);
    clearTimeout(timer);
  }
}
