import assert from "node:assert/strict";
import { fromBinary } from "@bufbuild/protobuf";
import {
  activationBytes,
  compileLayer,
  compileModel,
  gpt2,
  type Layer,
  openReference,
  openStage,
  type OptimizerOptions,
} from "../../../kernels/mod.ts";
import { elementCount } from "../../../kernels/graph/shapes.ts";
import { lowerModel } from "../../../kernels/onnx/fused_ops.ts";
import { ModelProtoSchema } from "../../../kernels/onnx/onnx_pb.ts";
import { signatureOf } from "../../../kernels/onnx/signature.ts";
import { valueTypes } from "../../../kernels/onnx/value_types.ts";

const SGD: OptimizerOptions = { kind: "sgd", momentum: 0, weightDecay: 0 };
const OPTIONS = { isLoss: false, recompute: "none" } as const;
const X = { name: "x", dtype: "f32", shape: [2, 4], hasGradient: true } as const;

const linear = (name: string): Layer => ({
  name,
  build: (g, x) => g.matmul(x ?? g.batch("points", [2, 4]), g.parameter("weight", [4, 4])),
});

const squares: Layer = {
  name: "squares",
  build: (g, x) => g.sumOfSquares(x!, [1]),
};

Deno.test("a parameter that the output does not depend on is refused by name", () => {
  const layer: Layer = {
    name: "lazy",
    build(g, x) {
      g.parameter("unused", [3]);
      return g.exp(x!);
    },
  };
  assert.throws(() => compileLayer(layer, [X], OPTIONS), {
    name: "TypeError",
    message: /layer "lazy".*received "unused" unused/,
  });
});

Deno.test("a last layer that returns no loss for each sample is refused", () => {
  assert.throws(() => compileLayer(linear("last"), [X], { ...OPTIONS, isLoss: true }), {
    name: "RangeError",
    message: /loss of each sample, f32 \[samples\], received f32 \[2,4\]/,
  });
});

Deno.test("an op without a gradient between a parameter and the loss is refused by name", () => {
  const layer: Layer = {
    name: "odd",
    build: (g, x) => g.node("Hardmax", [g.mul(x!, g.parameter("scale", [4]))], [[2, 4]])[0]!,
  };
  assert.throws(() => compileLayer(layer, [X], OPTIONS), { message: /received Hardmax/ });
});

Deno.test("two layers whose parameters have the same names are refused", () => {
  const model = { name: "twins", layers: [linear("a"), linear("a"), squares], predictions: 2 };
  assert.throws(() => compileModel(model, "none"), { message: /received "a\.weight" twice/ });
});

Deno.test("recomputation keeps fewer bytes from F to B: none more than cheap more than full", () => {
  const config = { layers: 2, hidden: 32, heads: 4, seq: 16, vocab: 64 };
  const [none, cheap, full] = (["none", "cheap", "full"] as const).map((policy) =>
    activationBytes(compileModel(gpt2(config, 2), policy), { backward: "whole" }).perMicroBatch
  );
  assert.ok(none! > cheap! && cheap! > full!, `${none}, ${cheap}, ${full}`);
});

async function withStage(use: (stage: Awaited<ReturnType<typeof openStage>>) => Promise<void>) {
  const device = await openReference();
  try {
    const model = { name: "tiny", layers: [linear("a"), linear("b"), squares], predictions: 2 };
    const program = compileModel(model, "none");
    const stage = await openStage(device, program, { optimizer: SGD, backward: "whole" });
    const weight = Float32Array.from({ length: 16 }, (_, i) => (i % 5) / 5);
    stage.load({
      weights: new Map([["a.weight", weight], ["b.weight", weight]]),
      moments: new Map(),
    });
    await use(stage);
  } finally {
    device.close();
  }
}

const points = Float32Array.of(1, 2, 3, 4, 5, 6, 7, 8);

Deno.test("a stage says what is wrong with a micro-batch: missing field, twice in flight, no F", async () => {
  await withStage(async (stage) => {
    await assert.rejects(stage.forward(0, undefined, {}), {
      message: /must have the field "points"/,
    });
    await stage.forward(1, undefined, { points });
    await assert.rejects(stage.forward(1, undefined, { points }), {
      message: /micro-batch 1 must not be in flight/,
    });
    await assert.rejects(stage.backward(7, "B", undefined, 1), {
      message: /micro-batch 7 must have had its F/,
    });
  });
});

Deno.test("activations are held from F to B, and a slot is used again", async () => {
  await withStage(async (stage) => {
    for (let m = 0; m < 3; m++) await stage.forward(m, undefined, { points });
    assert.equal(stage.liveActivations, 3);
    for (let m = 0; m < 3; m++) await stage.backward(m, "B", undefined, 1);
    assert.equal(stage.liveActivations, 0);
    await stage.forward(3, undefined, { points });
    assert.equal(stage.liveActivations, 1);
  });
});

Deno.test("gradients add up over micro-batches and start again from zero", async () => {
  await withStage(async (stage) => {
    const once = async (m: number) => {
      await stage.forward(m, undefined, { points });
      await stage.backward(m, "B", undefined, 1);
      return (await stage.gradients()).get("a.weight")!;
    };
    const one = await once(0), two = await once(1);
    assert.deepEqual(two, one.map((value) => 2 * value));
    stage.zeroGradients();
    assert.deepEqual(await once(2), one);
  });
});

Deno.test("beside the logits that F saves nothing stands that is a quarter as large, in any model", () => {
  const [rows, vocab] = [64, 2 ** 17], logits = rows * vocab;
  const model = gpt2({ layers: 1, hidden: 8, heads: 2, seq: rows, vocab }, 1);
  const { saved, models, overwrites } = compileModel(model, "none").programs.at(-1)!;
  /** Elements of the largest value that a model computes on its way. */
  const largest = (bytes: Uint8Array) => {
    const { graph } = fromBinary(ModelProtoSchema, lowerModel(bytes));
    const outputs = new Set(graph!.output.map(({ name }) => name));
    const types = valueTypes(graph!, signatureOf(graph).inputs);
    const between = graph!.node.flatMap(({ output }) => output).filter((name) =>
      !outputs.has(name)
    );
    return Math.max(0, ...between.map((name) => elementCount(types.get(name)?.shape ?? [logits])));
  };
  assert.ok(saved.some(({ shape }) => elementCount(shape) === logits));
  assert.equal(overwrites!.length, 2);
  const all = [...Object.values(models), ...overwrites!.map(({ model }) => model)];
  for (const one of all) assert.ok(largest(one) <= logits / 8, `${largest(one)} of ${logits}`);
});
