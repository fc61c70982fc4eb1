/**
 * The data of a run as steps take it.
 *
 * @module
 */

import type { Batch } from "../../kernels/mod.ts";

/** Micro-batches in global order. */
export type Data = Iterable<Batch> | AsyncIterable<Batch>;

/**
 * The micro-batches of each step after `done`; the last step may have fewer, or none where what was
 * left is dropped.
 *
 * They are copied as they come. Whoever makes them may use their buffers again for the next one,
 * while these wait for the rest of their step, are in flight, or are kept to take a step again.
 *
 * @throws {TypeError} when a micro-batch is no record.
 */
export async function* takeSteps(
  data: Data,
  microBatches: number,
  done: number,
  dropLast: boolean,
): AsyncGenerator<Batch[], void> {
  let skip = done * microBatches, step: Batch[] = [];
  for await (const batch of data) {
    if (skip-- > 0) continue;
    step.push(copyBatch(batch));
    if (step.length < microBatches) continue;
    yield step;
    step = [];
  }
  if (step.length === 0) return;
  // An empty step says that what was left was dropped.
  yield dropLast ? [] : step;
}

/** A micro-batch whose arrays nobody else has; what is no array is left to the stage that reads it. */
export function copyBatch(batch: Batch): Batch {
  if (typeof batch !== "object" || batch === null) {
    throw new TypeError(
      `Cannot train: every micro-batch must be a record of typed arrays, received ${batch}`,
    );
  }
  const isArray = (value: unknown): value is Float32Array =>
    ArrayBuffer.isView(value) && !(value instanceof DataView);
  return Object.fromEntries(
    Object.entries(batch).map(([name, value]) => [name, isArray(value) ? value.slice() : value]),
  );
}

/** The micro-batches of a step; none where the last, smaller step was dropped. */
export async function nextStep(
  batches: AsyncGenerator<Batch[], void>,
  step: number,
): Promise<Batch[] | undefined> {
  const { value, done } = await batches.next();
  if (!done) return value.length > 0 ? value : undefined;
  throw new RangeError(
    `Cannot run step ${step}: the data must have micro-batches for every step, received too few`,
  );
}
