/**
 * Where the micro-batches of a run come from.
 *
 * @module
 */

import type { Batch } from "../../../kernels/mod.ts";

/** Micro-batches one after the other. */
export type Batches = Iterable<Batch> | AsyncIterable<Batch>;

/**
 * Micro-batches that can be begun anywhere, so that a run which goes on from a checkpoint need not
 * have those made again that it has learnt from.
 *
 * @example Rows by their number, and draws whose state is kept
 * ```ts
 * import type { DataSource } from "@troupe/troupe/actors";
 * import assert from "node:assert/strict";
 *
 * const rows: DataSource = {
 *   *from(microBatch) {
 *     for (let i = microBatch; i < 100; i++) yield { row: Int32Array.of(i) };
 *   },
 * };
 * const walk = (at = 0): DataSource => ({
 *   *from(_, state = 0) {
 *     for (at = state as number;;) yield { at: Int32Array.of(at = (7 * at + 3) % 101) };
 *   },
 *   state: () => at,
 * });
 *
 * const first = (data: DataSource, state?: unknown) => [...data.from(2, state) as never][0];
 * assert.deepEqual(first(rows), { row: Int32Array.of(2) });
 * ```
 */
export interface DataSource {
  /**
   * The micro-batches from number `microBatch` on: 0 is the first of step 1, in global order. May be
   * called more than once, as a look at the first one may come before.
   *
   * @param state what {@linkcode DataSource.state} returned, out of JSON, when `microBatch` of them
   * had been taken; undefined where no checkpoint says it.
   */
  from(microBatch: number, state?: unknown): Batches;
  /**
   * What `from` has to know beside the number: something that JSON can say, at most 65,536 characters
   * of it. Asked for when the last micro-batch of a step has been taken, before the next one is; a
   * checkpoint after that step keeps it.
   */
  state?(): unknown;
}

/**
 * Micro-batches in global order. Of an iterable those of steps already done are made and dropped.
 */
export type Data = Batches | DataSource;

/** Whether data can be begun anywhere. */
export const isSource = (data: Data): data is DataSource =>
  typeof (data as Partial<DataSource>)?.from === "function";

/** Whether it can be iterated. */
export const isIterable = (data: unknown): data is Batches => {
  const { [Symbol.iterator]: sync, [Symbol.asyncIterator]: async } = Object(data);
  return typeof sync === "function" || typeof async === "function";
};
