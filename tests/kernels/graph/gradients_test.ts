/** Every gradient rule against differences of the forward graph, on the reference device. */

import assert from "node:assert/strict";
import { isFlat } from "../../../kernels/graph/gradient_rules.ts";
import { OPERATOR_CASES } from "../devices/operator_cases.ts";
import { computed } from "./computed.ts";
import { addGradients, elementCount, GRADIENTS, Graph, type Value } from "../../../kernels/mod.ts";
import { assertGradients } from "./slopes.ts";
import { CASES } from "./gradient_cases.ts";
import { COMPOSED_CASES } from "./window_cases.ts";

for (const op of Object.keys(GRADIENTS).filter((op) => !isFlat(op))) {
  Deno.test(`the gradient of ${op} is the slope of its forward`, async () => {
    const cases = CASES[op];
    assert.ok(cases, `there must be a case for ${op}`);
    for (const one of cases) {
      const g = new Graph();
      one.build(g, ...one.shapes.map((shape, i) => g.input(`x${i}`, shape)));
      assert.ok(g.nodes.some((node) => node.op === op), `the case must use ${op}`);
      await assertGradients(op, one);
    }
  });
}

for (const [name, one] of Object.entries(COMPOSED_CASES)) {
  Deno.test(`the gradient of ${name} is the slope of its forward`, () =>
    assertGradients(name, one));
}

Deno.test("an op without a gradient is an error that names it", () => {
  const g = new Graph(), x = g.input("x", [3]);
  const [y] = g.node("Hardmax", [x], [[3]]);
  assert.throws(
    () => addGradients(g, [[y!, g.input("dy", [3])]], [x]),
    { name: "TypeError", message: /received Hardmax/ },
  );
});

Deno.test("a value that no output depends on has no gradient", () => {
  const g = new Graph(), x = g.input("x", [3]), unused = g.input("unused", [3]);
  const [dx, none] = addGradients(g, [[g.exp(x), g.input("dy", [3])]], [x, unused]);
  assert.ok(dx);
  assert.equal(none, undefined);
});

Deno.test("a value used twice gets the sum of both gradients", () => {
  const g = new Graph(), x = g.input("x", [3]);
  const [dx] = addGradients(g, [[g.add(g.exp(x), g.tanh(x)), g.input("dy", [3])]], [x]);
  assert.equal(dx!.node!.op, "Add");
});

Deno.test("steps, whole numbers and truths have no gradient, and ask for none", () => {
  const g = new Graph(), x = g.input("x", [3]), i = g.input("i", [3], "i32");
  const steps = [g.sign(x), g.floor(x), g.ceil(x), g.round(x), g.cast(g.cast(x, "i32"), "f32")];
  const chosen = g.where(g.less(x, g.scalar(1)), g.cast(i, "f32"), g.cast(g.argMax(x, 0), "f32"));
  const dy = g.input("dy", [3]);
  const found = addGradients(g, [...steps, chosen].map((y) => [y, dy] as const), [x, i]);
  assert.deepEqual(found, [undefined, undefined]);
});

Deno.test("operations that make whole numbers and truths of others are known to be flat", () => {
  const isReal = ({ dtype }: { dtype: string }) => dtype.startsWith("f");
  const cases = Object.values(OPERATOR_CASES).map((make) => make({ b: 1, n: 2, m: 2, k: 2 }));
  for (const { op, inputs, outputs } of cases.filter(({ op }) => op !== "Cast")) {
    if (inputs.some(isReal) && !outputs.some(isReal)) assert.ok(isFlat(op), op);
    if (inputs.some(isReal) && outputs.some(isReal) && isFlat(op)) assert.ok(GRADIENTS[op], op);
  }
});

Deno.test("of several that are the largest or the smallest each has a share of the gradient", async () => {
  const slope = async (build: (g: Graph, x: Value, other: Value) => Value) => {
    const g = new Graph(), x = g.input("x", [2]), other = g.input("other", [2]);
    const y = build(g, x, other),
      dy = g.constant(new Float32Array(elementCount(y.shape)).fill(1), y.shape);
    const [dx] = addGradients(g, [[y, dy]], [x]);
    return await computed(g, dx!, { x: [2, 2], other: [2, 3] });
  };
  assert.deepEqual(await slope((g, x, other) => g.maximum(x, other)), [0.5, 0]);
  assert.deepEqual(await slope((g, x, other) => g.minimum(x, other)), [0.5, 1]);
  assert.deepEqual(await slope((g, x) => g.max(x)), [0.5, 0.5]);
  assert.deepEqual(await slope((g, x, other) => g.min(g.add(x, other))), [1, 0]);
  assert.deepEqual(await slope((g, x, other) => g.norm(g.sub(x, other), [0], true)), [0, -1]);
  assert.deepEqual(await slope((g, x) => g.norm(g.mul(x, g.scalar(0)))), [0, 0]);
});
