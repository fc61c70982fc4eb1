/** Every gradient rule against differences of the forward graph, and those of images against PyTorch. */

import assert from "node:assert/strict";
import { isFlat } from "../../../kernels/ops/table.ts";
import { addGradients, Graph, openDevice, type Value } from "../../../kernels/mod.ts";
import { elementCount } from "../../../kernels/graph/shapes.ts";
import { GRADIENTS } from "../../../kernels/ops/table.ts";
import { ISOLATE_DEVICES } from "../../devices.ts";
import { OPERATOR_CASES } from "../devices/operator_cases.ts";
import { computed, type Given } from "./computed.ts";
import { CASES } from "./gradient_cases.ts";
import { testImages } from "./pytorch_images.ts";
import { assertGradients } from "./slopes.ts";
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

for (const name of ISOLATE_DEVICES) testImages(name, () => openDevice(name));

Deno.test("an operation without a gradient is refused by name", () => {
  const g = new Graph(), x = g.input("x", [3]);
  const [y] = g.node("Hardmax", [x], [[3]]);
  assert.throws(
    () => addGradients(g, [[y!, g.input("dy", [3])]], [x]),
    { name: "TypeError", message: /received Hardmax/ },
  );
});

Deno.test("a value used twice gets the sum of both gradients, and an unused value none", () => {
  const g = new Graph(), x = g.input("x", [3]), unused = g.input("unused", [3]);
  const y = g.add(g.exp(x), g.tanh(x));
  const [dx, none] = addGradients(g, [[y, g.input("dy", [3])]], [x, unused]);
  assert.equal(dx!.node!.op, "Add");
  assert.equal(none, undefined);
});

Deno.test("step functions, whole numbers and bools have no gradient, and need none", () => {
  const g = new Graph(), x = g.input("x", [3]), i = g.input("i", [3], "i32");
  const whole = g.cast(g.cast(x, "i32"), "f32");
  const steps = [g.sign(x), g.floor(x), g.ceil(x), g.round(x), whole, g.stopGradient(x)];
  const chosen = g.where(g.less(x, g.scalar(1)), g.cast(i, "f32"), g.cast(g.argMax(x, 0), "f32"));
  const dy = g.input("dy", [3]);
  const found = addGradients(g, [...steps, chosen].map((y) => [y, dy] as const), [x, i]);
  assert.deepEqual(found, [undefined, undefined]);
});

Deno.test("operations whose results are whole numbers or bools are known to be flat", () => {
  const isReal = ({ dtype }: { dtype: string }) => dtype.startsWith("f");
  const cases = Object.values(OPERATOR_CASES).map((make) => make({ b: 1, n: 2, m: 2, k: 2 }));
  for (const { op, inputs, outputs } of cases.filter(({ op }) => op !== "Cast")) {
    if (inputs.some(isReal) && !outputs.some(isReal)) assert.ok(isFlat(op), op);
    if (inputs.some(isReal) && outputs.some(isReal) && isFlat(op)) assert.ok(GRADIENTS[op], op);
  }
});

/** The gradients of the sum of a result for x, and for the other input. */
async function slopes(build: (g: Graph, x: Value, other: Value) => Value, given: Given) {
  const g = new Graph(), names = Object.keys(given);
  const inputs = names.map((name) => g.input(name, [given[name]!.length])) as [Value, Value];
  const y = build(g, ...inputs);
  const dy = g.constant(new Float32Array(elementCount(y.shape)).fill(1), y.shape);
  const found = addGradients(g, [[y, dy]], inputs).filter((value) => value !== undefined);
  return await Promise.all(found.map((value) => computed(g, value, given)));
}

Deno.test("equal maxima or minima share the gradient", async () => {
  const slope = async (build: (g: Graph, x: Value, other: Value) => Value) =>
    (await slopes(build, { x: [2, 2], other: [2, 3] }))[0];
  assert.deepEqual(await slope((g, x, other) => g.maximum(x, other)), [0.5, 0]);
  assert.deepEqual(await slope((g, x, other) => g.minimum(x, other)), [0.5, 1]);
  assert.deepEqual(await slope((g, x) => g.max(x)), [0.5, 0.5]);
  assert.deepEqual(await slope((g, x, other) => g.min(g.add(x, other))), [1, 0]);
  assert.deepEqual(await slope((g, x, other) => g.norm(g.sub(x, other), [0], true)), [0, -1]);
  assert.deepEqual(await slope((g, x) => g.norm(g.mul(x, g.scalar(0)))), [0, 0]);
});

Deno.test("a power of zero has a gradient for its base, and none for its exponent", async () => {
  const given = { x: [0, 0, 2], exponent: [2, 1, 3] };
  const [base, exponent] = await slopes((g, x, b) => g.pow(x, b), given);
  assert.deepEqual(base, [0, 1, 12]);
  assert.deepEqual(exponent!.slice(0, 2), [0, 0]);
  assert.ok(Math.abs(exponent![2]! - 8 * Math.LN2) < 1e-6, `${exponent}`);
});

Deno.test("a target that is not predicted has no loss and no gradient", async () => {
  const logits = [1, 2, 3, 4, 5, 6];
  const targets = (g: Graph) => g.constant(Int32Array.of(-1, 0), [2], "i32");
  const loss = (g: Graph, x: Value) => g.crossEntropy(g.reshape(x, [2, 3]), targets(g));
  const [gradient] = await slopes(loss, { x: logits });
  assert.ok(gradient!.slice(0, 3).every((slope) => slope === 0));
  assert.ok(gradient![3]! < 0 && gradient![4]! > 0);
  const g = new Graph();
  assert.equal((await computed(g, loss(g, g.input("x", [6])), { x: logits }))[0], 0);
});

Deno.test("losses of logits that are computed in parts are those of each row", async () => {
  const g = new Graph(), classes = 2 ** 19, x = [3, 6, 9, 12];
  const zeros = g.expand(g.scalar(0), [4, classes - 1]);
  const logits = g.concat([g.reshape(g.input("x", [4]), [4, 1]), zeros], 1);
  const targets = [1, 1, 0, -1];
  const losses = g.crossEntropy(logits, g.constant(Int32Array.from(targets), [4], "i32"));
  for (const [i, loss] of (await computed(g, losses, { x })).entries()) {
    const whole = Math.log(Math.exp(x[i]!) + classes - 1) - (targets[i] === 0 ? x[i]! : 0);
    assert.ok(Math.abs(loss - (targets[i]! < 0 ? 0 : whole)) < 1e-4, `${i}: ${loss}`);
  }
});
