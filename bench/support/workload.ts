/**
 * The models that are measured, and what they cost.
 *
 * @module
 */

import type { StepRequest } from "../../actors/pipeline/step.ts";
import {
  compileModel,
  gpt2,
  type Gpt2Config,
  initialValues,
  type Model,
  substream,
  type TokenBatch,
} from "../../kernels/mod.ts";

/** A GPT-2, and the samples of its micro-batch. */
export interface Workload {
  readonly config: Gpt2Config;
  /** Samples of a micro-batch, B. */
  readonly microBatch: number;
}

/** A small GPT-2, for all that is measured on a CPU. */
export const SMALL: Workload = {
  config: { layers: 4, hidden: 256, heads: 4, seq: 128, vocab: 1024 },
  microBatch: 4,
};

/** GPT-2 small, as it is measured beside PyTorch. */
export const GPT2_SMALL: Workload = {
  config: { layers: 12, hidden: 768, heads: 12, seq: 256, vocab: 50_257 },
  microBatch: 2,
};

/** Tokens of a micro-batch. */
export const tokensOf = ({ config, microBatch }: Workload): number => microBatch * config.seq;

/**
 * Floating-point operations of forward and backward for one token: 22.0 million of the small GPT-2.
 *
 * A block multiplies each token with 12·d² weights (3d² for q, k and v, d² for the projection, 4d²
 * up and 4d² down), two operations each; the head with V·d. Attention takes T·d for the scores and
 * T·d for the mixture, two operations each, *uncausal*: what the mask discards is counted, since it
 * is computed. The backward takes two products for each of the forward's: hence 3. Everything that
 * is no matrix product (normalisation, GELU, softmax, the loss, the embedding) counts for nothing.
 */
export function flopsPerToken(
  { config: { layers: L, hidden: d, seq: T, vocab: V } }: Workload,
): number {
  return 3 * (L * 12 * d * d * 2 + V * d * 2 + L * 4 * T * d);
}

/** GFLOP of one micro-batch, forward and backward. */
export const gflopOf = (workload: Workload): number =>
  flopsPerToken(workload) * tokensOf(workload) / 1e9;

/** The model. */
export const benchModel = ({ config, microBatch }: Workload = SMALL): Model =>
  gpt2(config, microBatch);

const drawn = new WeakMap<Workload, ReadonlyMap<string, Float32Array>>();

/** The first weights of the model, by full name. Those of a GPT-2 small take long: they are drawn once. */
export function firstWeights(workload: Workload): ReadonlyMap<string, Float32Array> {
  const { parameters } = compileModel(benchModel(workload), "none");
  const weights = drawn.get(workload) ??
    new Map(parameters.map(({ name, spec }) => [name, initialValues(spec, name, 1)] as const));
  drawn.set(workload, weights);
  return weights;
}

/** Micro-batches of tokens drawn from a seed. */
export function benchBatches(count: number, seed = 1, workload: Workload = SMALL): TokenBatch[] {
  const generator = substream(seed, "bench tokens"), { vocab } = workload.config;
  const draw = () =>
    Int32Array.from({ length: tokensOf(workload) }, () => (generator.next() >>> 0) % vocab);
  return Array.from({ length: count }, () => ({ ids: draw(), targets: draw() }));
}

/** A rate at which nothing diverges, however long it runs. */
export const LEARNING_RATE = 1e-4;

/** Step `step` on these micro-batches. */
export function stepRequest(step: number, microBatches: readonly TokenBatch[]): StepRequest {
  const predictions = microBatches.reduce((sum, { targets }) => sum + targets.length, 0);
  const rates = { learningRate: LEARNING_RATE, lossScale: 1 };
  return { step, update: step, microBatches, predictions, ...rates };
}
