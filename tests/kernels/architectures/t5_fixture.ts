/** T5s that PyTorch trained; `tests/fixtures/README.md` says how. */

import { type Batch, type Model, t5, type T5Config } from "../../../kernels/mod.ts";
import { readFloats, readJson } from "../stage/pytorch.ts";

/** The published T5, and version 1.1. */
export const T5_VERSIONS = ["v1_0", "v1_1"] as const;

/** A T5, its inputs, and PyTorch's results. */
export interface T5Fixture {
  readonly config: T5Config;
  readonly model: Model;
  readonly weights: Map<string, Float32Array>;
  /** Of the mean loss of the first step, in float64. */
  readonly gradients: Map<string, Float32Array>;
  /** The micro-batches of all steps. */
  readonly batches: readonly Batch[];
  /** The mean loss and the norm of the gradients of each step. */
  readonly losses: readonly number[];
  readonly norms: readonly number[];
  readonly microBatches: number;
  readonly steps: number;
  readonly learningRate: number;
  readonly weightDecay: number;
}

/** Reads one of them. */
export async function readT5(version: typeof T5_VERSIONS[number]): Promise<T5Fixture> {
  const { config, run, batches, float32 } = await readJson(`t5/${version}.json`);
  const { microBatch, microBatches, steps, lr: learningRate, weightDecay } = run;
  return {
    config,
    model: t5(config, microBatch),
    weights: await readFloats(`t5/${version}_weights.safetensors`),
    gradients: await readFloats(`t5/${version}_gradients.safetensors`),
    batches: batches.ids.map((ids: number[], i: number): Batch => ({
      ids: Int32Array.from(ids),
      targets: Int32Array.from(batches.targets[i]),
    })),
    losses: float32.losses,
    norms: float32.gradNorms,
    ...{ microBatches, steps, learningRate, weightDecay },
  };
}
