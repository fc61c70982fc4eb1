/**
 * Data whose micro-batches are made of those of other data.
 *
 * @module
 */

import type { Batch } from "../../kernels/mod.ts";
import { type Batches, type Data, isIterable, isSource } from "../run/data/data.ts";

/** What `made` makes of each micro-batch; begun anywhere where `data` can be. What is none stays. */
export function mapData(data: Data, made: (batch: Batch) => Batch): Data {
  if (data === undefined || !isSource(data)) return isIterable(data) ? mapped(data, made) : data;
  return {
    from: (microBatch, state) => mapped(data.from(microBatch, state), made),
    ...data.state && { state: () => data.state!() },
  };
}

async function* mapped(batches: Batches, made: (batch: Batch) => Batch): AsyncGenerator<Batch> {
  for await (const batch of batches) yield made(batch);
}
