/** Composed operations, shapes of results, and refusals of arguments. */

import assert from "node:assert/strict";
import { SIGNATURES } from "../../../kernels/ops/graph.ts";
import { METHODS } from "../../../kernels/ops/table.ts";
import { addGradients, Graph, type Value } from "../../../kernels/mod.ts";
import { elementCount } from "../../../kernels/graph/shapes.ts";
import { computed } from "./computed.ts";
import { assertRefused } from "./refused.ts";

const count = (n: number) => Array.from({ length: n }, (_, i) => i);

type Made = readonly [
  shape: readonly number[],
  build: (g: Graph, x: Value) => Value,
  values: readonly number[],
  result?: readonly number[],
];

const cut = (start: number, end: number, step: number, ...values: readonly number[]): Made => [
  [6],
  (g, x) => g.slice(x, [start], [end], [0], [step]),
  values,
];
const triangle = (side: "lower" | "upper", diagonal: number, ...values: number[]): Made => [
  [3, 3],
  (g, x) => g.trilu(x, side, diagonal),
  values,
];
const oneHot = (axis: number, result: readonly number[], ...values: number[]): Made => [
  [2],
  (g, x) => g.oneHot(g.cast(x, "i32"), 3, { axis, on: 5, off: -1 }),
  values,
  result,
];

const resized = (
  sizes: readonly number[],
  options: Parameters<Graph["resize"]>[2],
  ...values: number[]
): Made => [[1, 1, 4], (g, x) => g.resize(x, sizes, options), values];
const nearest = (nearest: "floor" | "ceil" | "round_prefer_floor" | "round_prefer_ceil") =>
  ({ coordinates: "asymmetric", nearest }) as const;
const conv = (pads: "SAME_UPPER" | "SAME_LOWER", ...values: number[]): Made => [
  [1, 1, 4],
  (g, x) => g.conv(x, g.constant(Float32Array.of(1, 1), [1, 1, 2]), undefined, { pads }),
  values,
];
const pairs = (g: Graph, ...values: number[]) =>
  g.constant(Int32Array.from(values), [2, values.length / 2], "i32");

/** Results for an input that counts from 0. */
const MADE: Readonly<Record<string, readonly Made[]>> = {
  "a cut takes what Python's slices take": [
    cut(1, 4, 1, 1, 2, 3),
    cut(-2, 100, 1, 4, 5),
    cut(0, 6, 4, 0, 4),
    cut(-1, -100, -2, 5, 3, 1),
    cut(4, 0, -3, 4, 1),
    cut(100, 2, -1, 5, 4, 3),
    [[2, 3], (g, x) => g.slice(x, [0, -1], [1, 9]), [2], [1, 1]],
  ],
  "a tiled tensor repeats along each axis": [
    [
      [2, 2],
      (g, x) => g.tile(x, [2, 3]),
      [0, 1, 2, 3].flatMap((_, row) => row % 2 ? [2, 3, 2, 3, 2, 3] : [0, 1, 0, 1, 0, 1]),
      [4, 6],
    ],
  ],
  "a triangle keeps its side of a diagonal, of numbers and of bools": [
    triangle("lower", 0, 0, 0, 0, 3, 4, 0, 6, 7, 8),
    triangle("upper", 1, 0, 1, 2, 0, 0, 5, 0, 0, 0),
    triangle("lower", -1, 0, 0, 0, 3, 0, 0, 6, 7, 0),
    [[2, 2], (g, x) => g.trilu(g.less(x, g.scalar(9)), "lower"), [1, 0, 1, 1]],
  ],
  "channels become blocks of places in both of ONNX's orders": [
    [[1, 8, 1, 1], (g, x) => g.depthToSpace(x, 2, "CRD"), count(8)],
    [[1, 8, 1, 1], (g, x) => g.depthToSpace(x, 2, "DCR"), [0, 2, 4, 6, 1, 3, 5, 7]],
  ],
  "one-hot values are at their index along any axis": [
    oneHot(-1, [2, 3], 5, -1, -1, -1, 5, -1),
    oneHot(0, [3, 2], 5, -1, -1, 5, -1, -1),
  ],
  "the largest of an axis is found at its first place": [
    [[2, 3], (g, x) => g.argMax(g.mod(g.add(x, g.scalar(1)), g.scalar(3)), 1, false), [1, 1], [2]],
    [[2, 3], (g, x) => g.argMax(g.mul(x, g.scalar(0)), 0), [0, 0, 0], [1, 3]],
  ],
  "a product of no elements is 1": [[[0, 3], (g, x) => g.prod(x, [0]), [1, 1, 1]]],
  "the logarithm of a sum of infinities is infinite": [
    [[2], (g, x) => g.logSumExp(g.div(g.scalar(1), x)), [Infinity]],
    [[1], (g, x) => g.logSumExp(g.log(x)), [-Infinity]],
  ],
  "indices below 0 count from the end": [
    [[5], (g, x) => g.gather(x, pairs(g, -1, 0, -5, 1)), [4, 0, 0, 1]],
    [[2, 3], (g, x) => g.gatherND(x, pairs(g, 1, -1, -2, 0)), [5, 0]],
    [[2, 3], (g, x) => g.gatherElements(x, pairs(g, -1, 0, 1, -2), 1), [2, 0, 4, 4]],
  ],
  "an image is resized as ONNX says, by the nearest element or by lines": [
    resized([8], nearest("round_prefer_floor"), 0, 0, 1, 1, 2, 2, 3, 3),
    resized([8], nearest("round_prefer_ceil"), 0, 1, 1, 2, 2, 3, 3, 3),
    resized([3], nearest("round_prefer_ceil"), 0, 1, 3),
    resized([3], nearest("ceil"), 0, 2, 3),
    resized([3], nearest("floor"), 0, 1, 2),
    resized([1], { mode: "linear" }, 1.5),
    resized([1], { mode: "linear", coordinates: "pytorch_half_pixel" }, 0),
    resized([1], { mode: "linear", coordinates: "align_corners" }, 0),
  ],
  "padding to the same size has its odd element behind or in front": [
    conv("SAME_UPPER", 1, 3, 5, 3),
    conv("SAME_LOWER", 0, 1, 3, 5),
  ],
  "bools are chosen as numbers are": [
    [[4], (g, x) => {
      const [one, two, three] = [1, 2, 3].map((value) => g.scalar(value)) as [Value, Value, Value];
      return g.where(g.less(x, two), g.equal(x, one), g.greaterOrEqual(x, three));
    }, [0, 1, 0, 1]],
  ],
};

for (const [title, cases] of Object.entries(MADE)) {
  Deno.test(title, async () => {
    for (const [shape, build, values, result] of cases) {
      const g = new Graph(), y = build(g, g.input("x", shape));
      const found = await computed(g, y, { x: count(elementCount(shape)) });
      assert.deepEqual(found, values, `${build}`);
      if (result) assert.deepEqual(y.shape, result);
    }
  });
}

/** Results of operations on a value and a number, for 0, 1 and 2. */
const BESIDE_NUMBERS: Readonly<Record<string, readonly number[]>> = {
  "add 2": [2, 3, 4],
  "sub 2": [-2, -1, 0],
  "2 sub": [2, 1, 0],
  "mul 2": [0, 2, 4],
  "div 2": [0, 0.5, 1],
  "pow 2": [0, 1, 4],
  "2 pow": [1, 2, 4],
  "mod 2": [0, 1, 0],
  "minimum 1": [0, 1, 1],
  "1 maximum": [1, 1, 2],
  "equal 1": [0, 1, 0],
  "greater 1": [0, 0, 1],
  "1 greaterOrEqual": [1, 1, 0],
  "less 1": [1, 0, 0],
  "lessOrEqual Infinity": [1, 1, 1],
  "prelu 0": [0, 1, 2],
};

Deno.test("a number becomes a constant with the type of the other operand", async () => {
  for (const dtype of ["f32", "i32", "i64"] as const) {
    for (const [text, values] of Object.entries(BESIDE_NUMBERS)) {
      const words = text.split(" "), at = words.findIndex((word) => !Number.isNaN(Number(word)));
      const method = words[1 - at] as "add", g = new Graph(), x = g.input("x", [3], dtype);
      if (dtype !== "f32" && /div|pow|Infinity|prelu/.test(text)) continue;
      const number = Number(words[at]), y = at === 0 ? g[method](number, x) : g[method](x, number);
      assert.deepEqual(await computed(g, y, { x: [0, 1, 2] }), values, `${text} of ${dtype}`);
      assert.equal(g.nodes[0]!.inputs[1 - at]!.dtype, dtype);
    }
  }
  const g = new Graph(), x = g.input("x", [3]);
  const chosen = g.where(g.where(g.less(x, 1), g.not(g.less(x, 1)), g.less(x, 9)), x, -1);
  assert.deepEqual(await computed(g, chosen, { x: [0, 1, 2] }), [-1, 1, 2]);
  assert.deepEqual(await computed(g, g.where(g.less(x, 1), 1, 0), { x: [0, 1, 2] }), [1, 0, 0]);
});

Deno.test("reshapes to an open size and to a matrix have the gradient of the tensor", async () => {
  const cases: Readonly<Record<string, (g: Graph, x: Value) => Value>> = {
    "2,6": (g, x) => g.reshape(x, [2, -1]),
    "12": (g, x) => g.reshape(x, [-1]),
    "3,1,4": (g, x) => g.reshape(x, [3, 1, -1]),
    "2,3,2": (g, x) => g.reshape(x, [-1, 3, 2]),
    "2,6 ": (g, x) => g.flatten(x),
    "1,12": (g, x) => g.flatten(x, 0),
    "6,2": (g, x) => g.flatten(x, -1),
    "12,1": (g, x) => g.flatten(x, 3),
  };
  for (const [shape, build] of Object.entries(cases)) {
    const g = new Graph(), x = g.input("x", [2, 3, 2]), y = build(g, x);
    assert.equal(`${y.shape}`, shape.trim());
    const [dx] = addGradients(g, [[y, g.mul(y, 2)]], [x]), given = { x: count(12) };
    assert.deepEqual(await computed(g, y, given), count(12));
    assert.deepEqual(dx!.shape, x.shape);
    assert.deepEqual(await computed(g, dx!, given), count(12).map((value) => 2 * value));
  }
});

Deno.test("a cut of all elements returns the tensor itself", () => {
  const g = new Graph(), x = g.input("x", [2]);
  assert.equal(g.slice(x, [0], [2]), x);
});

Deno.test("a product has a gradient if one of its elements is zero", async () => {
  const g = new Graph(), x = g.input("x", [2, 5]), y = g.prod(x, [1]);
  const [dx] = addGradients(g, [[y, g.constant(Float32Array.of(1, 1), [2])]], [x]);
  const given = { x: [0, 2, 3, 4, 5, 1, 2, 3, 4, 5] };
  assert.deepEqual(await computed(g, y, given), [0, 120]);
  assert.deepEqual(await computed(g, dx!, given), [120, 0, 0, 0, 0, 120, 60, 40, 30, 24]);
});

/** The sum of products that an equation names, term by term: `take` reads the operands. */
function sumOfProducts(equation: string, shapes: readonly (readonly number[])[], take: Take) {
  const [left, right] = equation.split("->") as [string, string], sides = left.split(",");
  const axes = sides.flatMap((side, k) =>
    [...side].map((axis, i) => [axis, shapes[k]![i]!] as const)
  );
  const sizes = new Map(axes);
  const placeOf = (axes: string, at: Places) =>
    [...axes].reduce((place, axis) => place * sizes.get(axis)! + at[axis]!, 0);
  const result: number[] = [];
  const places = [...sizes].reduce<Places[]>(
    (all, [axis, size]) => all.flatMap((at) => count(size).map((i) => ({ ...at, [axis]: i }))),
    [{}],
  );
  for (const at of places) {
    const product = sides.reduce((value, side, k) => value * take(k, placeOf(side, at)), 1);
    const place = placeOf(right, at);
    result[place] = (result[place] ?? 0) + product;
  }
  return result;
}

type Take = (operand: number, place: number) => number;
type Places = Readonly<Record<string, number>>;

Deno.test("sums of products by named axes have the terms of their equation", async () => {
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
    const take: Take = (operand, place) => (place * 7 + shapes[operand]!.length) % 5 - 2;
    const operands = shapes.map((shape, k) => {
      const data = Float32Array.from(count(elementCount(shape)), (place) => take(k, place));
      return g.constant(data, shape);
    });
    const y = g.einsum(equation, operands), wanted = sumOfProducts(equation, shapes, take);
    assert.deepEqual(await computed(g, y), wanted, equation);
  }
  const g = new Graph(), a = g.input("a", [2, 3]);
  assert.deepEqual(g.einsum("ji", [a]).shape, [3, 2]);
  assert.deepEqual(g.einsum("ij,jk", [a, g.input("b", [3, 5])]).shape, [2, 5]);
});

Deno.test("windows are counted as PyTorch and ONNX do", () => {
  const same = { pads: "SAME_UPPER", strides: 2 } as const;
  // A window that would begin in the padding behind is none.
  const padded = { strides: 3, pads: 1, ceilMode: true };
  const shapes: readonly [(g: Graph, x: Value, w: Value, back: Value) => Value, number[]][] = [
    [(g, x, w) => g.conv(x, w), [2, 4, 5, 7]],
    [(g, x, w) => g.conv(x, w, undefined, { pads: [1, 0, 2, 1] }), [2, 4, 8, 8]],
    [(g, x, w) => g.conv(x, w, undefined, { dilations: [3, 1] }), [2, 4, 1, 7]],
    [(g, x, w) => g.conv(x, w, undefined, same), [2, 4, 4, 4]],
    [(g, x) => g.maxPool(x, 2, { strides: 2 }), [2, 3, 3, 4]],
    [(g, x) => g.maxPool(x, 2, { strides: 2, ceilMode: true }), [2, 3, 4, 4]],
    [(g) => g.maxPool(g.input("small", [1, 1, 5, 5]), 2, padded), [1, 1, 2, 2]],
    [(g, x, _, back) => g.convTranspose(x, back, undefined, same), [2, 4, 14, 16]],
    [
      (g, x, _, t) => g.convTranspose(x, t, undefined, { strides: 2, pads: 1, outputPadding: 1 }),
      [2, 4, 14, 16],
    ],
  ];
  for (const [build, shape] of shapes) {
    const g = new Graph(), x = g.input("x", [2, 3, 7, 8]);
    const y = build(g, x, g.input("w", [4, 3, 3, 2]), g.input("t", [3, 4, 3, 3]));
    assert.deepEqual(y.shape, shape, `${build}`);
  }
});

Deno.test("all arguments of all methods of a graph are declared", () => {
  for (const [method, add] of Object.entries(METHODS)) {
    const names = SIGNATURES[method]?.split(", ").map((one) => one.match(/^\w+/)![0]);
    assert.ok(names, method);
    const source = `${add}`, written = names.filter((name) => name !== "options");
    if (source.startsWith("(g, ...")) continue; // made of its name
    assert.match(source, RegExp(`^\\(g, ${written.join("\\b[^]*\\b")}\\b`), method);
  }
  const others = Object.keys(SIGNATURES).filter((method) => !Object.hasOwn(METHODS, method));
  assert.deepEqual(others, ["input", "constant", "scalar", "int64", "node"]);
});

Deno.test("each argument of each method is checked, and named in the error", () => {
  const other = new Graph().input("theirs", [2, 3]), texts = ["name", "op", "equation"];
  for (const [method, signature] of Object.entries(SIGNATURES)) {
    const parts = signature.split(", ").map((one) => one.match(/^(\w+)(\??)/)!.slice(1));
    for (const [i, [name, mark]] of parts.entries()) {
      const g = new Graph(), x = g.input("x", [2, 3]), is = g.less(x, 1);
      const indices = g.input("indices", [2], "i32");
      const right: Record<string, unknown> = {
        ...{ condition: is, p: is, q: is, indices, columns: indices, values: [x], axis: 0 },
        ...{
          starts: [0],
          ends: [9],
          block: 1,
          size: 3,
          groups: 1,
          kernel: 1,
          sizes: [1],
          pads: [1],
        },
        ...{ value: 1, name: "n", op: "Neg", which: "lower", equation: "ij", shape: [2, 3] },
        data: Float32Array.of(1),
      };
      const before = parts.slice(0, i).map(([name, mark]) => mark ? undefined : right[name!] ?? x);
      const wrong = [mark ? null : undefined, NaN, { a: 1 }, [NaN], other, [other], "of none"];
      for (const one of wrong.filter((one) => one !== "of none" || !texts.includes(name!))) {
        const call = Reflect.get(g, method) as (...given: unknown[]) => unknown;
        const message = RegExp(`^Cannot call g\\.${method}: ${name}(\\.\\w+)? must be `);
        assert.throws(() => call.apply(g, [...before, one]), { message }, `${method} ${name} ${i}`);
      }
    }
  }
});

const FAR = { strides: 2, outputPadding: 2 };

Deno.test("operands that do not fit are refused when the operation is added", () => {
  const refused: readonly ((g: Graph, x: Value, w: Value, b: Value) => unknown)[] = [
    (g, x, w) => g.conv(x, w, undefined, { groups: 2 }),
    (g, x, w, b) => g.conv(x, w, b),
    (g, x, w) => g.conv(x, w, undefined, { strides: 0 }),
    (g, x, w) => g.conv(x, w, undefined, { pads: [1, 2, 3] }),
    (g, x, w) => g.conv(x, w, undefined, { dilations: 9 }),
    (g, x) => g.conv(g.reshape(x, [2, 3, 7, 2, 4]), x),
    (g, x) => g.convTranspose(x, x),
    (g, x, w) => g.convTranspose(g.split(g.concat([x, x], 1), 1, 6)[0]!, w),
    (g, x) => g.convTranspose(x, g.input("t", [3, 2, 2, 2]), undefined, FAR),
    (g, x) => g.maxPool(x, 2, { pads: 2 }),
    (g, x) => g.maxPool(x, 9),
    (g, x) => g.maxPool(g.reshape(x, [6, 56]), 2),
    (g, x, _, b) => g.groupNorm(x, 2, b, b),
    (g, x, w, b) => g.groupNorm(x, 3, b, g.reshape(w, [72])),
    (g, x) => g.upsample(x, 1.5),
    (g, x) => g.resize(x, [0, 4]),
    (g, x) => g.pad(x, [1, 1]),
    (g, x) => g.pad(x, [0, 0, 7, 0, 0, 0, 0, 0], "reflect"),
    (g, x, w) => g.concat([x, w], 1),
    (g, x) => g.split(x, 1, [1, 1])[0]!,
    (g, x) => g.split(x, 1, 2)[0]!,
    (g, x) => g.slice(x, [0], [1], [4]),
    (g, x) => g.reshape(x, [2, 3, 7, 7]),
    (g, x) => g.expand(x, [7, 8]),
    (g, x) => g.transpose(x, [0, 1, 2, 2]),
    (g, x, w) => g.matmul(x, w),
    (g, x) => g.crossEntropy(g.reshape(x, [6, 56]), g.input("i", [5], "i32")),
    (g) => g.constant(Float32Array.of(1), [2]),
    (g, x) => g.mul(x, undefined as never),
    (g, x) => g.mul(x, "2" as never),
    (g, x) => g.add(NaN, x),
    (g, x) => g.add(x, new Graph().input("theirs", [2])),
    (g, x) => g.add(x, g.cast(x, "i32")),
    (g, x) => g.add(g.cast(x, "i32"), 0.5),
    (g, x) => g.mul(g.cast(x, "i64"), 2 ** 63),
    (g, x) => g.mul(x, 1e300),
    (g, x) => g.where(x, x, 0),
    (g, x) => g.exp(g.cast(x, "i32")),
    (g, x) => g.sum(x, [4]),
    (g, x) => g.sum(x, 1 as never),
    (g, x) => g.softmax(x, 0.5),
    (g, x) => g.reshape(x, [2, -1, -1]),
    (g, x) => g.reshape(x, [5, -1]),
    (g, x) => g.reshape(x, [2, 0.5]),
    (g, x) => g.flatten(x, 5),
    (g, x, w) => g.conv(x, w, undefined, { stride: 2 } as never),
    (g, x, w) => g.matmul(x, w, { alpha: NaN }),
    (g) => g.concat([], 0),
    (g) => g.input("x", [2, -1]),
    (g, x) => g.gather(x, g.constant(Int32Array.of(-4), [1], "i32"), 1),
    (g, x) => g.gatherND(x, g.constant(Int32Array.of(0, 3), [1, 2], "i32")),
    (g, x) => g.gatherND(x, g.input("i", [2, 5], "i32")),
    (g, x) => g.gatherElements(x, g.input("i", [2, 3], "i32"), 0),
    (g, x) => g.gatherElements(x, g.input("i", [2, 4, 7, 8], "i32"), 0),
    (g, x) => g.scatterElements(x, g.input("i", [2, 3, 7, 9], "i32"), x, 0),
    (g, x, w) => g.scatterElements(x, g.input("i", [1, 3, 7, 8], "i32"), w, 0),
    (g, x, w) => g.scatterAdd(x, g.input("i", [4], "i32"), w),
    (g, x) => g.scatterAddColumns(g.reshape(x, [6, 56]), g.input("i", [6], "i32"), g.sum(x)),
    (g, x, _, b) => g.layerNorm(x, b, b),
    (g, x, _, b) => g.rmsNorm(x, b),
    (g, x) => g.rmsNorm(g.sum(x), g.scalar(1)),
    (g, _, __, b) => g.prelu(b, g.input("slope", [2, 3])),
    (g, x) => g.concat([x, g.cast(x, "i32")], 0),
    (g, x) => g.split(x, 1, [4, -1])[0]!,
    (g, x) => g.split(x, 1, -3)[0]!,
    (g, _, __, b) => g.upsample(b, 2),
    (g, x, w) => g.convTranspose(x, g.transpose(w, [1, 0, 2, 3]), undefined, { pads: 9 }),
    (g) =>
      g.convTranspose(g.input("x1", [1, 1, 2]), g.input("t", [1, 1, 1]), undefined, { pads: 1 }),
    (g, x) => g.maxPool(x, 2, { strides: 4, pads: 1, dilations: 2, ceilMode: true }),
    (g) => g.constant(Float32Array.of(1), [1], "i32"),
    ...["ii->i", "ij,jk->ik", "ijk->i", "ij->k", "...j->j"].map((equation) => (g: Graph) =>
      g.einsum(equation, [g.input("a", [2, 3])])
    ),
  ];
  return assertRefused(
    "operands",
    refused.map((build) => {
      const g = new Graph(), w = g.input("w", [4, 3, 3, 2]), b = g.input("b", [3]);
      return [build, () => build(g, g.input("x", [2, 3, 7, 8]), w, b)];
    }),
  );
});
