/**
 * Micro-batches as a run takes them: its own, and such as its model can read.
 *
 * @module
 */

import type { Batch, BatchCheck } from "../../../kernels/mod.ts";

/** Arrays that devices read. */
const ARRAYS = [Float32Array, Float16Array, Int32Array, BigInt64Array, Uint8Array] as const;

/**
 * A micro-batch whose arrays nobody else has. What no message can carry is left out.
 *
 * It is copied before it is looked at, so that what was looked at is what is learnt.
 *
 * @param name of the micro-batch, as a refusal says it.
 * @throws {TypeError} when it is no record, or not what the model reads.
 */
export function takeBatch(batch: Batch, name: string, check: BatchCheck): Batch {
  if (typeof batch !== "object" || batch === null) {
    throw new TypeError(
      `Cannot train on ${name}: it must be a record of typed arrays, received ${
        String(batch).slice(0, 100)
      }`,
    );
  }
  const fields = Object.entries<unknown>(batch).map(([field, value]) => [field, ownValue(value)]);
  const own: Record<string, unknown> = Object.fromEntries(fields);
  const problem = check(own as Batch);
  if (problem !== undefined) throw new TypeError(`Cannot train on ${name}: ${problem}`);
  for (const field of Object.keys(own)) if (!isCarried(own[field])) delete own[field];
  return own as Batch;
}

function ownValue(value: unknown): unknown {
  // A `Buffer` is an `Uint8Array`, and its slices are views.
  const Plain = ARRAYS.find((one) => value instanceof one);
  // What has lost its memory is looked at as it is: it has no elements.
  if (!isTypedArray(value) || value.length === 0) return value;
  return Plain ? new Plain(value as never) : value.slice();
}

const isTypedArray = (value: unknown): value is Int8Array =>
  ArrayBuffer.isView(value) && !(value instanceof DataView);

const isCarried = (value: unknown) =>
  isTypedArray(value) || ["number", "string", "boolean", "bigint"].includes(typeof value);
