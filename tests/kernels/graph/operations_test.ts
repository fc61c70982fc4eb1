/** Operations that are made of others, and the shapes and forms of what is written. */

import assert from "node:assert/strict";
import { addGradients, Graph, type Value } from "../../../kernels/mod.ts";
import { computed } from "./computed.ts";

const count = (n: number) => Array.from({ length: n }, (_, i) => i);

/** A graph with one input that counts from 0, and what is made of it. */
async function made(
  shape: readonly number[],
  build: (g: Graph, x: Value) => Value,
): Promise<{ shape: readonly number[]; values: number[] }> {
  const g = new Graph(), x = g.input("x", shape), y = build(g, x);
  return {
    shape: y.shape,
    values: await computed(g, y, { x: count(shape.reduce((a, b) => a * b, 1)) }),
  };
}

Deno.test("a cut takes what Python's slices take", async () => {
  const cut = async (start: number, end: number, step: number) =>
    (await made([6], (g, x) => g.cut(x, [start], [end], [0], [step]))).values;
  assert.deepEqual(await cut(1, 4, 1), [1, 2, 3]);
  assert.deepEqual(await cut(-2, 100, 1), [4, 5]);
  assert.deepEqual(await cut(0, 6, 4), [0, 4]);
  assert.deepEqual(await cut(-1, -100, -2), [5, 3, 1]);
  assert.deepEqual(await cut(4, 0, -3), [4, 1]);
  assert.deepEqual(await cut(100, 2, -1), [5, 4, 3]);
  assert.deepEqual(await made([2, 3], (g, x) => g.cut(x, [0, -1], [1, 9])), {
    shape: [1, 1],
    values: [2],
  });
  const g = new Graph(), x = g.input("x", [2]);
  assert.equal(g.cut(x, [0], [2]), x);
});

Deno.test("what is tiled stands there again along each axis", async () => {
  const rows = [0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3];
  assert.deepEqual(await made([2, 2], (g, x) => g.tile(x, [2, 3])), {
    shape: [4, 6],
    values: [...rows, ...rows],
  });
});

Deno.test("a triangle keeps its side of a diagonal, of numbers and of bools", async () => {
  const triangle = async (...rest: ["lower" | "upper", number?]) =>
    (await made([3, 3], (g, x) => g.triangle(x, ...rest))).values;
  assert.deepEqual(await triangle("lower"), [0, 0, 0, 3, 4, 0, 6, 7, 8]);
  assert.deepEqual(await triangle("upper", 1), [0, 1, 2, 0, 0, 5, 0, 0, 0]);
  assert.deepEqual(await triangle("lower", -1), [0, 0, 0, 3, 0, 0, 6, 7, 0]);
  const ofBools = await made([2, 2], (g, x) => g.triangle(g.less(x, g.scalar(9)), "lower"));
  assert.deepEqual(ofBools.values, [1, 0, 1, 1]);
});

Deno.test("channels become blocks of places in both of ONNX's orders", async () => {
  const values = async (mode: "CRD" | "DCR") =>
    (await made([1, 8, 1, 1], (g, x) => g.depthToSpace(x, 2, mode))).values;
  assert.deepEqual(await values("CRD"), [0, 1, 2, 3, 4, 5, 6, 7]);
  assert.deepEqual(await values("DCR"), [0, 2, 4, 6, 1, 3, 5, 7]);
});

Deno.test("a hot one stands at its index along any axis", async () => {
  const hot = (axis: number) =>
    made([2], (g, x) => g.oneHot(g.cast(x, "i32"), 3, { axis, on: 5, off: -1 }));
  assert.deepEqual(await hot(-1), { shape: [2, 3], values: [5, -1, -1, -1, 5, -1] });
  assert.deepEqual(await hot(0), { shape: [3, 2], values: [5, -1, -1, 5, -1, -1] });
});

Deno.test("a product has its gradient where one of its elements is zero", async () => {
  const g = new Graph(), x = g.input("x", [2, 5]), y = g.product(x, [1]);
  const [dx] = addGradients(g, [[y, g.constant(Float32Array.of(1, 1), [2])]], [x]);
  const given = { x: [0, 2, 3, 4, 5, 1, 2, 3, 4, 5] };
  assert.deepEqual(await computed(g, y, given), [0, 120]);
  assert.deepEqual(await computed(g, dx!, given), [120, 0, 0, 0, 0, 120, 60, 40, 30, 24]);
});

/** The sum of products that an equation names, term by term. */
function sumOfProducts(
  equation: string,
  operands: readonly { shape: readonly number[]; values: readonly number[] }[],
): number[] {
  const [left, right] = equation.split("->") as [string, string], sides = left.split(",");
  const names = [...new Set([...right, ...left.replaceAll(",", "")])];
  const sizeOf = (axis: string) => {
    const i = sides.findIndex((side) => side.includes(axis));
    return operands[i]!.shape[sides[i]!.indexOf(axis)]!;
  };
  const place = (axes: string, at: ReadonlyMap<string, number>) =>
    [...axes].reduce((sum, axis) => sum * sizeOf(axis) + at.get(axis)!, 0);
  const result = Array([...right].reduce((n, axis) => n * sizeOf(axis), 1)).fill(0);
  for (const i of count(names.reduce((n, axis) => n * sizeOf(axis), 1))) {
    let rest = i;
    const at = new Map(names.map((axis) => {
      const index = rest % sizeOf(axis);
      rest = Math.floor(rest / sizeOf(axis));
      return [axis, index];
    }));
    result[place(right, at)] += operands.reduce(
      (product, { values }, k) => product * values[place(sides[k]!, at)]!,
      1,
    );
  }
  return result;
}

Deno.test("sums of products by named axes are what they say, term by term", async () => {
  const equations: Record<string, readonly (readonly number[])[]> = {
    "ij,jk->ik": [[2, 3], [3, 4]],
    "bhqd,bhkd->bhqk": [[2, 1, 3, 4], [2, 1, 2, 4]],
    "bqhd,bkhd->bhqk": [[2, 3, 2, 4], [2, 5, 2, 4]],
    "ijk->ki": [[2, 3, 4]],
    "ij,ij->": [[2, 3], [2, 3]],
    "i,j->ji": [[2], [3]],
    "ij,kj,k->i": [[2, 3], [4, 3], [4]],
    "abc,bd->adc": [[2, 3, 2], [3, 4]],
  };
  for (const [equation, shapes] of Object.entries(equations)) {
    const g = new Graph();
    const operands = shapes.map((shape) => {
      const values = count(shape.reduce((a, b) => a * b)).map((i) =>
        (i * 7 + shape.length) % 5 - 2
      );
      return { shape, values, value: g.constant(Float32Array.from(values), shape) };
    });
    const y = g.einsum(equation, operands.map(({ value }) => value));
    assert.deepEqual(await computed(g, y), sumOfProducts(equation, operands), equation);
  }
  const g = new Graph(), a = g.input("a", [2, 3]);
  assert.deepEqual(g.einsum("ji", [a]).shape, [3, 2]);
  assert.deepEqual(g.einsum("ij,jk", [a, g.input("b", [3, 5])]).shape, [2, 5]);
  for (const equation of ["ii->i", "ij,jk->ik", "ijk->i", "ij->k", "...j->j"]) {
    assert.throws(() => g.einsum(equation, [a]), SyntaxError, equation);
  }
});

Deno.test("the largest of an axis is found at its first place", async () => {
  const found = await made(
    [2, 3],
    (g, x) => g.argMax(g.mod(g.add(x, g.scalar(1)), g.scalar(3)), 1, false),
  );
  assert.deepEqual(found, { shape: [2], values: [1, 1] });
  const equal = await made([2, 3], (g, x) => g.argMax(g.mul(x, g.scalar(0)), 0));
  assert.deepEqual(equal, { shape: [1, 3], values: [0, 0, 0] });
});

Deno.test("bools are chosen as numbers are", async () => {
  const { values } = await made(
    [4],
    (g, x) =>
      g.where(g.less(x, g.scalar(2)), g.equal(x, g.scalar(1)), g.greaterOrEqual(x, g.scalar(3))),
  );
  assert.deepEqual(values, [0, 1, 0, 1]);
});

Deno.test("what cannot be cut, joined or split is refused where the graph is built", () => {
  const g = new Graph(), x = g.input("x", [2, 3]);
  assert.throws(() => g.concat([x, g.input("y", [3, 4])], 1), /all but axis 1 must be equal/);
  assert.throws(() => g.split(x, 1, [1, 1]), /must add up to axis 1/);
  assert.throws(() => g.cut(x, [0], [1], [2]), /Cannot use axis/);
});
