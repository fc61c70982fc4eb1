/**
 * A micro-batch: arrays by name, how many targets they hold, and their cut into parts.
 *
 * @module
 */

import type { HostArray } from "../devices/device.ts";

/** The named arrays of one micro-batch, as a model's layers ask for them. */
export type Batch = { readonly [field: string]: HostArray };

/**
 * Targets of a micro-batch that are not −1: those are predicted, and have a loss.
 *
 * @param field that holds the targets.
 * @throws {TypeError} when the micro-batch has no such field.
 * @throws {RangeError} when a target is below −1: devices would read outside the logits.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { countTargets } from "@troupe/troupe/kernels";
 *
 * assert.equal(countTargets({ targets: Int32Array.of(7, 0, -1, -1) }, "targets"), 2);
 * ```
 */
export function countTargets(batch: Batch, field: string): number {
  const targets = batch[field];
  if (!targets) {
    throw new TypeError(
      `Cannot count predictions: the micro-batch must have the field "${field}", received [${
        Object.keys(batch).join(", ")
      }]`,
    );
  }
  let count = 0;
  for (let i = 0; i < targets.length; i++) {
    if (targets[i]! >= 0) count++;
    else if (Number(targets[i]) !== -1) throw badTarget(field, i, targets[i]!);
  }
  return count;
}

const badTarget = (field: string, i: number, value: number | bigint) =>
  new RangeError(
    `Cannot count predictions: "${field}" must hold classes, or −1 where nothing is predicted, received ${value} at position ${i}`,
  );

/**
 * Cuts a micro-batch into parts of as many samples: each field's leading elements, evenly. The parts
 * share the memory of the whole.
 *
 * @throws {RangeError} when the elements of a field cannot be divided so.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { splitBatch } from "@troupe/troupe/kernels";
 *
 * const batch = { ids: Int32Array.of(1, 2, 3, 4), label: Float32Array.of(5, 6) };
 * assert.deepEqual(splitBatch(batch, 2), [
 *   { ids: Int32Array.of(1, 2), label: Float32Array.of(5) },
 *   { ids: Int32Array.of(3, 4), label: Float32Array.of(6) },
 * ]);
 * assert.throws(() => splitBatch(batch, 3), /"ids".*divisible by 3, received 4 elements/);
 * ```
 */
export function splitBatch(batch: Batch, parts: number): Batch[] {
  for (const [name, { length }] of Object.entries(batch)) {
    if (Number.isInteger(length / parts)) continue;
    throw new RangeError(
      `Cannot split the micro-batch: the field "${name}" must be divisible by ${parts}, received ${length} elements`,
    );
  }
  return Array.from({ length: parts }, (_, i) =>
    Object.fromEntries(
      Object.entries(batch).map(([name, values]) => {
        const size = values.length / parts;
        return [name, values.subarray(i * size, (i + 1) * size)];
      }),
    ));
}
