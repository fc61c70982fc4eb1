/** The bytes of models: what is written, and the schema that it is written by. */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { encodeModel, Graph } from "../../../kernels/mod.ts";

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
  return encodeModel(
    g,
    [{ name: "x", value: x }, { name: "w", value: w }],
    results.map((value, i) => ({ name: `o${i}`, value })),
  );
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
