import assert from "node:assert/strict";
import { encodeModel, Graph, transientBytes, type Value } from "../../../kernels/mod.ts";

const SIZE = 64, VALUE = 4 * SIZE * SIZE;

/** How many values of 64 × 64 lie in the arena while a model runs. */
function valuesOf(build: (g: Graph, x: Value) => Value): number {
  const g = new Graph(), x = g.input("x", [SIZE, SIZE]), y = build(g, x);
  return transientBytes(encodeModel(g, [{ name: "x", value: x }], [{ name: "y", value: y }])) /
    VALUE;
}

Deno.test("what is bound takes nothing, and what lies in between is counted while it is needed", () => {
  assert.equal(valuesOf((g, x) => g.matmul(x, x)), 0);
  assert.equal(valuesOf((g, x) => g.matmul(g.matmul(x, x), x)), 1);
  assert.equal(valuesOf((g, x) => g.matmul(g.add(g.matmul(x, x), x), x)), 2);
});

Deno.test("a value in another shape takes nothing, and some operations write over their operand", () => {
  const flat = (g: Graph, x: Value) => g.reshape(g.reshape(x, [SIZE * SIZE]), [SIZE, SIZE]);
  assert.equal(valuesOf((g, x) => g.matmul(flat(g, g.matmul(x, x)), x)), 1);
  assert.equal(valuesOf((g, x) => g.matmul(g.tanh(g.matmul(x, x)), x)), 1);
  // Not where somebody reads it later.
  const both = (g: Graph, one: Value) => g.add(g.tanh(one), one);
  assert.equal(valuesOf((g, x) => g.matmul(both(g, g.matmul(x, x)), x)), 3);
});

Deno.test("operations run in the library's order, depth first from the last one", () => {
  // The product that is added last comes first, and waits for the sum of the others.
  const three = (g: Graph, x: Value) =>
    g.add(g.add(g.matmul(x, x), g.matmul(x, x)), g.matmul(x, x));
  assert.equal(valuesOf(three), 4);
});

Deno.test("operations that compute in memory of their own have it for that long", () => {
  const rows = (g: Graph, x: Value) => g.cast(g.sum(x, [1]), "i32");
  const loss = valuesOf((g, x) =>
    g.node("SoftmaxCrossEntropyLoss", [x, rows(g, x)], [[SIZE]], { reduction: "none" })[0]!
  );
  assert.ok(loss >= 2 && loss < 2.1, `received ${loss}`);
});

Deno.test("convolutions lay windows side by side, or what is to be added", () => {
  const bytesOf = (
    build: (g: Graph, x: Value, weight: Value) => Value,
    weight: readonly number[],
  ) => {
    const g = new Graph(), inputs = [g.input("x", [8, 64, 14, 14]), g.input("w", weight)] as const;
    const y = build(g, ...inputs), ports = inputs.map((value) => ({ name: value.name, value }));
    return transientBytes(encodeModel(g, ports, [{ name: "y", value: y }]));
  };
  // As the arena of the native device says.
  assert.equal(bytesOf((g, x, w) => g.conv(x, w, undefined, { pads: 1 }), [64, 64, 3, 3]), 65536);
  const few = bytesOf((g, x, w) => g.conv(x, w, undefined, { pads: 1, strides: 2 }), [
    64,
    64,
    3,
    3,
  ]);
  assert.equal(few, 4 * 64 * 9 * 49);
  assert.equal(bytesOf((g, x, w) => g.conv(x, w), [64, 64, 1, 1]), 0);
  const added = bytesOf((g, x, w) => g.convTranspose(x, w, undefined, { strides: 2 }), [
    64,
    32,
    2,
    2,
  ]);
  assert.equal(added, 4 * 32 * 4 * 196);
});
