/** Files with other weights, against onnxruntime-web and byte by byte. */

import assert from "node:assert/strict";
import { fromBinary } from "@bufbuild/protobuf";
import { InferenceSession, Tensor } from "onnxruntime-web";
import { fromOnnx, onnxWithWeights } from "../../../kernels/mod.ts";
import { ModelProtoSchema } from "../../../kernels/onnx/onnx_pb.ts";
import { numbers, onnxModel, type TestModel } from "./onnx_model.ts";

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

/** What plain onnxruntime-web makes of a file. */
async function outputOf(bytes: Uint8Array): Promise<Float32Array> {
  const session = await InferenceSession.create(bytes);
  const { y } = await session.run({ x: new Tensor(X, [4, 3]) });
  await session.release();
  return y!.data as Float32Array;
}

/** x·w + b */
const product = (w: Float32Array, b: Float32Array) =>
  Array.from({ length: 8 }, (_, i) => {
    const row = Math.floor(i / 2), column = i % 2;
    return [0, 1, 2].reduce((sum, k) => sum + X[3 * row + k]! * w[2 * k + column]!, b[column]!);
  });

function isNear(got: ArrayLike<number>, want: ArrayLike<number>): void {
  assert.equal(got.length, want.length);
  for (let i = 0; i < want.length; i++) {
    assert.ok(Math.abs(got[i]! - want[i]!) < 1e-6, `${i}: ${got[i]}, not ${want[i]}`);
  }
}

// Loading the runtime opens ports that stay.
Deno.test.beforeAll(async () => void await outputOf(line()));

Deno.test("a file has other bytes only where the weights are that are given", async () => {
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

Deno.test("weights that lay in lists or in files beside it lie in the file", async () => {
  const w = W.map((one) => one - 1), weights = new Map([["w", w]]);
  const location = [{ key: "location", value: "w.bin" }, { key: "offset", value: "4" }];
  const external = { "w.bin": new Uint8Array(28) };
  external["w.bin"].set(new Uint8Array(W.buffer), 4);
  for (
    const tensor of [
      { rawData: undefined, floatData: [...W] },
      { rawData: undefined, dataLocation: 1, externalData: location },
    ]
  ) {
    const { rawData: _, ...rest } = tensor;
    const bytes = line({ w: { ...rest, rawData: undefined } });
    assert.deepEqual(fromOnnx(bytes, { loss: "mse", external }).weights!.get("w"), W);
    const other = onnxWithWeights(bytes, weights), { graph } = fromBinary(ModelProtoSchema, other);
    const [first] = graph!.initializer;
    assert.deepEqual([first!.floatData, first!.externalData, first!.dataLocation], [
      [],
      [],
      undefined,
    ]);
    assert.deepEqual(fromOnnx(other, { loss: "mse" }).weights!.get("w"), w);
    isNear(await outputOf(other), product(w, B));
  }
});

Deno.test("weights that are not the file's, or of another size, are not written", () => {
  assert.throws(() => onnxWithWeights(line(), new Map([["v", W]])), {
    message: 'Cannot write the ONNX model: weights must be among its initializers, received "v"',
  });
  assert.throws(() => onnxWithWeights(line(), new Map([["w", B]])), {
    name: "RangeError",
    message:
      'Cannot write the ONNX model: the weight "w" must be f32 of 6 elements, received 2 for ONNX type 1',
  });
});
