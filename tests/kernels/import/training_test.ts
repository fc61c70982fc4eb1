/** Training of files, and files with other weights. */

import { fromBinary } from "@bufbuild/protobuf";
import assert from "node:assert/strict";
import { Tensor } from "onnxruntime-web";
import { train } from "../../../actors/run/train.ts";
import {
  type Batch,
  compileModel,
  fromOnnx,
  type FromOnnxOptions,
  gpt2,
  gpt2Onnx,
  mlp,
  mlpOnnx,
  type Model,
  type OnnxFile,
  onnxWithWeights,
  openReference,
} from "../../../kernels/mod.ts";
import { batchCheck } from "../../../kernels/compile/compile_model.ts";
import { hasDropout, modelFields } from "../../../kernels/layers/layer.ts";
import { ModelProtoSchema } from "../../../kernels/onnx/onnx_pb.ts";
import { assertRefused } from "../graph/refused.ts";
import { drawTokens, drawWeights, openStages } from "../stage/stage_runs.ts";
import { numbers, onnxModel, type TestModel, type TestNode } from "./onnx_model.ts";
import { farthest, loadRuntime, runOnnx } from "../../onnx.ts";

const AFFINE = { w: { data: numbers([5, 3]), shape: [5, 3] }, b: { data: numbers([3], 1) } };

/** Logits [4, 3] of x [4, 5], and further nodes. */
function logits(nodes: readonly TestNode[] = [], output = "y", more: Partial<TestModel> = {}) {
  return onnxModel({
    inputs: more.inputs ?? { x: ["batch", 5] },
    initializers: { ...more.initializers, ...AFFINE },
    nodes: [{ op: "Gemm", inputs: ["x", "w", "b"], outputs: ["y"] }, ...nodes],
    outputs: { [output]: "f32" },
  });
}

const OPTIONS = { loss: "cross-entropy", dimensions: { batch: 4 } } as const;
const BATCH = { x: numbers([4, 5], 2), label: Int32Array.of(2, 0, -1, 1) };

async function lossesOf(bytes: Uint8Array, options: FromOnnxOptions, batch: Batch) {
  const model = fromOnnx(bytes, options), device = await openReference();
  const [stage] = await openStages(device, compileModel(model, "none"), 1);
  stage!.load({ weights: new Map(model.weights), moments: new Map() });
  const { output } = await stage!.forward(0, undefined, batch);
  device.close();
  return [...output as Float32Array];
}

/** The logits of a row of x. */
const rowOf = (row: number) =>
  [0, 1, 2].map((k) =>
    [0, 1, 2, 3, 4].reduce(
      (sum, i) => sum + BATCH.x[5 * row + i]! * numbers([5, 3])[3 * i + k]!,
      numbers([3], 1)[k]!,
    )
  );

const isNear = (got: ArrayLike<number>, want: readonly number[]) => {
  const off = farthest(got, want);
  assert.ok(off < 5e-6, `${off} off`);
};

const crossEntropies = [2, 0, -1, 1].map((label, row) =>
  label < 0
    ? 0
    : Math.log(rowOf(row).reduce((sum, one) => sum + Math.exp(one), 0)) - rowOf(row)[label]!
);

Deno.test("cross-entropy is computed for each row whose label is not −1", async () => {
  isNear(await lossesOf(logits(), OPTIONS, BATCH), crossEntropies);
  const { predictions, samples } = fromOnnx(logits(), OPTIONS);
  assert.equal((predictions as (batch: Batch) => number)(BATCH), 3);
  assert.equal(samples, 4);
});

Deno.test("a file that ends with a softmax has the same loss, because cross-entropy includes one", async () => {
  for (const attributes of [{}, { axis: 1 }]) {
    const softmax = { op: "Softmax", inputs: ["y"], outputs: ["p"], attributes };
    isNear(await lossesOf(logits([softmax], "p"), OPTIONS, BATCH), crossEntropies);
  }
});

Deno.test("each token is a prediction, and the loss of a sample is the sum of their losses", async () => {
  const shape = { data: BigInt64Array.of(2n, 2n, 3n) };
  const bytes = logits([{ op: "Reshape", inputs: ["y", "shape"], outputs: ["z"] }], "z", {
    initializers: { shape },
  });
  const [a, b, c, d] = crossEntropies as [number, number, number, number];
  isNear(await lossesOf(bytes, OPTIONS, BATCH), [a + b, c + d]);
});

Deno.test("mse is the mean over the numbers of each sample", async () => {
  const label = numbers([4, 3], 5), batch = { x: BATCH.x, wanted: label };
  const want = [0, 1, 2, 3].map((row) =>
    rowOf(row).reduce((sum, one, k) => sum + (one - label[3 * row + k]!) ** 2 / 3, 0)
  );
  isNear(await lossesOf(logits(), { ...OPTIONS, loss: "mse", label: "wanted" }, batch), want);
});

Deno.test("fields are the file's inputs, with int32 for int64, and the label, with their bounds", () => {
  const bytes = onnxModel({
    inputs: { ids: [2, 3] },
    types: { ids: "i64" },
    initializers: { table: { data: numbers([9, 4]), shape: [9, 4] } },
    nodes: [{ op: "Gather", inputs: ["table", "ids"], outputs: ["y"] }],
    outputs: { y: "f32" },
  });
  const model = fromOnnx(bytes, { loss: "cross-entropy", label: "next" });
  assert.deepEqual(modelFields(model), [
    { name: "ids", shape: [2, 3], dtype: "i32" },
    { name: "next", shape: [6], dtype: "i32" },
  ]);
  const check = batchCheck(compileModel(model, "none"));
  const next = Int32Array.of(0, 1, 2, 3, -1, 0);
  assert.equal(check({ ids: Int32Array.of(0, 8, 1, 2, 3, 4), next }), undefined);
  const said = /"ids" must hold .* received 9/;
  assert.match(check({ ids: Int32Array.of(0, 9, 1, 2, 3, 4), next })!, said);
  const wrong = next.map((one) => one + 1);
  assert.match(check({ ids: next, next: wrong })!, /"next" must hold .* from -1 to 3, received 4/);
});

Deno.test("frozen weights, selected by name or by a function, are not trained", () => {
  for (const frozen of [["w"], (name: string) => name === "w"]) {
    const { parameters } = compileModel(fromOnnx(logits(), { ...OPTIONS, frozen }), "none");
    const frozenOnes = parameters.filter(({ isFrozen }) => isFrozen).map(({ name }) => name);
    assert.deepEqual([parameters.length, frozenOnes], [2, ["w"]]);
  }
});

const kind = (value: string) => ({ "torch.export.graph_signature.InputSpec.kind": value });
const of = (names: string) => ({ "onnxscript.optimizer.folded_from": names });

/** Initializers, as PyTorch's exporter marks them, and whether they are trained. */
const MARKED: readonly [string, shape: number[], Record<string, string>, isTrained: boolean][] = [
  ["w", [5, 3], kind("PARAMETER"), true],
  ["s", [], kind("PARAMETER"), true],
  ["mask", [3], kind("BUFFER"), false],
  ["val_1", [], {}, false],
  ["val_2", [], of("['int64_1']"), false],
  ["val_3", [3], of("['y0', 'val_9']"), false],
  ["val_4", [3], of("['y0', 'head.scale']"), true],
  ["permute", [3], of("['shift', 'val_8']"), true],
  ["conv.weight_bias", [3], {}, true],
];

Deno.test("initializers that PyTorch's exporter does not mark as parameters are constants", () => {
  const tensors = MARKED.map(([name, shape]) => [name, { data: numbers(shape), shape }]);
  const bytes = onnxModel({
    inputs: { x: ["batch", 5] },
    initializers: Object.fromEntries(tensors),
    nodes: MARKED.map(([name], i) => ({
      op: i === 0 ? "MatMul" : "Mul",
      inputs: [i === 0 ? "x" : `y${i - 1}`, name],
      outputs: [`y${i}`],
    })),
    outputs: { [`y${MARKED.length - 1}`]: "f32" },
    marks: Object.fromEntries(MARKED.map(([name, , marks]) => [name, marks])),
  });
  const { parameters } = compileModel(fromOnnx(bytes, OPTIONS), "none");
  const trained = MARKED.filter(([, , , isTrained]) => isTrained).map(([name]) => name);
  assert.deepEqual(parameters.map(({ name }) => name), trained);
});

Deno.test("dropout is that of the exported file", () => {
  const dropout = (inputs: readonly string[]) =>
    logits([{ op: "Dropout", inputs, outputs: ["z"] }], "z", {
      initializers: {
        ratio: { data: Float32Array.of(0.25), shape: [] },
        training: { data: Uint8Array.of(1), shape: [] },
      },
    });
  assert.equal(hasDropout(fromOnnx(dropout(["y", "ratio"]), OPTIONS)), false);
  const model = fromOnnx(dropout(["y", "ratio", "training"]), OPTIONS);
  const [mask] = compileModel(model, "none").programs.flatMap(({ masks = [] }) => masks);
  assert.equal(mask!.probability, 0.25);
});

Deno.test("micro-batches of another size have the same layers, if the file leaves their size open", () => {
  const small = fromOnnx(logits(), OPTIONS), large = small.withSamples!(7);
  assert.equal(large.samples, 7);
  assert.deepEqual(large.layers.map(({ name }) => name), small.layers.map(({ name }) => name));
  const fixed = logits([], "y", { inputs: { x: [4, 5] } });
  assert.equal(fromOnnx(fixed, { loss: "mse" }).withSamples, undefined);
});

Deno.test("batch normalization in training mode is refused, because its statistics would be lost", async () => {
  const path = new URL("../../fixtures/onnx/resnet/training.onnx", import.meta.url);
  const read = () => fromOnnx(Deno.readFileSync(path), OPTIONS);
  await assertRefused("batch_norm", [["training.onnx", read]]);
  const other = await Deno.readFile(new URL("model.onnx", path));
  const { parameters } = compileModel(fromOnnx(other, OPTIONS), "none");
  const frozen = parameters.filter(({ isFrozen }) => isFrozen).map(({ name }) => name);
  assert.equal(frozen.length, 12);
  assert.ok(frozen.every((name) => /running_(mean|var)$/.test(name)), `${frozen}`);
});

type Weights = ReadonlyMap<string, Float32Array>;

const bytesOf = (file: OnnxFile, weights: Weights) =>
  new Blob([...file.pieces((name) => weights.get(name))]).bytes();

/** The losses of five steps of AdamW. */
async function losses(model: Model, weights: Weights | undefined, data: readonly Batch[]) {
  const result: number[] = [];
  const options = { steps: 5, learningRate: 1e-2, workers: 1, microBatches: 1 };
  const run = train({ model, weights, data, ...options, runtime: "serial", device: "native" });
  for await (const event of run) if (event.type === "step") result.push(event.loss);
  return result;
}

const SAMPLES = 2, MLP = { inputs: 6, hidden: 5, layers: 2, classes: 3 };
const GPT2 = { layers: 2, hidden: 16, heads: 2, seq: 8, vocab: 20 }, TIED = { ...GPT2, tie: true };
const pictures = (pixels: string, label: string): Batch[] =>
  Array(5).fill({ [pixels]: numbers([SAMPLES, 6]), [label]: Int32Array.of(2, 1) });
const tokens = (ids: string): Batch[] =>
  drawTokens(5, SAMPLES * GPT2.seq, GPT2.vocab).map(({ ids: all, targets }) => (
    { [ids]: all, targets }
  ));

/** Models, their files, and what both are given. */
const WRITTEN: Readonly<Record<string, readonly [Model, OnnxFile, Batch[], Batch[]]>> = {
  "an MLP": [
    mlp(MLP, SAMPLES),
    mlpOnnx(MLP),
    pictures("features", "labels"),
    pictures("pixels", "targets"),
  ],
  "a GPT-2": [gpt2(GPT2, SAMPLES), gpt2Onnx(GPT2), tokens("ids"), tokens("input_ids")],
  "a tied GPT-2": [gpt2(TIED, SAMPLES), gpt2Onnx(TIED), tokens("ids"), tokens("input_ids")],
};

for (const [what, [model, file, batches, renamed]] of Object.entries(WRITTEN)) {
  Deno.test(`${what} that was written as ONNX comes back, and has the losses that it had`, async () => {
    const weights = drawWeights(compileModel(model, "none"));
    const back = fromOnnx(await bytesOf(file, weights), {
      loss: "cross-entropy",
      label: "targets",
      dimensions: { batch: SAMPLES, ...what !== "an MLP" && { sequence: GPT2.seq } },
    });
    assert.deepEqual(new Map([...back.weights!].sort()), new Map([...weights].sort()));
    const want = await losses(model, weights, batches),
      got = await losses(back, undefined, renamed);
    assert.equal(got.length, 5);
    for (const [i, loss] of got.entries()) {
      assert.ok(Math.abs(loss - want[i]!) < 1e-5 * want[i]!, `${i}: ${loss}, not ${want[i]}`);
    }
    assert.ok(got[4]! < got[0]!, "it learns");
  });
}

const W = numbers([3, 2]), B = numbers([2], 1);

function line(tensors: TestModel["tensors"] = {}): Uint8Array<ArrayBuffer> {
  return onnxModel({
    inputs: { x: [4, 3] },
    initializers: { w: { data: W, shape: [3, 2] }, b: { data: B } },
    nodes: [{ op: "Gemm", inputs: ["x", "w", "b"], outputs: ["y"] }],
    outputs: { y: "f32" },
    tensors,
  });
}

const X = numbers([4, 3], 2);

/** Computes a file in plain onnxruntime-web. */
async function outputOf(bytes: Uint8Array): Promise<Float32Array> {
  const { y } = await runOnnx(bytes, { x: new Tensor(X, [4, 3]) });
  return y!.data as Float32Array;
}

/** x·w + b */
const product = (w: Float32Array, b: Float32Array) =>
  Array.from({ length: 8 }, (_, i) => {
    const row = Math.floor(i / 2), column = i % 2;
    return [0, 1, 2].reduce((sum, k) => sum + X[3 * row + k]! * w[2 * k + column]!, b[column]!);
  });

loadRuntime();

Deno.test("only the bytes of the given weights change in a file", async () => {
  const bytes = line(), w = W.map((one) => one + 1);
  const other = onnxWithWeights(bytes, new Map([["w", w]]));
  assert.equal(other.length, bytes.length);
  const from = Number(
    Array.from(bytes.keys()).find((at) =>
      new Uint8Array(W.buffer).every((byte, i) => bytes[at + i] === byte)
    ),
  );
  assert.deepEqual(other.subarray(0, from), bytes.subarray(0, from));
  assert.deepEqual(other.subarray(from, from + 24), new Uint8Array(w.buffer));
  assert.deepEqual(other.subarray(from + 24), bytes.subarray(from + 24));
  isNear(await outputOf(other), product(w, B));
  assert.deepEqual(onnxWithWeights(other, new Map([["w", W]])), bytes, "and back");
});

Deno.test("weights in lists or in separate files are written into the file", async () => {
  const w = W.map((one) => one - 1), weights = new Map([["w", w]]);
  const location = [{ key: "location", value: "w.bin" }, { key: "offset", value: "4" }];
  const external = { "w.bin": new Uint8Array(28) };
  external["w.bin"].set(new Uint8Array(W.buffer), 4);
  for (const tensor of [{ floatData: [...W] }, { dataLocation: 1, externalData: location }]) {
    const bytes = line({ w: { ...tensor, rawData: undefined } });
    assert.deepEqual(fromOnnx(bytes, { loss: "mse", external }).weights!.get("w"), W);
    const other = onnxWithWeights(bytes, weights), { graph } = fromBinary(ModelProtoSchema, other);
    const { floatData, externalData, dataLocation } = graph!.initializer[0]!;
    assert.deepEqual([floatData, externalData, dataLocation], [[], [], undefined]);
    assert.deepEqual(fromOnnx(other, { loss: "mse" }).weights!.get("w"), w);
    isNear(await outputOf(other), product(w, B));
  }
});

Deno.test("weights that are not in the file, or have another size, are refused", () =>
  assertRefused(
    "onnx_weights",
    Object.entries({ v: W, w: B }).map(([name, weights]) =>
      [name, () => onnxWithWeights(line(), new Map([[name, weights]]))] as const
    ),
  ));
