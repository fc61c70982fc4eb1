/** Every gradient rule against differences of the forward graph, on the reference device. */

import assert from "node:assert/strict";
import { addGradients, GRADIENTS, Graph } from "../../../kernels/mod.ts";
import { assertGradients, type Case } from "./slopes.ts";
import { COMPOSED_CASES, WINDOW_CASES } from "./window_cases.ts";

const matrix = [3, 4] as const;
const indices = (g: Graph, ...values: number[]) =>
  g.constant(Int32Array.from(values), [values.length], "i32");

/** At least one case for each rule; the test below says when one is missing. */
const CASES: Readonly<Record<string, readonly Case[]>> = {
  Add: [{ shapes: [matrix, [4]], build: (g, a, b) => g.add(a!, b!) }],
  Sub: [{ shapes: [[3, 1], matrix], build: (g, a, b) => g.sub(a!, b!) }],
  Mul: [
    { shapes: [matrix, [3, 1]], build: (g, a, b) => g.mul(a!, b!) },
    { shapes: [matrix], build: (g, a) => g.mul(a!, a!) },
  ],
  Div: [{ shapes: [matrix, [4]], range: [0.5, 2], build: (g, a, b) => g.div(a!, b!) }],
  Neg: [{ shapes: [matrix], build: (g, a) => g.neg(a!) }],
  Exp: [{ shapes: [matrix], build: (g, a) => g.exp(a!) }],
  Log: [{ shapes: [matrix], range: [0.5, 2], build: (g, a) => g.log(a!) }],
  Sqrt: [{ shapes: [matrix], range: [0.5, 2], build: (g, a) => g.sqrt(a!) }],
  Tanh: [{ shapes: [matrix], build: (g, a) => g.tanh(a!) }],
  Erf: [{ shapes: [matrix], build: (g, a) => g.erf(a!) }],
  Sigmoid: [{ shapes: [matrix], build: (g, a) => g.sigmoid(a!) }],
  Relu: [
    { shapes: [matrix], range: [0.1, 1], build: (g, a) => g.relu(g.sub(a!, g.scalar(0.05))) },
    {
      shapes: [matrix],
      range: [-1, -0.1],
      build: (g, a) => g.relu(a!),
    },
  ],
  FastGelu: [{ shapes: [matrix], range: [-3, 3], build: (g, a) => g.gelu(a!) }],
  Gelu: [{ shapes: [matrix], range: [-3, 3], build: (g, a) => g.gelu(a!, "none") }],
  Cast: [{ shapes: [matrix], build: (g, a) => g.cast(g.cast(a!, "f16"), "f32") }],
  Reshape: [{ shapes: [matrix], build: (g, a) => g.exp(g.reshape(a!, [2, 6])) }],
  Expand: [{ shapes: [[3, 1]], build: (g, a) => g.exp(g.expand(a!, [2, 3, 4])) }],
  Transpose: [{ shapes: [[2, 3, 4]], build: (g, a) => g.transpose(a!, [2, 0, 1]) }],
  Split: [
    { shapes: [[3, 6]], build: (g, a) => g.mul(g.split(a!, 1, 3)[0]!, g.split(a!, 1, 3)[2]!) },
    { shapes: [[3, 6]], build: (g, a) => g.exp(g.split(a!, -1, 2)[1]!) },
  ],
  Concat: [{ shapes: [matrix, matrix], build: (g, a, b) => g.exp(g.concat([a!, b!], 0)) }],
  Where: [{
    shapes: [matrix, [4]],
    build: (g, a, b) =>
      g.where(g.greater(g.constant(Float32Array.of(1, -1, 1, -1), [4]), g.scalar(0)), a!, b!),
  }],
  ReduceSum: [{ shapes: [[2, 3, 4]], build: (g, a) => g.exp(g.sum(a!, [1])) }],
  ReduceMean: [{ shapes: [[2, 3, 4]], build: (g, a) => g.exp(g.mean(a!, [0, 2], true)) }],
  ReduceSumSquare: [{ shapes: [matrix], build: (g, a) => g.sumOfSquares(a!, [1]) }],
  MatMul: [
    { shapes: [[2, 3, 4], [2, 4, 5]], build: (g, a, b) => g.matmul(a!, b!) },
    { shapes: [[2, 3, 4], [4, 5]], build: (g, a, b) => g.matmul(a!, b!) },
  ],
  FusedMatMul: [
    {
      shapes: [[2, 3, 4], [2, 5, 4]],
      build: (g, a, b) => g.matmul(a!, b!, { transB: true, alpha: 0.5 }),
    },
    { shapes: [[2, 4, 3], [2, 4, 5]], build: (g, a, b) => g.matmul(a!, b!, { transA: true }) },
    {
      shapes: [[4, 3], [5, 4]],
      build: (g, a, b) => g.matmul(a!, b!, { transA: true, transB: true }),
    },
  ],
  Gemm: [
    { shapes: [[3, 4], [4, 5], [5]], build: (g, a, b, c) => g.gemm(a!, b!, c!) },
    { shapes: [[4, 3], [4, 5]], build: (g, a, b) => g.gemm(a!, b!, undefined, { transA: true }) },
    {
      shapes: [[3, 4], [5, 4]],
      build: (g, a, b) => g.gemm(a!, b!, undefined, { transB: true, alpha: 2 }),
    },
    {
      shapes: [[4, 3], [5, 4], [3, 1]],
      build: (g, a, b, c) => g.gemm(a!, b!, c!, { transA: true, transB: true }),
    },
  ],
  Softmax: [{ shapes: [matrix], build: (g, a) => g.softmax(a!) }, {
    shapes: [matrix],
    build: (g, a) => g.softmax(a!, 0),
  }],
  LayerNormalization: [{
    shapes: [[3, 8], [8], [8]],
    build: (g, x, weight, bias) => g.layerNorm(x!, weight!, bias!),
  }],
  Gather: [{
    shapes: [[5, 3]],
    build: (g, table) => g.exp(g.gather(table!, indices(g, 4, 1, 4, 0))),
  }],
  CrossEntropy: [{
    shapes: [[3, 5]],
    build: (g, logits) => g.crossEntropy(logits!, indices(g, 2, 0, 4)),
  }],
  ...WINDOW_CASES,
};

for (const op of Object.keys(GRADIENTS)) {
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
  const [y] = g.node("Reciprocal", [x], [[3]]);
  assert.throws(
    () => addGradients(g, [[y!, g.input("dy", [3])]], [x]),
    { name: "TypeError", message: /received Reciprocal/ },
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
