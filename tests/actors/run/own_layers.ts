/** A small model as a user writes it: layers from the graph builder. */

import type { TrainOptions } from "../../../actors/options/train_options.ts";
import type { Batch, Layer, Model } from "../../../kernels/mod.ts";
import { trained } from "../runs.ts";

/** Samples of a micro-batch. */
export const B = 4;

const dense = (name: string, inputs: number, outputs: number): Layer => ({
  name,
  build(g, x) {
    const points = x ?? g.batch("points", [B, inputs]);
    const weight = g.parameter("weight", [inputs, outputs], { kind: "normal", deviation: 0.5 });
    return g.gelu(g.gemm(points, weight, g.parameter("bias", [outputs])));
  },
});

const embedding: Layer = {
  name: "embedding",
  build: (g) => g.gather(g.parameter("table", [5, 8]), g.batch("ids", [B], "i32")),
};

const classifier: Layer = {
  name: "classifier",
  build: (g, x) =>
    g.crossEntropy(g.gemm(x!, g.parameter("weight", [8, 2])), g.batch("labels", [B], "i32")),
};

/** Separates points within a ring from points outside, in five layers. */
export const RINGS: Model = {
  name: "rings",
  layers: [dense("a", 2, 8), dense("b", 8, 8), dense("c", 8, 8), dense("d", 8, 8), classifier],
  predictions: B,
};

/** Reads ids instead of points. */
export const LOOKUP: Model = {
  ...{ name: "lookup", layers: [embedding, dense("b", 8, 8), classifier], predictions: B },
};

/** Micro-batch number i, always the same; it serves both models. */
export function batch(i: number): Batch & Record<"points" | "ids" | "labels", unknown> {
  const points = Float32Array.from({ length: 2 * B }, (_, j) => Math.sin(i * 8 + j * j));
  const inside = (j: number) => Math.hypot(points[2 * j]!, points[2 * j + 1]!) < 0.9;
  return {
    points,
    ids: Int32Array.from({ length: B }, (_, j) => (i + j) % 5),
    labels: Int32Array.from({ length: B }, (_, j) => Number(inside(j))),
  };
}

/** Micro-batches without end, from a slow source. */
export async function* batches(): AsyncGenerator<Batch, void> {
  for (let i = 0;; i++) {
    await Promise.resolve();
    yield batch(i);
  }
}

/** Trains it, without threads unless asked otherwise. */
export const trainRings = (options: Partial<TrainOptions> = {}) =>
  trained({
    ...{ model: RINGS, data: batches(), steps: 4, microBatches: 2, workers: 2 },
    ...{ device: "reference", runtime: "local", ...options },
  });

/** A step that is taken, one whose gradients overflow, or one whose loss is not finite. */
export type StepKind = "good" | "bad" | "lost";

/** Micro-batches of such steps, four of each; `shift` is for a layer that adds it to the loss. */
export function* dataOfSteps(steps: readonly StepKind[]): Generator<Batch, void> {
  let good = 0;
  for (const kind of steps) {
    for (let m = 0; m < 4; m++) {
      const one = batch(kind === "good" ? good++ : m);
      // Such points overflow only in the gradients under a loss scale.
      const points = kind === "bad" ? new Float32Array(2 * B).fill(2000) : one.points;
      const shift = new Float32Array(B).fill(kind === "lost" && m === 2 ? Infinity : 0);
      yield { ...one, points, shift } as Batch;
    }
  }
}
