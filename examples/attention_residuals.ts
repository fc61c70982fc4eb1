/**
 * Attention Residuals: each block reads a learnt mixture of the outputs of all earlier layers, which
 * travel along skip edges. A pipeline of any depth has the weights of the serial run, bit for bit:
 *
 *     deno run -A examples/attention_residuals.ts [STEPS] [DEVICE]
 */
// deno-lint-ignore-file no-console -- the output of the script

import { type Layer, type LayerGraph, type Model, train, type Value } from "@troupe/troupe";
import { linear, rmsNorm } from "@troupe/troupe/kernels";

const [steps = "200", device = "auto"] = Deno.args;
const samples = 32, width = 16, depth = 6;

/** Σᵢ softmaxᵢ(q · norm(vᵢ)) vᵢ over the outputs vᵢ of `count` layers; q is learnt. */
function mixture(g: LayerGraph, count: number): Value {
  const outputs = Array.from({ length: count }, (_, i) => g.take(`output ${i}`)); // [samples, width]
  const q = g.parameter("query", [width, 1], { kind: "constant", value: 0 });
  const scores = outputs.map((v, i) => g.gemm(rmsNorm(g, v, { name: `norm${i}` }), q));
  const weights = g.split(g.softmax(g.concat(scores, 1), 1), 1, count); // each [samples, 1]
  return outputs.map((v, i) => g.mul(weights[i]!, v)).reduce((sum, v) => g.add(sum, v));
}

/** The embedding of points, or a block: all later layers read its output. */
const layer = (i: number): Layer => ({
  name: i === 0 ? "embedding" : `block ${i}`,
  build(g) {
    const x = i === 0 ? g.batch("points", [samples, 2]) : g.tanh(mixture(g, i));
    const y = linear(g, x, { outputs: width });
    g.give(`output ${i}`, y);
    return y;
  },
});

function head(g: LayerGraph): Value {
  const logits = linear(g, mixture(g, depth + 1), { outputs: 2 });
  return g.crossEntropy(logits, g.batch("inside", [samples], "i32"));
}

const blocks = Array.from({ length: depth + 1 }, (_, i) => layer(i));
const layers = [...blocks, { name: "head", build: head }];
const model: Model = { name: "attention-residuals", layers, predictions: samples };

/** Points of a square, and whether they are inside a circle. */
const data = Array.from({ length: 4 * Number(steps) }, (_, b) => {
  const points = Float32Array.from({ length: 2 * samples }, (_, i) => Math.sin(b + 7.3 * i * i));
  const radius = (i: number) => Math.hypot(points[2 * i]!, points[2 * i + 1]!);
  const inside = Int32Array.from({ length: samples }, (_, i) => Number(radius(i) < 0.8));
  return { points, inside };
});

for (const workers of [1, 2, 4]) {
  const how = { workers, schedule: "1f1b", device: device as "auto", learningRate: 0.01 };
  const run = train({ model, data, steps: Number(steps), microBatches: 4, ...how });
  let loss = NaN;
  for await (const event of run) {
    if (event.type === "step") loss = event.loss;
    if (event.type === "end") console.log(workers, loss.toFixed(3), event.weightsHash);
  }
}
