/**
 * Which rows of the data each micro-batch reads.
 *
 * Micro-batch g of step t (from 1) holds rows ((t − 1)·W·N + g)·B + j for j = 0 … B − 1, where a
 * step has W·N micro-batches of B rows; g counts over all W data-parallel replicas. Everything that
 * feeds a model (text, digits, a user's own data) numbers its rows through here, so that a run is
 * the same whatever the number of workers.
 *
 * @module
 */

import type { RowOrder } from "./order.ts";

/** How a run cuts its data into steps and micro-batches. */
export interface BatchPlan {
  /** B: rows of a micro-batch. */
  readonly microBatch: number;
  /** N: micro-batches of one data-parallel replica in a step. */
  readonly microBatches: number;
  /** W: data-parallel replicas (default 1). */
  readonly replicas?: number | undefined;
  /** First step to read for (default 1); a resumed run starts after its checkpoint. */
  readonly fromStep?: number | undefined;
  /** Steps to read for; by default as many as there are rows for, without end under `order`. */
  readonly steps?: number | undefined;
  /** Whether the last step may have fewer micro-batches than the others (default no). */
  readonly lastIsSmaller?: boolean | undefined;
  /** Where each row of the run comes from; by default the data is read in order, once. */
  readonly order?: RowOrder | undefined;
}

/** Micro-batches that can be begun anywhere, without those before being made. */
export interface SeekableBatches<T> extends Generator<T, void> {
  /** The same micro-batches without the first `microBatch` of them. */
  from(microBatch: number): Generator<T, void>;
}

/** Micro-batches that can be begun anywhere, given what begins them somewhere. */
export function seekable<T>(
  from: (microBatch: number) => Generator<T, void>,
): SeekableBatches<T> {
  return Object.assign(from(0), { from });
}

/**
 * Yields the rows of each micro-batch, in the order of the global ids, step after step.
 *
 * @param rows in the data.
 * @throws {RangeError} at once, when the plan is not made of whole numbers from 1, or when the
 * data has too few rows ({@linkcode rowsNeeded}).
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { batchRows } from "@troupe/troupe/kernels";
 *
 * const plan = { microBatch: 2, microBatches: 2, steps: 1, fromStep: 2 };
 * assert.deepEqual([...batchRows(9, plan)], [[4, 5], [6, 7]]);
 * assert.deepEqual([...batchRows(9, plan).from(1)], [[6, 7]]);
 * assert.throws(() => batchRows(7, plan), /8 rows, received 7/);
 * ```
 */
export function batchRows(rows: number, plan: BatchPlan): SeekableBatches<number[]> {
  const needed = rowsNeeded(plan);
  if (rows < needed) {
    throw new RangeError(
      `Cannot make micro-batches: the data must have at least ${needed} rows, received ${rows}`,
    );
  }
  const { microBatch, fromStep = 1, steps = Infinity, order, lastIsSmaller } = plan;
  const stepRows = rowsOfStep(plan), unit = lastIsSmaller ? microBatch : stepRows;
  const there = order ? Infinity : Math.floor(rows / unit) * unit;
  const end = Math.min((fromStep - 1 + steps) * stepRows, there);
  const start = (fromStep - 1) * stepRows, rowOf = order ?? ((row: number) => row);
  return seekable((skipped) => generateRows(start + skipped * microBatch, end, microBatch, rowOf));
}

/**
 * The fewest rows that a plan can run on: all it reads when the data is read once, in order; one
 * when an order repeats them.
 *
 * @throws {RangeError} when a number of the plan is not a whole number from 1 (steps: from 0).
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { rowsNeeded, shuffledOrder } from "@troupe/troupe/kernels";
 *
 * const plan = { microBatch: 2, microBatches: 4, steps: 10 };
 * assert.equal(rowsNeeded(plan), 80);
 * assert.equal(rowsNeeded({ ...plan, order: shuffledOrder(5, 0) }), 1);
 * ```
 */
export function rowsNeeded(plan: BatchPlan): number {
  const { microBatch, microBatches, replicas = 1, fromStep = 1, steps = 1, order } = plan;
  checkCounts({ microBatch, microBatches, replicas, fromStep });
  checkCounts({ steps }, 0);
  if (order) return 1;
  const missing = plan.lastIsSmaller && steps > 0 ? rowsOfStep(plan) - microBatch : 0;
  return rowsOfStep(plan) * (fromStep - 1 + steps) - missing;
}

function rowsOfStep({ microBatch, microBatches, replicas = 1 }: BatchPlan): number {
  return replicas * microBatches * microBatch;
}

function* generateRows(start: number, end: number, microBatch: number, order: RowOrder) {
  for (let first = start; first < end; first += microBatch) {
    yield Array.from({ length: microBatch }, (_, j) => order(first + j));
  }
}

function checkCounts(counts: Record<string, number>, least = 1): void {
  for (const [name, value] of Object.entries(counts)) {
    if (!Number.isSafeInteger(value) || value < least) {
      throw new RangeError(
        `Cannot make micro-batches: ${name} must be a whole number from ${least}, ` +
          `received ${value}`,
      );
    }
  }
}
