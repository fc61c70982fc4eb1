/** T5s that PyTorch trained; `tests/fixtures/README.md` says how. */

import { type Batch, t5, type T5Config } from "../../../kernels/mod.ts";
import { readFloats, readJson } from "../stage/pytorch.ts";

/** The published T5, and version 1.1. */
export const T5_VERSIONS = ["v1_0", "v1_1"] as const;

/** Reads one of them: a T5, its micro-batches, and the gradients of its first step in float64. */
export async function readT5(version: typeof T5_VERSIONS[number]) {
  const { config, run, batches } = await readJson(`t5/${version}.json`);
  const { microBatch, microBatches } = run as { microBatch: number; microBatches: number };
  return {
    config: config as T5Config,
    model: t5(config, microBatch),
    weights: await readFloats(`t5/${version}_weights.safetensors`),
    gradients: await readFloats(`t5/${version}_gradients.safetensors`),
    batches: (batches.ids as number[][]).map((ids, i): Batch => ({
      ids: Int32Array.from(ids),
      targets: Int32Array.from(batches.targets[i]),
    })),
    microBatches,
  };
}
