/**
 * Modules with different widths in one pipeline: an image encoder reads each digit of a row, and a
 * decoder, three times as wide, says after each the largest digit so far. A micro-batch has rows of one
 * to eight digits, so stages cost up to eight times as much for one micro-batch as for another: it
 * trains as it is (`lengths`), and workers run what is ready.
 *
 *     deno run -A examples/multimodal.ts [STEPS] [DEVICE]
 */
// deno-lint-ignore-file no-console -- the output of the script

import { digitBatches, loadDigits, shuffledOrder, train } from "@troupe/troupe";
import type { Layer, LayerGraph, Model, Value } from "@troupe/troupe";
import { attention, convolution, crossEntropy, layerNorm, linear } from "@troupe/troupe/kernels";

const [steps = "200", device = "auto"] = Deno.args;
const samples = 4, patches = 16, encoderWidth = 32, decoderWidth = 96;
export const longest = 8, lengthOf = (nth: number) => 1 + nth * 5 % longest;

/** A transformer block on x, [rows, tokens, width]. */
function block(g: LayerGraph, x: Value, causal: boolean): Value {
  const width = x.shape.at(-1)!;
  const qkv = linear(g, layerNorm(g, x, { name: "norm1" }), { name: "qkv", outputs: 3 * width });
  const [q, k, v] = g.split(qkv, -1, 3);
  const mixed = attention(g, q!, k!, v!, { heads: 4, causal });
  const y = g.add(x, linear(g, mixed, { name: "proj", outputs: width }));
  const wide = linear(g, layerNorm(g, y, { name: "norm2" }), { name: "fc1", outputs: 4 * width });
  return g.add(y, linear(g, g.gelu(wide), { name: "fc2", outputs: width }));
}

/** The model for rows of `length` digits; its parameters are the same for all lengths. */
export function modelOf(length: number): Model {
  const pictures = samples * length;
  const blocks = (module: string, isCausal: boolean) =>
    [0, 1, 2].map((i): Layer => ({
      name: `${module}.${i}`,
      build: (g, x) => block(g, x!, isCausal),
    }));
  const embedding: Layer = {
    name: "patches",
    build(g) {
      const features = g.batch("features", [pictures, 1, 28, 28]);
      const grid = convolution(g, features, { outputs: encoderWidth, kernel: 7, stride: 7 });
      const rows = g.transpose(g.reshape(grid, [pictures, encoderWidth, patches]), [0, 2, 1]);
      return g.add(rows, g.parameter("positions", [patches, encoderWidth]));
    },
  };
  const projector: Layer = {
    name: "projector", // from [pictures, patches, 32] to [samples, length, 96]
    build(g, x) {
      const wide = linear(g, g.mean(x!, [1]), { outputs: decoderWidth });
      return g.reshape(wide, [samples, length, decoderWidth]);
    },
  };
  const head: Layer = {
    name: "head",
    build(g, x) {
      const logits = linear(g, layerNorm(g, x!, { name: "norm" }), { outputs: 10 });
      return crossEntropy(g, logits, g.batch("targets", [samples, length], "i32"));
    },
  };
  return {
    ...{ name: "multimodal", samples, length, withLength: modelOf },
    layers: [embedding, ...blocks("encoder", false), projector, ...blocks("decoder", true), head],
    predictions: (batch) => batch.targets!.length,
  };
}

/** Rows of digits, with the largest digit so far: a micro-batch has a length of one to eight. */
function* rowsOfDigits(digits: Awaited<ReturnType<typeof loadDigits>>["train"]) {
  const order = shuffledOrder(digits.labels.length, 1), microBatch = samples * longest;
  let nth = 0;
  for (const { features, labels } of digitBatches(digits, { microBatch, microBatches: 1, order })) {
    const length = lengthOf(nth++), pictures = samples * length;
    const targets = Int32Array.from(labels.subarray(0, pictures));
    for (let i = 0; i < pictures; i++) {
      if (i % length > 0) targets[i] = Math.max(targets[i]!, targets[i - 1]!);
    }
    yield { features: features.subarray(0, pictures * 28 * 28), targets };
  }
}

if (import.meta.main) {
  const run = train({
    model: modelOf(longest),
    data: rowsOfDigits((await loadDigits()).train),
    lengths: true,
    steps: Number(steps),
    ...{ workers: 2, microBatches: 8, learningRate: 0.001 },
    schedule: "message-driven",
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
}
