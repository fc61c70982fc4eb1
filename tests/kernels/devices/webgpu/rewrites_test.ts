/** Rewrites for the GPU compute what the model did: the reference judges, without a GPU. */

import assert from "node:assert/strict";
import { fromBinary } from "@bufbuild/protobuf";
import { openReference } from "../../../../kernels/devices/reference.ts";
import { prepareModel } from "../../../../kernels/devices/webgpu/prepare.ts";
import { Graph } from "../../../../kernels/ops/graph.ts";
import type { Value } from "../../../../kernels/graph/value.ts";
import { PORTS } from "../../../../kernels/compile/programs.ts";
import { ModelProtoSchema } from "../../../../kernels/onnx/onnx_pb.ts";
import { readSignature } from "../../../../kernels/onnx/signature.ts";
import { valueTypes } from "../../../../kernels/onnx/lower.ts";
import { modelOf, numbersOf, runModel, tensorOf, withDevice } from "../models.ts";
import { numbersFor, trainedModels } from "./preparing.ts";

const normOf = (numbers: readonly number[]) => Math.hypot(...numbers);

/** The largest difference of an output from the expected values, relative to the largest output. */
async function errorOf(model: Uint8Array, seed: number): Promise<number> {
  const compute = (bytes: Uint8Array) =>
    withDevice(
      openReference(),
      (device) => runModel(device, bytes, (input, i) => numbersFor(input, seed + i * 7919)),
    );
  const [wanted, received] = [await compute(model), await compute(prepareModel(model).bytes)];
  assert.deepEqual([...received.keys()], [...wanted.keys()]);
  const errors = [...wanted].map(([name, numbers]) =>
    normOf(numbers.map((x, i) => x - received.get(name)![i]!)) / (normOf(numbers) || 1)
  );
  return Math.max(...errors);
}

const HALF = 2 ** -11;

// The reference rounds each operation once. A rewrite that rounds some more times is off by a few of
// f32's 2^-24. In FP16 up to a dozen products one after the other round an operand and a result, each
// by HALF/√6 in the mean, independently: √24·HALF/√6 = 2·HALF. Four times that is allowed, as norms
// subtract means: what is left is smaller than what was rounded.
const BOUNDS = { fp32: 2 ** -21, fp16: 8 * HALF } as const;

const nodesOf = (bytes: Uint8Array) => fromBinary(ModelProtoSchema, bytes).graph!.node;

const PRODUCTS = ["MatMul", "FusedMatMul", "Gemm"];

const countOf = (bytes: Uint8Array, ...ops: string[]) =>
  nodesOf(bytes).filter(({ opType }) => ops.includes(opType!)).length;

/** The operations of a model that read f16, with repetitions. */
function halfOperations(bytes: Uint8Array): string[] {
  const { graph } = fromBinary(ModelProtoSchema, bytes);
  const types = valueTypes(graph!);
  const isHalf = (name: string) => types.get(name)?.dtype === "f16";
  return graph!.node.filter(({ input }) => input.some(isHalf)).map(({ opType }) => opType!);
}

/** Operations that read f16 in a mixed model: products, their factors, and what only moves. */
const MOVED = ["Cast", "Concat", "Gather", "Reshape", "ScatterND", "Split", "Transpose", "Mul"];

/** The inputs over which training binds an output: accumulators, weights, moments. */
function wantedInput(output: string): string | undefined {
  const gradient = PORTS.gradient("");
  if (output.startsWith(gradient)) return PORTS.accumulator(output.slice(gradient.length));
  return /^(w|m\d)'/.test(output) ? output.replace("'", "") : undefined;
}

for (const precision of ["fp32", "fp16"] as const) {
  Deno.test(`every model of a training in ${precision} gives its results after the rewrites, without copies`, async () => {
    const models = await trainedModels([precision]);
    assert.ok(models.size > 20, `${models.size} models`);
    let count = 0;
    for (const [what, model] of models) {
      const error = await errorOf(model, 1);
      assert.ok(error <= BOUNDS[precision], `${what}: off by ${error}`);
      const { bytes, usesHalf, inPlace } = prepareModel(model), halves = halfOperations(bytes);
      const products = halves.filter((op) => PRODUCTS.includes(op));
      assert.equal(usesHalf, precision === "fp16");
      assert.equal(products.length, usesHalf ? countOf(model, ...PRODUCTS) : 0, `${what} in f16`);
      const others = halves.filter((op) => !(usesHalf && [...PRODUCTS, ...MOVED].includes(op)));
      assert.deepEqual(others, [], `${what}: nothing else computes in f16`);
      const { inputs, outputs } = readSignature(model);
      for (const { name } of outputs) {
        const input = wantedInput(name);
        if (!inputs.some((one) => one.name === input)) continue;
        assert.ok(inPlace.get(name)!.has(input!), `${what}: ${name} over ${input}`);
        count++;
      }
    }
    assert.ok(count > 50, `${count} outputs over inputs`);
  });
}

/** Products of few elements and many terms, in all ways. */
const LONG: Readonly<Record<string, (g: Graph, terms: number) => Value>> = {
  gemm: (g, terms) => g.gemm(g.input("a", [3, terms]), g.input("b", [terms, 4])),
  "gemm, transposed": (g, terms) =>
    g.gemm(g.input("a", [terms, 3]), g.input("b", [4, terms]), g.input("sum", [3, 4]), {
      ...{ transA: true, transB: true, alpha: 0.5 },
    }),
  matmul: (g, terms) => g.matmul(g.input("a", [2, 3, terms]), g.input("b", [2, terms, 4])),
  "matmul, transposed": (g, terms) =>
    g.matmul(g.input("a", [2, terms, 3]), g.input("b", [2, terms, 4]), { transA: true, alpha: 2 }),
};

Deno.test("long products are added in parts in FP16, and an accumulator to their sum", async () => {
  const more = (g: Graph, terms: number) =>
    g.gemm(g.input("a", [220, terms]), g.input("b", [terms, 250]));
  for (const [what, build] of Object.entries({ ...LONG, "more elements": more })) {
    const g = new Graph(), y = build(g, 2500), model = modelOf(g, { y }, [...g.inputs, y]);
    assert.ok(await errorOf(model, 3) < 4 * HALF, what);
    const { graph } = fromBinary(ModelProtoSchema, prepareModel(model).bytes);
    const types = valueTypes(graph!);
    const products = graph!.node.filter(({ opType }) => PRODUCTS.includes(opType!));
    assert.ok(products.length >= 3, what);
    for (const { input } of products) {
      assert.ok(Math.max(...types.get(input[0]!)!.shape.slice(-2)) <= 1024, what);
    }
  }
});

Deno.test("a product of few elements and many terms is added in parts, in one order", async () => {
  for (const [what, build] of Object.entries(LONG)) {
    for (const [terms, parts] of [[508, 1], [511, 1], [512, 2], [1017, 3], [4096, 9], [4097, 1]]) {
      const g = new Graph(), y = build(g, terms!), model = modelOf(g, { y });
      const { bytes, inPlace } = prepareModel(model);
      assert.equal(countOf(bytes, ...PRODUCTS), parts, `${what} of ${terms} terms`);
      const names = nodesOf(bytes).flatMap(({ output }) => output);
      assert.equal(new Set(names).size, names.length, "each value is made once");
      assert.ok(await errorOf(model, 5) < BOUNDS.fp32, `${what} of ${terms} terms`);
      if (g.inputs.length === 3) assert.ok(inPlace.get("y")!.has("sum"));
    }
  }
  // Enough elements keep all workgroups busy: such a product is left whole.
  const g = new Graph(), many = g.gemm(g.input("a", [256, 512]), g.input("b", [512, 128]));
  assert.equal(countOf(prepareModel(modelOf(g, { y: many })).bytes, ...PRODUCTS), 1);
});

Deno.test("a convolution that is a product of many terms is written as one, in parts", async () => {
  const builds: Record<string, (g: Graph, terms: number) => Value> = {
    "of one element": (g, terms) =>
      g.conv(g.input("x", [2, terms, 1, 3]), g.input("w", [3, terms, 1, 1]), g.input("b", [3])),
    "as large as the image": (g, terms) =>
      g.conv(g.input("x", [2, terms / 4, 2, 2]), g.input("w", [3, terms / 4, 2, 2])),
  };
  for (const [what, build] of Object.entries(builds)) {
    for (const [terms, parts, convolutions] of [[508, 0, 1], [512, 2, 0], [1020, 3, 0]] as const) {
      const g = new Graph(), model = modelOf(g, { y: build(g, terms) });
      const { bytes } = prepareModel(model);
      assert.equal(countOf(bytes, ...PRODUCTS), parts, `${what}, ${terms} terms`);
      assert.equal(countOf(bytes, "Conv"), convolutions);
      assert.ok(await errorOf(model, 6) <= BOUNDS.fp32, `${what}, ${terms} terms`);
    }
  }
});

/** Channels of a convolution, and whether it has one more output. */
const THREES:
  readonly (readonly [inputs: number, outputs: number, size: number, isWider: boolean])[] = [
    [6, 4, 3, true],
    [9, 8, 3, true],
    [3, 4, 3, false],
    [12, 4, 3, false],
    [6, 6, 3, false],
    [6, 4, 1, false], // a product
  ];

Deno.test("a convolution with inputs that the provider would read in threes has one more output", async () => {
  for (const [inputs, outputs, size, isWider] of THREES) {
    const g = new Graph(), w = g.input("w", [outputs, inputs, size, size]);
    const y = g.conv(g.input("x", [2, inputs, 4, 5]), w, g.input("b", [outputs]));
    const model = modelOf(g, { y }), what = `${inputs} to ${outputs}`;
    assert.equal(countOf(prepareModel(model).bytes, "Concat"), Number(isWider), what);
    assert.ok(await errorOf(model, 7) <= BOUNDS.fp32, what);
  }
});

Deno.test("more rows than are compared at a time are added to any table", async () => {
  for (const height of [20, 1300, 3000]) {
    const g = new Graph(), base = g.input("base", [height, 3]);
    const ids = g.input("ids", [2100], "i32"), updates = g.input("updates", [2100, 3]);
    const model = modelOf(g, { y: g.scatterAdd(base, ids, updates) });
    assert.ok(await errorOf(model, 1) < BOUNDS.fp32, `${height} rows`);
    assert.ok(prepareModel(model).inPlace.get("y")!.has("base"));
  }
});

Deno.test("several updates of one element are added in the same order, for any axes", async () => {
  for (const [shape, axis] of [[[40, 12], 0], [[12, 30], 1], [[9, 9], 0]] as const) {
    const g = new Graph(), base = g.input("base", [12, 12]), indices = g.input("ids", shape, "i32");
    const y = g.scatterElements(base, indices, g.input("updates", shape), axis, "add");
    const model = modelOf(g, { y });
    assert.ok(await errorOf(model, 1) < BOUNDS.fp32, `[${shape}] along ${axis}`);
    assert.equal(countOf(prepareModel(model).bytes, "ScatterElements"), 0);
  }
});

Deno.test("numbers that f16 cannot hold exactly are looked up and added to rows in f32", () =>
  withDevice(openReference(), async (device) => {
    for (const height of [3, 8]) { // Fewer rows than updates, and more.
      const g = new Graph(), base = g.input("base", [height, 2]), ids = g.input("ids", [5], "i32");
      const y = g.scatterAdd(base, ids, g.input("updates", [5, 2]));
      const { bytes } = prepareModel(modelOf(g, { y }, [base, y]));
      const isWidened = nodesOf(bytes).some(({ opType, input: [from] }) =>
        opType === "Cast" && from === "base"
      );
      assert.equal(isWidened, height < 5, "a large table is not widened whole");
      const kernel = await device.compile(bytes), rest = Array(2 * height - 2).fill(1);
      const from = tensorOf(device, [height, 2], [2048, 7, ...rest], "f16");
      // 2048 + 0.75 is 2048 in f16, four times; their f32 sum is 2051, which rounds to 2052.
      const updates = tensorOf(device, [5, 2], [0.75, 0, 5, 5, 0.75, 0, 0.75, 0, 0.75, 0]);
      const at = tensorOf(device, [5], [0, 2, 0, 0, 0], "i32");
      await kernel.bind({ base: from, ids: at, updates }, { y: from })();
      assert.deepEqual(await numbersOf(device, from), [2052, 7, 1, 1, 6, 6, ...rest.slice(4)]);
    }
  }));

Deno.test("sums of columns are one or two products of few terms, unless their number is prime and large", async () => {
  for (const [rows, products] of [[1, 1], [508, 1], [1030, 2], [509, 0]] as const) {
    const g = new Graph(), x = g.input("x", [rows, 3]), model = modelOf(g, { y: g.sum(x, [0]) });
    const error = await errorOf(model, rows), { bytes } = prepareModel(model);
    assert.ok(error <= BOUNDS.fp32, `${rows} rows: off by ${error}`);
    const found = ["MatMul", "ReduceSum"].map((op) => countOf(bytes, op));
    assert.deepEqual(found, [products, +!products]);
  }
});

Deno.test("a product's factor goes to its smaller operand", () => {
  for (const [left, right, scaled] of [[[2, 9, 4], [2, 4, 1], "b"], [[2, 1, 4], [2, 4, 9], "a"]]) {
    const g = new Graph();
    const a = g.input("a", left as number[]), b = g.input("b", right as number[]);
    const { bytes } = prepareModel(modelOf(g, { y: g.matmul(a, b, { alpha: 0.3 }) }));
    const mul = nodesOf(bytes).find(({ opType }) => opType === "Mul")!;
    assert.equal(mul.input[0], scaled);
  }
});

Deno.test("of a product's operands and result those are transposed that are smaller together", async () => {
  const ways = [
    // What a token hands to each other is turned, not what each has of each: 2·(64·4) for 64·64.
    { a: [2, 64, 64], b: [2, 64, 4], transA: true, transposed: ["b", "product"] },
    { a: [2, 4, 64], b: [2, 64, 64], transB: true, transposed: ["a", "product"] },
    { a: [2, 5, 4], b: [2, 5, 6], transA: true, transposed: ["a"] },
    { a: [2, 64, 4], b: [2, 64, 4], transB: true, transposed: ["b"] },
    { a: [2, 64, 3], b: [2, 5, 64], transA: true, transB: true, transposed: ["product"] },
  ];
  for (const { a, b, transposed, transA = false, transB = false } of ways) {
    const g = new Graph();
    const y = g.matmul(g.input("a", a), g.input("b", b), { transA, transB, alpha: 0.3 });
    const model = modelOf(g, { y }), nodes = nodesOf(prepareModel(model).bytes);
    const found = nodes.filter(({ opType }) => opType === "Transpose").map(({ input: [name] }) =>
      ["a", "b"].includes(name!) ? name : "product"
    );
    assert.deepEqual(found, transposed);
    assert.ok(await errorOf(model, 7) < BOUNDS.fp32);
  }
});

Deno.test("an operation whose shapes are not known is refused by name", () => {
  const g = new Graph();
  const [odd] = g.node("Frobnicate", [g.input("x", [2, 3, 4])], [[2, 3, 4]]);
  const model = modelOf(g, { y: g.matmul(odd!, g.input("w", [2, 4, 5]), { alpha: 2 }) });
  assert.throws(() => prepareModel(model), /for webgpu: FusedMatMul needs the shape/);
});

Deno.test("the largest value of a model is known by name and size, also one in between", () => {
  const g = new Graph(), x = g.input("x", [4]), copies = g.exp(g.expand(x, [3, 4]));
  const { largest } = prepareModel(modelOf(g, { y: g.sum(copies, [0]) }));
  assert.deepEqual([largest!.shape, largest!.byteLength], [[3, 4], 48]);
});

type Outputs = (g: Graph, a: Value, b: Value) => Record<string, Value>;

/** The inputs over which each output may be. */
function places(build: Outputs): Record<string, string> {
  const g = new Graph(), a = g.input("a", [4, 4]), b = g.input("b", [4, 4]);
  const { inPlace } = prepareModel(modelOf(g, build(g, a, b)));
  return Object.fromEntries([...inPlace].map(([name, free]) => [name, [...free].sort().join()]));
}

const swap = (g: Graph, x: Value) => g.transpose(x, [1, 0]);
const reshaped = (g: Graph, x: Value) => g.reshape(g.reshape(x, [16]), [4, 4]);

const PLACES: readonly (readonly [Outputs, Record<string, string>])[] = [
  // Two outputs crosswise: each would overwrite what the other reads.
  [(g, a, b) => ({ y: g.mul(a, a), z: g.mul(b, b) }), { y: "a", z: "b" }],
  // The reader of the input is beside the output, not before it.
  [(g, a, b) => ({ y: g.add(a, b), z: swap(g, a) }), { y: "b", z: "" }],
  // An output that other nodes read is read in place.
  [(g, a, b) => {
    const y = g.add(a, b);
    return { y, z: g.matmul(y, y) };
  }, { y: "a,b", z: "" }],
  // An input read twice, by one node or by one before the other.
  [(g, a) => ({ y: g.add(a, a) }), { y: "a" }],
  [(g, a, b) => ({ y: g.gemm(a, b, a) }), { y: "" }],
  [(g, a, b) => ({ y: g.add(g.mul(a, b), a) }), { y: "a,b" }],
  // An input under another name is the input.
  [(g, a) => ({ y: swap(g, reshaped(g, a)) }), { y: "" }],
  [(g, a) => ({ y: g.mul(reshaped(g, a), a) }), { y: "a" }],
  // As a vector its elements are the same ones; the rule does not look that far.
  [(g, a) => {
    const flat = g.reshape(a, [16]);
    return { y: g.reshape(g.mul(flat, flat), [4, 4]) };
  }, { y: "" }],
  // An output of the model that is an input is a copy, which may be made last.
  [(g, a, b) => ({ y: g.add(a, b), z: a }), { y: "b", z: "" }],
  // Operations without effect, which the library removes.
  [(g, a) => ({ y: swap(g, g.mul(a, g.scalar(1))) }), { y: "" }],
  [(g, a) => ({ y: swap(g, g.add(a, g.scalar(0))) }), { y: "" }],
  // A product and a sum become a Gemm, which reads the product's operands to the end.
  [(g, a, b) => ({ y: g.add(g.matmul(a, a), b) }), { y: "b" }],
  [(g, a, b) => ({ y: g.add(g.matmul(g.mul(a, g.scalar(1)), a), b) }), { y: "b" }],
  [(g, a, b) => ({ y: g.gemm(swap(g, a), a, b) }), { y: "b" }],
  // Inputs of another shape or type.
  [(g, _, b) => {
    const c = g.input("c", [4, 4], "i32"), row = g.input("row", [1, 4]);
    return { y: g.add(g.add(row, b), g.cast(c, "f32")) };
  }, { y: "b" }],
  [(g, _, b) => ({ y: g.add(g.reshape(g.input("flat", [16]), [4, 4]), b) }), { y: "b" }],
];

Deno.test("an output is over an input of its shape that nothing reads afterwards, or may read", () => {
  for (const [build, wanted] of PLACES) assert.deepEqual(places(build), wanted, `${build}`);
});
