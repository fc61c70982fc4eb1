/** Our own operations, and what devices make of them. */

import assert from "node:assert/strict";
import { fromBinary } from "@bufbuild/protobuf";
import { compileModel, gpt2 } from "../../../kernels/mod.ts";
import { lowerModel } from "../../../kernels/onnx/fused_ops.ts";
import { ModelProtoSchema } from "../../../kernels/onnx/onnx_pb.ts";

const { programs } = compileModel(
  gpt2({ layers: 1, hidden: 8, heads: 2, seq: 4, vocab: 16 }, 1),
  "none",
);

const ownOperations = (model: Uint8Array) =>
  fromBinary(ModelProtoSchema, model).graph!.node
    .flatMap(({ domain, opType }) => domain === "troupe" ? [opType] : []);

Deno.test("the gradients of normalisation, attention and GELU are operations of our own", () => {
  const found = programs.flatMap(({ models }) => ownOperations(models.backward!));
  assert.deepEqual([...new Set(found)].sort(), [
    "FastGeluGrad",
    "LayerNormInputGrad",
    "LayerNormWeightGrad",
    "SoftmaxGrad",
  ]);
});

Deno.test("a lowered model has none of them but those that a device keeps", () => {
  for (const { models } of programs) {
    for (const model of Object.values(models)) {
      assert.deepEqual(ownOperations(lowerModel(model)), []);
    }
    const kept = ownOperations(lowerModel(models.backward!, { FastGeluGrad: "keep" }));
    assert.deepEqual(kept, ownOperations(models.backward!).filter((op) => op === "FastGeluGrad"));
  }
});

Deno.test("a model without them is left as it is", () => {
  const { forward } = programs[0]!.models;
  assert.equal(lowerModel(forward), forward);
});
