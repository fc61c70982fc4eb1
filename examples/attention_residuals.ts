/**
 * Attention Residuals: each block reads a mixture of the outputs of all layers before it, with weights
 * that it learns. Earlier outputs travel along skip edges, so a pipeline of any depth ends with the
 * weights of the serial run, bit for bit:
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

/** A layer whose output all later layers read. */
function giving(name: string, index: number, output: (g: LayerGraph) => Value): Layer {
  const build = (g: LayerGraph) => {
    const y = output(g);
    g.give(`output ${index}`, y);
    return y;
  };
  return { name, build };
}

const embedding = (g: LayerGraph) => linear(g, g.batch("points", [samples, 2]), { outputs: width });
const head = (g: LayerGraph) =>
  g.crossEntropy(
    linear(g, mixture(g, depth + 1), { outputs: 2 }),
    g.batch("inside", [samples], "i32"),
  );
const block = (i: number) => (g: LayerGraph) =>
  linear(g, g.tanh(mixture(g, i)), { outputs: width });
const blocks = Array.from({ length: depth }, (_, i) => giving(`block ${i}`, i + 1, block(i + 1)));
const layers = [giving("embedding", 0, embedding), ...blocks, { name: "head", build: head }];
const model: Model = { name: "attention-residuals", layers, predictions: samples };

/** Points of a square, and whether they are inside a ring. */
const data = Array.from({ length: 4 * Number(steps) }, (_, b) => {
  const points = Float32Array.from({ length: 2 * samples }, (_, i) => Math.sin(b + 7.3 * i * i));
  const isInside = (x: number, y: number) => Number(Math.abs(Math.hypot(x, y) - 0.7) < 0.25);
  const inside = Array.from(
    { length: samples },
    (_, i) => isInside(points[2 * i]!, points[2 * i + 1]!),
  );
  return { points, inside: Int32Array.from(inside) };
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
