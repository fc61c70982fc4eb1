/** What of a file is trained, and by which loss. */

import assert from "node:assert/strict";
import {
  type Batch,
  batchCheck,
  compileModel,
  fromOnnx,
  type FromOnnxOptions,
  hasDropout,
  modelFields,
  openReference,
  openStage,
} from "../../../kernels/mod.ts";
import { numbers, onnxModel, type TestModel, type TestNode } from "./onnx_model.ts";

/** Logits [4, 3] of x [4, 5], and what follows. */
function logits(nodes: readonly TestNode[] = [], output = "y", more: Partial<TestModel> = {}) {
  return onnxModel({
    inputs: { x: ["batch", 5] },
    initializers: {
      w: { data: numbers([5, 3]), shape: [5, 3] },
      b: { data: numbers([3], 1) },
    },
    nodes: [{ op: "Gemm", inputs: ["x", "w", "b"], outputs: ["y"] }, ...nodes],
    outputs: { [output]: "f32" },
    ...more,
  });
}

const OPTIONS = { loss: "cross-entropy", dimensions: { batch: 4 } } as const;
const BATCH = { x: numbers([4, 5], 2), label: Int32Array.of(2, 0, -1, 1) };

async function lossesOf(bytes: Uint8Array, options: FromOnnxOptions, batch: Batch) {
  const model = fromOnnx(bytes, options), device = await openReference();
  const stage = await openStage(device, compileModel(model, "none"), {
    optimizer: { kind: "sgd", momentum: 0, weightDecay: 0 },
    backward: "whole",
  });
  stage.load({ weights: new Map(model.weights), moments: new Map() });
  const { output } = await stage.forward(0, undefined, batch);
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

const isNear = (got: readonly number[], want: readonly number[]) => {
  assert.equal(got.length, want.length);
  got.forEach((one, i) => assert.ok(Math.abs(one - want[i]!) < 1e-5, `${got}, not ${want}`));
};

const crossEntropies = [2, 0, -1, 1].map((label, row) =>
  label < 0
    ? 0
    : Math.log(rowOf(row).reduce((sum, one) => sum + Math.exp(one), 0)) - rowOf(row)[label]!
);

Deno.test("cross-entropy is that of each row whose label is not −1", async () => {
  isNear(await lossesOf(logits(), OPTIONS, BATCH), crossEntropies);
  const { predictions, samples } = fromOnnx(logits(), OPTIONS);
  assert.equal((predictions as (batch: Batch) => number)(BATCH), 3);
  assert.equal(samples, 4);
});

Deno.test("a file that ends with a softmax has the same loss, as cross-entropy takes its own", async () => {
  for (const attributes of [{}, { axis: 1 }]) {
    const softmax = { op: "Softmax", inputs: ["y"], outputs: ["p"], attributes };
    isNear(await lossesOf(logits([softmax], "p"), OPTIONS, BATCH), crossEntropies);
  }
});

Deno.test("logits of tokens are predictions each, and the loss of a sample is their sum", async () => {
  const shape = { data: BigInt64Array.of(2n, 2n, 3n) };
  const bytes = logits([{ op: "Reshape", inputs: ["y", "shape"], outputs: ["z"] }], "z", {
    initializers: {
      shape,
      w: { data: numbers([5, 3]), shape: [5, 3] },
      b: { data: numbers([3], 1) },
    },
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

Deno.test("fields are the file's inputs, with int32 for int64, and the label, within the bounds that follow", () => {
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
  assert.match(
    check({ ids: Int32Array.of(0, 9, 1, 2, 3, 4), next })!,
    /"ids" must hold .* received 9/,
  );
  const wrong = next.map((one) => one + 1);
  assert.match(check({ ids: next, next: wrong })!, /"next" must hold .* from -1 to 3, received 4/);
});

Deno.test("frozen weights are not trained, by their names or by a function", () => {
  for (const frozen of [["w"], (name: string) => name === "w"]) {
    const { parameters } = compileModel(fromOnnx(logits(), { ...OPTIONS, frozen }), "none");
    const frozenOnes = parameters.filter(({ isFrozen }) => isFrozen).map(({ name }) => name);
    assert.deepEqual([parameters.length, frozenOnes], [2, ["w"]]);
  }
});

Deno.test("dropout is what the file was exported with", () => {
  const dropout = (inputs: readonly string[]) =>
    logits([{ op: "Dropout", inputs, outputs: ["z"] }], "z", {
      initializers: {
        ratio: { data: Float32Array.of(0.25), shape: [] },
        training: { data: Uint8Array.of(1), shape: [] },
        w: { data: numbers([5, 3]), shape: [5, 3] },
        b: { data: numbers([3], 1) },
      },
    });
  assert.equal(hasDropout(fromOnnx(dropout(["y", "ratio"]), OPTIONS)), false);
  const model = fromOnnx(dropout(["y", "ratio", "training"]), OPTIONS);
  const [mask] = compileModel(model, "none").programs.flatMap(({ masks = [] }) => masks);
  assert.equal(mask!.probability, 0.25);
});

Deno.test("micro-batches of another size are of the same layers, where the file leaves their size open", () => {
  const small = fromOnnx(logits(), OPTIONS), large = small.withSamples!(7);
  assert.equal(large.samples, 7);
  assert.deepEqual(large.layers.map(({ name }) => name), small.layers.map(({ name }) => name));
  assert.equal(
    fromOnnx(logits([], "y", { inputs: { x: [4, 5] } }), { loss: "mse" }).withSamples,
    undefined,
  );
});

Deno.test("batch normalisation as in training is refused, as nobody keeps its statistics", async () => {
  const path = new URL("../../fixtures/onnx/resnet/training.onnx", import.meta.url);
  assert.throws(() => fromOnnx(Deno.readFileSync(path), OPTIONS), {
    message:
      'Cannot import BatchNormalization of the ONNX model (node "/bn1/BatchNormalization"): its statistics must be those of the file, as exported for evaluation, received one that takes those of each batch',
  });
  const other = await Deno.readFile(new URL("model.onnx", path));
  const { parameters } = compileModel(fromOnnx(other, OPTIONS), "none");
  const frozen = parameters.filter(({ isFrozen }) => isFrozen).map(({ name }) => name);
  assert.equal(frozen.length, 12);
  assert.ok(frozen.every((name) => /running_(mean|var)$/.test(name)), `${frozen}`);
});
