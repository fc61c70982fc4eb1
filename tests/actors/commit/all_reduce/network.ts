/**
 * A network in memory: delivers messages in any order that is FIFO for each pair of ranks, and
 * takes the buffers of what it sends away from the sender.
 */

import assert from "node:assert/strict";
import {
  type GradientArray,
  openReducer,
  type ReduceMessage,
  type Reducer,
  type ReducerOptions,
} from "../../../../actors/commit/all_reduce/mod.ts";

export interface Wanted extends Pick<ReducerOptions, "chunks" | "algorithm" | "dtype"> {
  /** The gradients of each copy; they stay as they are. */
  readonly copies: readonly GradientArray[];
  readonly isShared?: boolean;
  /** Picks one of so many events that can come next. Default: the first. */
  readonly pick?: (count: number) => number;
  /** The chunks that start; all of them unless given. */
  readonly started?: readonly number[];
}

export interface Sent {
  readonly from: number;
  readonly to: number;
  readonly message: ReduceMessage;
  /** Number of values. */
  readonly volume: number;
}

/** Runs an all-reduce to its end; gives the gradients of every copy and all that was sent. */
export async function allReduce(wanted: Wanted) {
  const { copies, chunks, algorithm, dtype, pick = () => 0 } = wanted, size = copies.length;
  const after = copies.map((copy) => copy.slice()), bytes = copies[0]!.byteLength;
  const shared = wanted.isShared ? new SharedArrayBuffer(size * bytes) : undefined;
  const sent: Sent[] = [], completed: number[][] = copies.map(() => []);
  const links = new Map<string, Sent[]>();
  const toStart = copies.flatMap((_, rank) =>
    (wanted.started ?? chunks.keys().toArray()).map((chunk) => ({ rank, chunk }))
  );
  const reducers: Reducer[] = after.map((gradients, rank) =>
    openReducer({
      rank,
      size,
      chunks,
      algorithm,
      dtype,
      shared,
      read: async (offset, length) => await gradients.slice(offset, offset + length),
      write(offset, values) {
        assert.ok(values.buffer instanceof ArrayBuffer, "what is written must not be shared");
        gradients.set(values, offset);
      },
      send(to, message) {
        const volume = message.values?.length ?? 0;
        const transfer = message.values ? [message.values.buffer] : [];
        const one = { from: rank, to, message: structuredClone(message, { transfer }), volume };
        const link = `${rank}>${to}`;
        links.set(link, [...links.get(link) ?? [], one]);
        sent.push(one);
      },
      onComplete(chunk) {
        const waiting = toStart.filter((start) => start.chunk === chunk);
        assert.deepEqual(
          waiting,
          [],
          "a chunk cannot be complete before every copy has started it",
        );
        completed[rank]!.push(chunk);
      },
    })
  );
  while (true) {
    const waiting = links.values().filter((link) => link.length > 0).toArray();
    const events = toStart.length + waiting.length;
    if (events === 0) break;
    const event = pick(events);
    if (event < toStart.length) {
      const [{ rank, chunk }] = toStart.splice(event, 1) as [typeof toStart[number]];
      await reducers[rank]!.start(chunk);
    } else {
      const { to, message } = waiting[event - toStart.length]!.shift()!;
      reducers[to]!.receive(message);
    }
  }
  return { after, sent, completed, reducers };
}
