/**
 * Your own architecture with helpers: a vision transformer (Dosovitskiy et al. 2021) that reads
 * digits as 4 by 4 patches. Its parameters are those of PyTorch's modules, names included.
 *
 *     deno run -A examples/vision_transformer.ts [STEPS] [DEVICE]
 */
// deno-lint-ignore-file no-console -- the output of the script

import {
  digitBatches,
  type Layer,
  loadDigits,
  type Model,
  shuffledOrder,
  train,
} from "@troupe/troupe";
import { attention, convolution, crossEntropy, layerNorm, linear } from "@troupe/troupe/kernels";

const [steps = "200", device = "auto"] = Deno.args;
const samples = 16, width = 48, tokens = 16, heads = 4, classes = 10;

const patches: Layer = {
  name: "patches",
  build(g) {
    const pictures = g.batch("features", [samples, 1, 28, 28]);
    const grid = convolution(g, pictures, { outputs: width, kernel: 7, stride: 7 });
    const rows = g.transpose(g.reshape(grid, [samples, width, tokens]), [0, 2, 1]);
    return g.add(rows, g.parameter("positions", [tokens, width]));
  },
};

const block = (name: string): Layer => ({
  name,
  build(g, x) {
    const qkv = linear(g, layerNorm(g, x!, { name: "norm1" }), { name: "qkv", outputs: 3 * width });
    const [q, k, v] = g.split(qkv, -1, 3);
    const mixed = attention(g, q!, k!, v!, { heads });
    const y = g.add(x!, linear(g, mixed, { name: "proj", outputs: width }));
    const wide = linear(g, layerNorm(g, y, { name: "norm2" }), { name: "fc1", outputs: 4 * width });
    return g.add(y, linear(g, g.gelu(wide), { name: "fc2", outputs: width }));
  },
});

const head: Layer = {
  name: "head",
  build(g, x) {
    const logits = linear(g, g.mean(layerNorm(g, x!, { name: "norm" }), [1]), { outputs: classes });
    return crossEntropy(g, logits, g.batch("labels", [samples], "i32"), { smoothing: 0.1 });
  },
};

const blocks = [0, 1, 2].map((i) => block(`blocks.${i}`));
const model: Model = { name: "vit", layers: [patches, ...blocks, head], predictions: samples };

const digits = (await loadDigits()).train;
const order = shuffledOrder(digits.labels.length, 1);
const run = train({
  model,
  data: digitBatches(digits, { microBatch: samples, microBatches: 4, order }),
  steps: Number(steps),
  microBatches: 4,
  workers: 2,
  schedule: "1f1b",
  learningRate: 0.002,
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
