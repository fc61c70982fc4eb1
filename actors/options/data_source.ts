/**
 * Data of a run: micro-batches in order, or a source that starts anywhere.
 *
 * @module
 */

import type { Batch } from "../../kernels/mod.ts";

/** Micro-batches in order. */
export type Batches = Iterable<Batch> | AsyncIterable<Batch>;

/**
 * Micro-batches that can start at any number, so that a resumed run does not make the earlier ones
 * again.
 *
 * @example Rows by number, and random rows with a state
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
   * Returns the micro-batches from number `microBatch`, in global order: 0 is the first of step 1.
   * It may be called more than once, because the first micro-batch is checked before the run.
   *
   * @param state The result of {@linkcode DataSource.state} after `microBatch` micro-batches, parsed
   * from JSON; undefined without a checkpoint.
   */
  from(microBatch: number, state?: unknown): Batches;
  /**
   * Returns the state that `from` needs besides the number, as a JSON value of at most 65,536
   * characters. It is called after the last micro-batch of a step is taken and before the next one;
   * a checkpoint after that step keeps the state.
   */
  state?(): unknown;
  /** Samples of a micro-batch, for a model that is a definition. */
  readonly samples?: number;
  /** Micro-batches of an epoch, for `epochs`. */
  readonly length?: number;
  /** Sizes of the data for the definition of a model, such as `inputs` and `classes`. */
  readonly sizes?: Readonly<Record<string, number>>;
  /** Names of the classes of the fields that are categories, which checkpoints keep. */
  readonly classes?: Readonly<Record<string, readonly string[]>>;
}

/**
 * Micro-batches in global order. A resumed run makes and drops those of an iterable that earlier
 * steps have used.
 */
export type Data = Batches | DataSource;

/** Returns whether data can start at any micro-batch. */
export const isSource = (data: Data): data is DataSource =>
  typeof (data as Partial<DataSource>)?.from === "function";

/** Returns whether a value can be iterated. */
export const isIterable = (data: unknown): data is Batches => {
  const { [Symbol.iterator]: sync, [Symbol.asyncIterator]: async } = Object(data);
  return typeof sync === "function" || typeof async === "function";
};
