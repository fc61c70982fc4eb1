/**
 * Gradients whose sum depends on the order, the sum in copy order by the plainest loop, and a network in
 * memory that adds them: it delivers messages in any order that is FIFO for each pair of ranks, and takes
 * each sent buffer away from its sender.
 */

import assert from "node:assert/strict";
import {
  type GradientArray,
  openReducer,
  type ReduceMessage,
  type Reducer,
  type ReducerOptions,
} from "../../../../actors/gradients/all_reduce.ts";
import fc from "../../../fast_check.ts";

export type DType = "f32" | "f16";

function arrayOf(dtype: DType, values: readonly number[]): GradientArray {
  return dtype === "f32" ? new Float32Array(values) : new Float16Array(values);
}

/**
 * Gradients of all copies: both signs, magnitudes over seven powers of two, some negative zeros.
 *
 * In every other element two copies also hold a large number and its opposite. Values added
 * between them is rounded to the large one's precision, which shows even after f16 has dropped
 * most bits of an f32 sum.
 */
export function copiesOf(
  { size, length, dtype, seed }: { size: number; length: number; dtype: DType; seed: number },
): GradientArray[] {
  let state = Math.imul(seed + 1, 0x9e3779b1);
  const draw = () => {
    state = Math.imul(state ^ (state >>> 15), 0x2c1b3c6d) + 0x6d2b79f5 | 0;
    return ((state ^ (state >>> 13)) >>> 0) / 2 ** 32;
  };
  const value = () => draw() < 0.03 ? -0 : (2 * draw() - 1) * 2 ** Math.floor(draw() * 7 - 6);
  const copies = Array.from({ length: size }, () => Array.from({ length }, value));
  for (let i = 0; size > 1 && i < length; i += 2) {
    const one = Math.floor(draw() * size),
      other = (one + 1 + Math.floor(draw() * (size - 1))) % size;
    const large = 2 ** 12 * (1 + draw());
    copies[one]![i] = large;
    copies[other]![i] = -large;
  }
  return copies.map((values) => arrayOf(dtype, values));
}

/** Copy 0, plus copy 1, and so on: each addition rounded to f32, f16 rounded once at the end. */
export function leftToRight(copies: readonly GradientArray[], dtype: DType): GradientArray {
  const [first, ...rest] = copies.map((copy) => [...copy]);
  const sums = first!.map((value, i) =>
    rest.reduce((sum, copy) => Math.fround(sum + copy[i]!), value)
  );
  return arrayOf(dtype, sums);
}

/** The bytes of an array, to compare bit for bit. */
export function bytesOf(values: GradientArray): Uint8Array {
  return new Uint8Array(values.buffer);
}

/** Copies, their chunks, and an endless stream of choices of what happens next. */
export const cases = fc.record({
  size: fc.integer({ min: 1, max: 8 }),
  length: fc.nat({ max: 100 }),
  cuts: fc.array(fc.nat({ max: 100 }), { maxLength: 4 }),
  dtype: fc.constantFrom<DType>("f32", "f16"),
  seed: fc.nat(),
  choices: fc.infiniteStream(fc.nat()),
}).map(({ size, length, cuts, dtype, seed, choices }) => {
  const edges = [0, ...cuts.map((cut) => Math.min(cut, length)).sort((a, b) => a - b), length];
  return {
    dtype,
    copies: copiesOf({ size, length, dtype, seed }),
    chunks: edges.slice(1).map((end, i) => ({ offset: edges[i]!, length: end - edges[i]! })),
    pick: (count: number) => (choices.next().value as number) % count,
  };
});

export interface Wanted extends Pick<ReducerOptions, "chunks" | "algorithm" | "dtype"> {
  /** The gradients of each copy; they stay as they are. */
  readonly copies: readonly GradientArray[];
  readonly isShared?: boolean;
  /** Picks one of the events that can come next. Default: the first. */
  readonly pick?: (count: number) => number;
  /** The chunks that start. Default: all. */
  readonly started?: readonly number[];
}

export interface Sent {
  readonly from: number;
  readonly to: number;
  readonly message: ReduceMessage;
  /** Number of values. */
  readonly volume: number;
}

/** Runs an all-reduce to its end; returns the gradients of every copy and all messages sent. */
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
      ...{ rank, size, chunks, algorithm, dtype, shared },
      read: async (offset, length) => await gradients.slice(offset, offset + length),
      copy: async (offset, into) =>
        await into.set(gradients.subarray(offset, offset + into.length)),
      write: (offset, values) => gradients.set(values, offset),
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
        assert.deepEqual(waiting, [], "a chunk is complete when every copy has started it");
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
