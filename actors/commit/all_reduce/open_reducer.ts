/**
 * Opens a reducer: checks what it is made from and hands each message to its chunk.
 *
 * @module
 */

import { ChunkReduction } from "./chunk_reduction.ts";
import { ARRAYS } from "./chunk_values.ts";
import type { Reducer, ReducerOptions } from "./reducer.ts";

/**
 * Opens one copy's part in the all-reduce of the gradients of a stage (Chimera section 3.2; in
 * chunks, AxoNN section V-C).
 *
 * @throws {RangeError} when an option is out of its range.
 *
 * @example Two copies of a stage add their gradients
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const copies = [new Float32Array([1, 2, 3]), new Float32Array([10, 20, 30])];
 * const network: (() => void)[] = [];
 * const reducers: ReturnType<typeof openReducer>[] = copies.map((gradients, rank) =>
 *   openReducer({
 *     rank,
 *     size: copies.length,
 *     chunks: [{ offset: 0, length: 3 }],
 *     algorithm: "direct",
 *     dtype: "f32",
 *     read: (offset, length) => Promise.resolve(gradients.slice(offset, offset + length)),
 *     write: (offset, values) => gradients.set(values, offset),
 *     send: (to, message) => void network.push(() => reducers[to]!.receive(message)),
 *     onComplete: () => {},
 *   })
 * );
 * for (const reducer of reducers) await reducer.start(0);
 * for (const deliver of network) deliver();
 *
 * assert(reducers.every((reducer) => reducer.isComplete(0)));
 * assert.deepEqual(copies[0], new Float32Array([11, 22, 33]));
 * assert.deepEqual(copies[1], copies[0]);
 * ```
 */
export function openReducer(options: ReducerOptions): Reducer {
  checkOptions(options);
  const chunks = options.chunks.map((_, chunk) => new ChunkReduction(options, chunk));
  const at = (chunk: number): ChunkReduction => {
    const found = chunks[chunk];
    if (found) return found;
    throw new RangeError(
      `Cannot reduce chunk ${chunk}: the reducer must have it, received a reducer of ${chunks.length} chunks`,
    );
  };
  return {
    // Async, so that a chunk that does not exist rejects like every other refusal of a start.
    start: async (chunk) => await at(chunk).start(),
    receive: (message) => at(message.chunk).receive(message),
    isComplete: (chunk) => at(chunk).isComplete,
  };
}

function checkOptions(
  { rank, size, chunks, algorithm, dtype, shared, sums }: ReducerOptions,
): void {
  const refuse = (rule: string, received: unknown) => {
    throw new RangeError(`Cannot open a reducer: ${rule}, received ${received}`);
  };
  if (!Number.isSafeInteger(size) || size < 1) refuse("size must be a positive integer", size);
  if (!Number.isSafeInteger(rank) || rank < 0 || rank >= size) {
    refuse(`rank must be an integer from 0 to ${size - 1}`, rank);
  }
  let end = 0;
  for (const { offset, length } of chunks.toSorted((a, b) => a.offset - b.offset)) {
    if (![offset, length].every((value) => Number.isSafeInteger(value) && value >= 0)) {
      refuse("offset and length of a chunk must be integers from 0", `${offset} and ${length}`);
    }
    if (length > 0 && offset < end) {
      refuse(`a chunk must begin after the one before it, at ${end} or later`, offset);
    }
    end = Math.max(end, offset + length);
  }
  const isCut = (at: number) => !sums || sums.borders.includes(at);
  for (const { offset, length } of chunks) {
    if (isCut(offset) && isCut(offset + length)) continue;
    refuse("a chunk that a device adds must be whole parameters", `${offset} and ${length}`);
  }
  if (!shared) return;
  if (sums) refuse("memory must not be shared where a device adds", "both");
  if (algorithm !== "direct") {
    refuse("the algorithm must be direct where memory is shared", algorithm);
  }
  const rowBytes = shared.byteLength / size, elementBytes = ARRAYS[dtype].BYTES_PER_ELEMENT;
  if (rowBytes % elementBytes !== 0 || rowBytes < end * elementBytes) {
    refuse(
      `shared memory must hold ${size} equal rows of at least ${end} ${dtype} values`,
      `${shared.byteLength} bytes`,
    );
  }
}
