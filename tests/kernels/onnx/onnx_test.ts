/** ONNX models: their bytes, the schema that they are written by, our operations in them, and their memory. */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { fromBinary } from "@bufbuild/protobuf";
import { compileModel, gpt2, Graph, type Value } from "../../../kernels/mod.ts";
import { scratchBytes } from "../../../kernels/onnx/scratch.ts";
import { lowerModel } from "../../../kernels/onnx/lower.ts";
import { ModelProtoSchema } from "../../../kernels/onnx/onnx_pb.ts";
import { modelOf } from "../devices/models.ts";

/** A model with every operation of the builder, every kind of attribute and every type of constant. */
function everyOperation(): Uint8Array {
  const g = new Graph(), x = g.input("x", [2, 3, 4]), w = g.input("w", [4]);
  const results = [
    ...[g.add(x, w), g.sub(x, w), g.mul(x, w), g.div(x, w), g.neg(x), g.exp(x), g.log(x)],
    ...[g.sqrt(x), g.tanh(x), g.erf(x), g.sigmoid(x), g.relu(x), g.gelu(x), g.gelu(x, "none")],
    ...[g.cast(x, "i32"), g.where(g.greater(x, w), x, w), g.reshape(x, [6, 4])],
    ...[g.transpose(x, [2, 0, 1]), g.expand(w, [3, 4]), ...g.split(x, 2, 2), g.concat([x, x], 1)],
    ...[g.matmul(x, x, { transB: true, alpha: 0.3 }), g.softmax(x, 1), g.layerNorm(x, w, w)],
    ...[g.sum(x, [0]), g.mean(x, [1], true), g.sumOfSquares(x)],
    ...[
      g.scalar(-0),
      g.constant(BigInt64Array.of(-1n, 2n ** 40n), [2], "i64"),
      g.constant(new Float16Array([1.5]), [1], "f16"),
      g.constant(Uint8Array.of(1, 0), [2], "bool"),
    ].flatMap((constant) => g.node("Identity", [constant], [constant.shape])),
  ];
  return modelOf(g, Object.fromEntries(results.map((value, i) => [`o${i}`, value])));
}

Deno.test("a model has the bytes that it had in earlier releases, so that their journals replay", () => {
  const sha256 = createHash("sha256").update(everyOperation()).digest("hex");
  assert.equal(sha256, "85ab478ddf8dc63fdeb5dbb3dc50431fc281820909c5fbb3aac6c61c2306ae4a");
});

Deno.test("the generated code has every field and every value of onnx.proto", async () => {
  const read = (file: string) =>
    Deno.readTextFile(new URL(`../../../kernels/onnx/${file}`, import.meta.url));
  const schema = (await read("onnx.proto")).replaceAll(/\/\/.*$/gm, "");
  const declared = [...schema.matchAll(/(\w+ = (?:0x[\dA-F]+|\d+))(?: \[[^\]]*\])?;/g)];
  const generated = [
    ...(await read("onnx_pb.ts")).matchAll(/@generated from (?:field|enum value): .*?(\w+ = \d+)/g),
  ];
  const sorted = (found: RegExpMatchArray[]) =>
    found.map(([, field]) => field!.replace(/0x\w+$/, (hex) => `${Number(hex)}`)).sort();
  assert.ok(declared.length > 150, `${declared.length} fields and values`);
  assert.deepEqual(sorted(generated), sorted(declared));
});

const GPT = gpt2({ layers: 1, hidden: 8, heads: 2, seq: 4, vocab: 16 }, 1);
const { programs } = compileModel(GPT, "none");

const ownOperations = (model: Uint8Array) =>
  fromBinary(ModelProtoSchema, model).graph!.node
    .flatMap(({ domain, opType }) => domain === "troupe" ? [opType] : []);

Deno.test("the gradients of normalization, attention and GELU are operations of Troupe, which lowering replaces", () => {
  const found = programs.flatMap(({ models }) => ownOperations(models.backward!));
  assert.deepEqual([...new Set(found)].sort(), [
    "FastGeluGrad",
    "LayerNormInputGrad",
    "LayerNormWeightGrad",
    "SoftmaxGrad",
  ]);
  for (const { models } of programs) {
    for (const model of Object.values(models)) {
      assert.deepEqual(ownOperations(lowerModel(model)), []);
    }
    const kept = ownOperations(lowerModel(models.backward!, { FastGeluGrad: "keep" }));
    assert.deepEqual(kept, ownOperations(models.backward!).filter((op) => op === "FastGeluGrad"));
  }
  const { forward } = programs[0]!.models;
  assert.equal(lowerModel(forward), forward, "a model without them is left as it is");
});

/** Bytes in the arena while a model of one operand, or two, runs. */
function arenaBytes(
  build: (g: Graph, x: Value, w: Value) => Value,
  ...shapes: readonly (readonly number[])[]
): number {
  const g = new Graph(), inputs = shapes.map((shape, i) => g.input(`x${i}`, shape));
  return scratchBytes(modelOf(g, { y: build(g, ...inputs as [Value, Value]) }));
}

const SIZE = 64, VALUE = 4 * SIZE * SIZE;

Deno.test("intermediate values are counted while they are needed, but not bound values", () => {
  const product = (g: Graph, x: Value) => g.matmul(x, x);
  const flat = (g: Graph, x: Value) => g.reshape(g.reshape(x, [SIZE * SIZE]), [SIZE, SIZE]);
  const both = (g: Graph, one: Value) => g.add(g.tanh(one), one);
  const cases: readonly [values: number, build: (g: Graph, x: Value) => Value][] = [
    [0, product],
    [1, (g, x) => g.matmul(product(g, x), x)],
    [2, (g, x) => g.matmul(g.add(product(g, x), x), x)],
    // A value in another shape takes nothing, and some operations write over their operand.
    [1, (g, x) => g.matmul(flat(g, product(g, x)), x)],
    [1, (g, x) => g.matmul(g.tanh(product(g, x)), x)],
    // Not where it is read later.
    [3, (g, x) => g.matmul(both(g, product(g, x)), x)],
    // The product that is added last comes first, and waits for the sum of the others.
    [4, (g, x) => g.add(g.add(product(g, x), product(g, x)), product(g, x))],
  ];
  for (const [values, build] of cases) {
    assert.equal(arenaBytes(build, [SIZE, SIZE]), values * VALUE, `${build}`);
  }
});

Deno.test("operations that compute in memory of the library have it for that long", () => {
  // Convolutions copy windows or products into scratch memory, as measured in the arena of the native device.
  const x = [8, 64, 14, 14], w = [64, 64, 3, 3], halves = { strides: 2 };
  assert.equal(arenaBytes((g, x, w) => g.conv(x, w, undefined, { pads: 1 }), x, w), 65_536);
  const few = arenaBytes((g, x, w) => g.conv(x, w, undefined, { pads: 1, ...halves }), x, w);
  assert.equal(few, 4 * 64 * 9 * 49);
  assert.equal(arenaBytes((g, x, w) => g.conv(x, w), x, [64, 64, 1, 1]), 0);
  const wide = [64, 32, 2, 2];
  const added = arenaBytes((g, x, w) => g.convTranspose(x, w, undefined, halves), x, wide);
  assert.equal(added, 4 * 32 * 4 * 196);
});
