/** What is rewritten for the GPU computes what it did: the reference judges, without a GPU. */

import assert from "node:assert/strict";
import { fromBinary } from "@bufbuild/protobuf";
import type { Device, Tensor } from "../../../../kernels/devices/device.ts";
import { openReference } from "../../../../kernels/devices/reference/reference.ts";
import { valueTypes } from "../../../../kernels/onnx/value_types.ts";
import { prepareModel } from "../../../../kernels/devices/webgpu/model/prepare_model.ts";
import { Graph } from "../../../../kernels/graph/graph.ts";
import type { Value } from "../../../../kernels/graph/value.ts";
import { type Border, readSignature } from "../../../../kernels/onnx/signature.ts";
import { type GraphProto, ModelProtoSchema } from "../../../../kernels/onnx/onnx_pb.ts";
import { encodeModel } from "../../../../kernels/onnx/encode_model.ts";
import { modelOf, numbersOf, tensorOf } from "../models.ts";
import { testOperators } from "../operators.ts";
import { preparing } from "./preparing.ts";
import { numbersFor, trainedModels } from "./trained_models.ts";

testOperators("rewriting", async () => preparing(await openReference()));

/** The numbers of a model's outputs, by name. */
async function compute(device: Device, bytes: Uint8Array, seed: number) {
  const kernel = await device.compile(bytes), { inputs, outputs } = readSignature(bytes);
  const alloc = ({ name, dtype, shape }: Border): [string, Tensor] => [
    name,
    device.alloc(dtype, shape),
  ];
  const given = Object.fromEntries(inputs.map(alloc)), got = Object.fromEntries(outputs.map(alloc));
  inputs.forEach((input, i) =>
    device.write(given[input.name]!, numbersFor(input, seed + i * 7919))
  );
  await kernel.bind(given, got)();
  const results: [string, number[]][] = [];
  for (const { name } of outputs) results.push([name, await numbersOf(device, got[name]!)]);
  for (const tensor of [...Object.values(given), ...Object.values(got)]) device.free(tensor);
  kernel.close();
  return new Map(results);
}

const normOf = (numbers: readonly number[]) => Math.hypot(...numbers);

/** The largest difference of an output from what it should be, relative to the size of the output. */
async function errorOf(model: Uint8Array, seed: number): Promise<number> {
  const device = await openReference();
  const wanted = await compute(device, model, seed);
  const received = await compute(device, prepareModel(model).bytes, seed);
  device.close();
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

for (const precision of ["fp32", "fp16"] as const) {
  Deno.test(`every model of a training in ${precision} gives its results after the rewrites`, async () => {
    const models = await trainedModels([precision]);
    assert.ok(models.size > 20, `${models.size} models`);
    for (const [what, model] of models) {
      for (const seed of [1, 2]) {
        const error = await errorOf(model, seed);
        assert.ok(error <= BOUNDS[precision], `${what}, seed ${seed}: off by ${error}`);
      }
    }
  });
}

const graphOf = (bytes: Uint8Array) => fromBinary(ModelProtoSchema, bytes).graph!;

const PRODUCTS = ["MatMul", "FusedMatMul", "Gemm"];

/** The operations of a model that read f16, each as often as it stands there. */
function halfOperations(bytes: Uint8Array): string[] {
  const graph = graphOf(bytes), types = valueTypes(graph, readSignature(bytes).inputs);
  const isHalf = (name: string) => types.get(name)?.dtype === "f16";
  return graph.node.filter(({ input }) => input.some(isHalf)).map(({ opType }) => opType ?? "");
}

const productsOf = ({ node }: GraphProto) =>
  node.filter(({ opType }) => PRODUCTS.includes(opType ?? "")).length;

Deno.test("in a mixed model all products read f16, and nothing else computes in it", async () => {
  const moved = ["Cast", "Concat", "Gather", "Reshape", "ScatterND", "Split", "Transpose"];
  for (const [what, model] of await trainedModels(["fp16"])) {
    const found = halfOperations(prepareModel(model).bytes);
    const products = found.filter((op) => PRODUCTS.includes(op));
    assert.equal(products.length, productsOf(graphOf(model)), what);
    // Mul: by the factor of a product.
    const others = found.filter((op) => ![...PRODUCTS, ...moved, "Mul"].includes(op));
    assert.deepEqual(others, [], what);
  }
});

Deno.test("a model that stores no FP16 has none after the rewrites", async () => {
  for (const model of (await trainedModels(["fp32"])).values()) {
    const { bytes, usesHalf } = prepareModel(model);
    assert.equal(usesHalf, false);
    assert.deepEqual(halfOperations(bytes), []);
  }
});

Deno.test("long products are added in parts in FP16, and an accumulator to their sum", async () => {
  const terms = 2500;
  const builds: Record<string, (g: Graph) => Value> = {
    gemm: (g) => g.gemm(g.input("a", [3, terms]), g.input("b", [terms, 4])),
    "gemm, transposed": (g) =>
      g.gemm(g.input("a", [terms, 3]), g.input("b", [4, terms]), g.input("sum", [3, 4]), {
        transA: true,
        transB: true,
        alpha: 0.5,
      }),
    matmul: (g) => g.matmul(g.input("a", [2, 3, terms]), g.input("b", [2, terms, 4])),
    "matmul, transposed": (g) =>
      g.matmul(g.input("a", [2, terms, 3]), g.input("b", [2, terms, 4]), {
        transA: true,
        alpha: 2,
      }),
    "more elements": (g) => g.gemm(g.input("a", [220, terms]), g.input("b", [terms, 250])),
  };
  for (const [what, build] of Object.entries(builds)) {
    const g = new Graph(), y = build(g), stored = new Set([...g.inputs, y]);
    const ports = g.inputs.map((value) => ({ name: value.name, value }));
    const model = encodeModel(g, ports, [{ name: "y", value: y }], stored);
    assert.ok(await errorOf(model, 3) < 4 * HALF, what);
    const { bytes } = prepareModel(model), graph = graphOf(bytes);
    const types = valueTypes(graph, readSignature(bytes).inputs);
    const products = graph.node.filter(({ opType }) => PRODUCTS.includes(opType ?? ""));
    assert.ok(products.length >= 3, what);
    for (const { input } of products) {
      assert.ok(Math.max(...types.get(input[0]!)!.shape.slice(-2)) <= 1024, what);
    }
  }
});

Deno.test("a product of few elements and many terms is added in parts, in one order", async () => {
  const builds: Record<string, (g: Graph, terms: number) => Value> = {
    gemm: (g, terms) => g.gemm(g.input("a", [3, terms]), g.input("b", [terms, 4])),
    "gemm, transposed": (g, terms) =>
      g.gemm(g.input("a", [terms, 3]), g.input("b", [4, terms]), g.input("sum", [3, 4]), {
        transA: true,
        transB: true,
        alpha: 0.5,
      }),
    matmul: (g, terms) => g.matmul(g.input("a", [2, 3, terms]), g.input("b", [2, terms, 4])),
    "matmul, transposed": (g, terms) =>
      g.matmul(g.input("a", [2, terms, 3]), g.input("b", [2, terms, 4]), { transA: true }),
  };
  for (const [what, build] of Object.entries(builds)) {
    for (const [terms, parts] of [[508, 1], [511, 1], [512, 2], [1017, 3], [4096, 9], [4097, 1]]) {
      const g = new Graph(), y = build(g, terms!), model = modelOf(g, { y });
      const { bytes, inPlace } = prepareModel(model);
      assert.equal(productsOf(graphOf(bytes)), parts, `${what} of ${terms} terms`);
      assert.ok(await errorOf(model, 5) < BOUNDS.fp32, `${what} of ${terms} terms`);
      if (g.inputs.length === 3) assert.ok(inPlace.get("y")!.has("sum"));
    }
  }
  // Enough elements keep all workgroups busy: such a product is left whole.
  const g = new Graph(), many = g.gemm(g.input("a", [256, 512]), g.input("b", [512, 128]));
  assert.equal(productsOf(graphOf(prepareModel(modelOf(g, { y: many })).bytes)), 1);
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
      const g = new Graph(), y = build(g, terms), model = modelOf(g, { y });
      const graph = graphOf(prepareModel(model).bytes);
      assert.equal(productsOf(graph), parts, `${what}, ${terms} terms`);
      assert.equal(graph.node.filter(({ opType }) => opType === "Conv").length, convolutions);
      assert.ok(await errorOf(model, 6) <= BOUNDS.fp32, `${what}, ${terms} terms`);
    }
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

Deno.test("several updates of one element are added in one order, whatever the axes are", async () => {
  for (const [shape, axis] of [[[40, 12], 0], [[12, 30], 1], [[9, 9], 0]] as const) {
    const g = new Graph(), base = g.input("base", [12, 12]), indices = g.input("ids", shape, "i32");
    const y = g.scatterElements(base, indices, g.input("updates", shape), axis, "add");
    const model = modelOf(g, { y });
    assert.ok(await errorOf(model, 1) < BOUNDS.fp32, `[${shape}] along ${axis}`);
    const left = graphOf(prepareModel(model).bytes).node.map(({ opType }) => opType);
    assert.ok(!left.includes("ScatterElements"), `${left}`);
  }
});

Deno.test("what f16 cannot hold exactly is looked up and added to rows in f32", async () => {
  const device = await openReference();
  for (const height of [3, 8]) { // Fewer rows than updates, and more.
    const g = new Graph(), base = g.input("base", [height, 2]), ids = g.input("ids", [5], "i32");
    const y = g.scatterAdd(base, ids, g.input("updates", [5, 2]));
    const ports = g.inputs.map((value) => ({ name: value.name, value }));
    const model = encodeModel(g, ports, [{ name: "y", value: y }], new Set([base, y]));
    const kernel = await device.compile(prepareModel(model).bytes);
    const from = tensorOf(device, [height, 2], [2048, 7, ...Array(2 * height - 2).fill(1)], "f16");
    // 2048 + 0.75 is 2048 in f16, four times; their f32 sum is 2051, which rounds to 2052.
    const updates = tensorOf(device, [5, 2], [0.75, 0, 5, 5, 0.75, 0, 0.75, 0, 0.75, 0]);
    const at = tensorOf(device, [5], [0, 2, 0, 0, 0], "i32");
    await kernel.bind({ base: from, ids: at, updates }, { y: from })();
    const rest = Array(2 * height - 6).fill(1);
    assert.deepEqual(await numbersOf(device, from), [2052, 7, 1, 1, 6, 6, ...rest]);
  }
  device.close();
});

Deno.test("a product's factor goes to its smaller operand", () => {
  for (const [left, right, scaled] of [[[2, 9, 4], [2, 4, 1], "b"], [[2, 1, 4], [2, 4, 9], "a"]]) {
    const g = new Graph();
    const a = g.input("a", left as number[]), b = g.input("b", right as number[]);
    const { bytes } = prepareModel(modelOf(g, { y: g.matmul(a, b, { alpha: 0.3 }) }));
    const mul = graphOf(bytes).node.find(({ opType }) => opType === "Mul")!;
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
    const model = modelOf(g, { y }), { node } = graphOf(prepareModel(model).bytes);
    const found = node.filter(({ opType }) => opType === "Transpose").map(({ input: [name] }) =>
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
