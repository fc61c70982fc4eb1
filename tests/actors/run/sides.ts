/** A definition of a model with metrics, and its table. */

import { defineModel } from "../../../actors/options/model_definition.ts";
import { accuracy, Dataset, f1Score, type Layer } from "../../../kernels/mod.ts";

const ROWS = Array.from({ length: 48 }, (_, i) => {
  const [x, y] = [Math.sin(i * i), Math.cos(3 * i)];
  return { x, y, side: x * y > 0.1 ? "in" : "out" };
});

/** Points on a plane, and the side of a curve on which they are. */
export const TABLE = Dataset.of(ROWS, {
  point: { numbers: ["x", "y"] },
  side: { category: "side" },
});

/** Micro-batches of four points. */
export const DATA = TABLE.batches({ samples: 4 });

const dense = (name: string, samples: number, inputs: number, outputs: number): Layer => ({
  name,
  build: (g, x) => {
    const weight = g.parameter("weight", [inputs, outputs], { kind: "normal", deviation: 0.5 });
    return g.gemm(x ?? g.batch("point", [samples, inputs]), weight, g.parameter("bias", [outputs]));
  },
});

const GELU: Layer = { name: "gelu", build: (g, x) => g.gelu(x!) };

/** Classifies points by their side. */
export const PLAIN = defineModel({
  name: "sides",
  sizes: ["point", "side"],
  build: ({ microBatch, data: { point, side } }) => [
    dense("a", microBatch, point, 8),
    GELU,
    dense("b", microBatch, 8, side),
  ],
  loss: (g, y) => g.crossEntropy(y, g.batch("side", [y.shape[0]!], "i32")),
});

/** The same with metrics. */
export const MODEL = defineModel({
  ...PLAIN,
  metrics: {
    accuracy: accuracy("side"),
    f1: f1Score("side"),
    score: (g, y) => g.sum(y, [1], false), // it has a gradient, which must not count
  },
});
