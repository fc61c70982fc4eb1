/**
 * Your own layer: a residual block with a gate and RMS normalization, as in LLaMA. A layer
 * builds its forward graph; its backward is derived. Eight of them learn which points of a plane
 * are on which arm of a spiral:
 *
 *     deno run -A examples/own_layer.ts [STEPS] [DEVICE]
 */
// deno-lint-ignore-file no-console -- the output of the script

import { type Layer, type LayerGraph, type Model, train, type Value } from "@troupe/troupe";

const [steps = "300", device = "auto"] = Deno.args;
const samples = 32, width = 32, inner = 64;

/** x ÷ √(mean of x² in each row), times a weight that is learnt. */
function rmsNorm(g: LayerGraph, x: Value): Value {
  const meanOfSquares = g.mean(g.mul(x, x), [1], true); // [samples, 1]
  const weight = g.parameter("norm", [width], { kind: "constant", value: 1 });
  return g.mul(g.div(x, g.sqrt(g.add(meanOfSquares, g.scalar(1e-5)))), weight);
}

/** x + (silu(n·W) ∘ n·V)·U, where n is x normalised. */
const gatedBlock = (name: string): Layer => ({
  name,
  build(g, x) {
    const matrix = (part: string, rows: number, columns: number) =>
      g.parameter(part, [rows, columns], { kind: "normal", deviation: 1 / Math.sqrt(rows) });
    const n = rmsNorm(g, x!); // [samples, width]
    const gate = g.gemm(n, matrix("gate", width, inner));
    const silu = g.mul(gate, g.sigmoid(gate));
    const value = g.gemm(n, matrix("value", width, inner));
    return g.add(x!, g.gemm(g.mul(silu, value), matrix("out", inner, width)));
  },
});

/** The first layer reads the micro-batch. */
const embedding: Layer = {
  name: "embedding",
  build: (g) =>
    g.gemm(
      g.batch("points", [samples, 2]),
      g.parameter("weight", [2, width], { kind: "normal", deviation: 1 }),
      g.parameter("bias", [width], { kind: "normal", deviation: 1 }),
    ),
};

/** The last layer returns the loss of each sample. */
const classifier: Layer = {
  name: "classifier",
  build: (g, x) =>
    g.crossEntropy(
      g.gemm(rmsNorm(g, x!), g.parameter("weight", [width, 2])),
      g.batch("arm", [samples], "i32"),
    ),
};

const blocks = Array.from({ length: 8 }, (_, i) => gatedBlock(`block ${i}`));
const model: Model = {
  name: "spirals",
  layers: [embedding, ...blocks, classifier],
  predictions: samples,
};

/** Points on two arms of a spiral: any iterator of records of typed arrays is data. */
function* spirals() {
  for (;;) {
    const arm = Int32Array.from({ length: samples }, () => Math.floor(2 * Math.random()));
    const points = new Float32Array(2 * samples);
    arm.forEach((which, i) => {
      const radius = Math.random(), angle = Math.PI * (which + 3 * radius);
      points.set([radius * Math.cos(angle), radius * Math.sin(angle)], 2 * i);
    });
    yield { points, arm };
  }
}

const run = train({
  model,
  data: spirals(),
  steps: Number(steps),
  microBatches: 4,
  workers: 2,
  schedule: "zb-h1",
  learningRate: 0.003,
  clip: 1,
  device: device as "auto",
});

for await (const event of run) {
  if (event.type === "plan") {
    for (const { stage, layers } of event.plan.stages) console.log(stage, layers.join(", "));
  }
  if (event.type === "step" && event.step % 20 === 0) {
    console.log(event.step, event.loss.toFixed(3));
  }
}
