/** What a file computes of shapes and constants is known before a run. */

import assert from "node:assert/strict";
import { staticInputs } from "../../../kernels/import/dimensions.ts";
import { readOnnx } from "../../../kernels/import/file/onnx_graph.ts";
import { planFile } from "../../../kernels/import/plan.ts";
import { int64, numbers, onnxModel, type TestModel, type TestNode } from "./onnx_model.ts";

const node = (
  op: string,
  inputs: readonly string[],
  output: string,
  attributes: TestNode["attributes"] = {},
): TestNode => ({ op, inputs, outputs: [output], attributes });

/** The steps that are left for a run, the constants, and the shape of `y`. */
function planned(nodes: readonly TestNode[], initializers: TestModel["initializers"] = {}) {
  const file = readOnnx(
    onnxModel({
      inputs: { x: ["n", 4, 6] },
      initializers: { ...initializers, w: { data: numbers([6]) } },
      nodes,
      outputs: { y: "f32" },
    }),
    {},
  );
  const inputs = staticInputs(file.inputs, { n: 2 });
  const { steps, constants, valueOf } = planFile({ file, inputs, isFrozen: () => false });
  const numbersOf = (name: string) => Array.from(constants.get(name)!.data, Number);
  return { steps: steps.map((step) => step.node.op), numbersOf, shape: valueOf("y")?.shape };
}

Deno.test("a shape that is taken apart and put together again costs nothing", () => {
  const { steps, numbersOf, shape } = planned([
    node("Shape", ["x"], "s"),
    node("Gather", ["s", "zero"], "n"),
    node("Unsqueeze", ["n", "zeros"], "n1"),
    node("Concat", ["n1", "rest"], "to", { axis: 0 }),
    node("Reshape", ["x", "to"], "flat"),
    node("Mul", ["flat", "ones"], "y"),
  ], {
    zero: { data: BigInt64Array.of(0n), shape: [] },
    zeros: int64(0),
    rest: int64(-1),
    ones: { data: new Float32Array(24).fill(1) },
  });
  assert.deepEqual(steps, ["Reshape", "Mul"]);
  assert.deepEqual([numbersOf("to"), shape], [[2, -1], [2, 24]]);
});

Deno.test("parts of a shape, sizes, ranges and comparisons are constants", () => {
  const { steps, numbersOf } = planned([
    node("Shape", ["x"], "s", { start: -2 }),
    node("Size", ["x"], "size"),
    node("Range", ["zero", "four", "one"], "places"),
    node("GreaterOrEqual", ["places", "one"], "later"),
    node("Cast", ["later"], "mask", { to: 1 }),
    node("Slice", ["x", "one1", "two1", "one1"], "row"),
    node("Mul", ["row", "w"], "y"),
  ], {
    zero: { data: BigInt64Array.of(0n), shape: [] },
    one: { data: BigInt64Array.of(1n), shape: [] },
    four: { data: BigInt64Array.of(4n), shape: [] },
    one1: int64(1),
    two1: int64(2),
  });
  assert.deepEqual(steps, ["Slice", "Mul"]);
  assert.deepEqual([numbersOf("s"), numbersOf("size")], [[4, 6], [48]]);
  assert.deepEqual([numbersOf("places"), numbersOf("mask")], [[0, 1, 2, 3], [0, 1, 1, 1]]);
});

Deno.test("the largest int64, which says to the end, stays it through other operations", () => {
  const { numbersOf, shape } = planned([
    node("Concat", ["end", "end"], "ends", { axis: 0 }),
    node("Slice", ["x", "from", "ends", "axes"], "y"),
  ], {
    end: { data: BigInt64Array.of(2n ** 63n - 1n) },
    from: int64(1, 2),
    axes: int64(1, 2),
  });
  assert.deepEqual(shape, [2, 3, 4]);
  assert.ok(numbersOf("ends").every((end) => end > 2 ** 62), `${numbersOf("ends")}`);
});

Deno.test("weights are not folded, nor is what is made of them", () => {
  const { steps } = planned([
    node("Unsqueeze", ["w", "zero"], "row"),
    node("Add", ["x", "row"], "y"),
  ], { zero: int64(0) });
  assert.deepEqual(steps, ["Unsqueeze", "Add"]);
});
