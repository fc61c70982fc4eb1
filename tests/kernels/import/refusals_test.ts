/** Files that are none, cannot be trained, or are forged are refused in one sentence, and soon. */

import assert from "node:assert/strict";
import {
  compileModel,
  fromOnnx,
  type FromOnnxOptions,
  Graph,
  LayerGraph,
  onnxWithWeights,
  type Value,
} from "../../../kernels/mod.ts";
import { readOnnx } from "../../../kernels/onnx/read_file.ts";
import { trainedWeights } from "../../../kernels/onnx/import_model.ts";
import type { FoldedNode } from "../../../kernels/onnx/fold.ts";
import { scratchBytes } from "../../../kernels/onnx/scratch.ts";
import { atDepth } from "../../depth.ts";
import fc, { forAll } from "../../fast_check.ts";
import { ONNX_FIXTURES, onnxPath } from "../../onnx.ts";
import {
  goldenLines,
  type GoldenTensor,
  numbers,
  onnxModel,
  tensorOf,
  type TestModel,
  type TestNode,
} from "./onnx_model.ts";
import { modelOf } from "../devices/models.ts";

const W = { w: { data: numbers([3, 2]), shape: [3, 2] } };

/** A product with changes. */
const line = (more: Partial<TestModel> = {}, behind: readonly TestNode[] = []): TestModel => ({
  inputs: { x: [4, 3] },
  initializers: W,
  nodes: [{ op: "MatMul", inputs: ["x", "w"], outputs: ["y"] }, ...behind],
  outputs: { y: "f32" },
  ...more,
});

/** The refusal of a file, in one sentence; undefined where it is a model. */
function refusalOf(bytes: Uint8Array, options: FromOnnxOptions): string | undefined {
  try {
    fromOnnx(bytes, options);
    return undefined;
  } catch (error) {
    const kinds = [TypeError, RangeError, SyntaxError];
    assert.ok(error instanceof Error && kinds.some((kind) => error instanceof kind), `${error}`);
    assert.match(error.message, /^Cannot [^\n]+$/, error.stack);
    assert.ok(error.message.length < 1000, error.message);
    return error.message;
  }
}

/** A golden line: changes of the product, and the refusal. */
interface Refusal {
  readonly model: Partial<TestModel> & {
    readonly initializers?: Readonly<Record<string, GoldenTensor>>;
    /** Nodes behind the product. */
    readonly behind?: readonly TestNode[];
  };
  readonly options?: FromOnnxOptions;
  readonly refusal: string;
}

Deno.test("two initializers of one name are refused", () => {
  const bytes = onnxModel(line({ initializers: { ...W, v: W.w } }));
  const at = bytes.findLastIndex((byte, i) => byte === 1 && bytes[i + 1] === "v".charCodeAt(0));
  const changed = refusalOf(bytes.with(at + 1, "w".charCodeAt(0)), { loss: "mse" })!;
  assert.match(changed, / must have different names, received "w" twice$/);
});

Deno.test("each file that cannot be imported or trained is refused with the expected message", () => {
  assert.equal(refusalOf(onnxModel(line()), { loss: "mse" }), undefined);
  const given = goldenLines<Refusal>("refusals");
  const found = given.map(({ model: { behind, initializers = {}, ...more }, options, refusal }) => {
    const tensors = Object.entries(initializers).map(([name, one]) => [name, tensorOf(one)]);
    const { w } = more.tensors ?? {};
    const changed = {
      ...more,
      initializers: { ...W, ...Object.fromEntries(tensors) },
      ...w && { tensors: { w: { ...w, ...w.dims && { dims: w.dims.map(BigInt) } } } },
    };
    const got = refusalOf(onnxModel(line(changed, behind)), options ?? { loss: "mse" });
    return got === refusal ? refusal : `${got} (of ${JSON.stringify(more)})`;
  });
  assert.deepEqual(found, given.map(({ refusal }) => refusal));
});

Deno.test("a weight without a gradient may be frozen", () => {
  const nodes: TestNode[] = [
    { op: "Round", inputs: ["y"], outputs: ["r"] },
    { op: "MatMul", inputs: ["r", "v"], outputs: ["z"] },
  ];
  const initializers = { ...W, v: { data: numbers([2, 2]), shape: [2, 2] } };
  const bytes = onnxModel(line({ initializers, outputs: { z: "f32" } }, nodes));
  const said = /the weight "w" must have a gradient, .* frozen/;
  assert.match(refusalOf(bytes, { loss: "mse" })!, said);
  const model = fromOnnx(bytes, { loss: "mse", frozen: ["w"] });
  const { parameters } = compileModel(model, "none");
  const frozen = parameters.map(({ name, isFrozen }) => [name, isFrozen]);
  assert.deepEqual(frozen, [["w", true], ["v", false]]);
});

Deno.test("bytes that are not an ONNX model, or part of one, are refused", () => {
  const bytes = onnxModel(line());
  const cases = [
    [new Uint8Array(), /received 0 bytes without a graph with nodes$/],
    [new TextEncoder().encode("no model"), /received 8 bytes that are no complete message/],
    [bytes.slice(0, bytes.length / 2), /received \d+ bytes that are no complete/],
  ] as const;
  for (const [wrong, received] of cases) {
    assert.match(refusalOf(wrong, { loss: "mse" })!, received);
    assert.throws(() => onnxWithWeights(wrong, new Map()), received);
  }
});

Deno.test("an open dimension given by name is the number of samples", () => {
  const bytes = onnxModel(line({ inputs: { x: ["batch", 3] } }));
  assert.equal(fromOnnx(bytes, { loss: "mse", dimensions: { batch: 4 } }).samples, 4);
});

Deno.test("a known operation without a gradient is named with its node if a gradient must flow through it", () => {
  const file = readOnnx(onnxModel(line()), {});
  const graph = new LayerGraph(), weight = graph.parameter("w", [2]);
  const [output] = graph.node("Jump", [graph.relu(weight)], [[2]]) as [Value];
  const step = { node: { ...file.nodes[0]!, op: "Jump" }, from: 1, to: 2 } as FoldedNode;
  assert.throws(() => trainedWeights({ graph, steps: [step] }, output), {
    message:
      'Cannot train the ONNX model: every op between parameters and loss must have a gradient, received Jump (node "/y/MatMul")',
  });
});

/** Nodes of a file, each reading the one before and maybe another value. */
const chain = (length: number, op: string, more: (i: number, before: string) => string[]) =>
  Array.from({ length }, (_, i): TestNode => {
    const before = i === 0 ? "y" : `v${i - 1}`;
    return { op, inputs: [before, ...more(i, before)], outputs: [`v${i}`] };
  });
const fan = (length: number): TestNode[] =>
  Array.from({ length }, (_, i) => ({ op: "Relu", inputs: ["y"], outputs: [`v${i}`] }));

/** Files of n nodes, whatever they are. */
const LONG: Readonly<Record<string, (n: number) => Partial<TestModel>>> = {
  "a chain": (n) => ({ nodes: chain(n, "Relu", () => []) }),
  "sums of a value with itself": (n) => ({ nodes: chain(n, "Add", (_, before) => [before]) }),
  "sums with the first value": (n) => ({ nodes: chain(n, "Add", () => ["y"]) }),
  "a value of many, all read at the end": (n) => {
    const ends = fan(n - 1), inputs = ends.map((_, i) => `v${i}`);
    return { nodes: [...ends, { op: "Sum", inputs, outputs: ["v"] }] };
  },
  "products with a weight each": (n) => ({
    nodes: chain(n, "MatMul", (i) => [`w${i}`]),
    initializers: Object.fromEntries(
      fan(n).map((_, i) => [`w${i}`, { data: numbers([2, 2]), shape: [2, 2] }]),
    ),
  }),
  "a bias each": (n) => ({
    nodes: chain(n, "Add", (i) => [`w${i}`]),
    initializers: Object.fromEntries(fan(n).map((_, i) => [`w${i}`, { data: numbers([2]) }])),
  }),
};

const longModel = ({ nodes = [], initializers }: Partial<TestModel>) =>
  onnxModel({
    ...line({}, nodes),
    initializers: { ...W, ...initializers },
    outputs: { [nodes.at(-1)!.outputs[0]!]: "f32" },
  });

for (const [what, make] of Object.entries(LONG)) {
  Deno.test(`a file of thousands of nodes is a model: ${what}`, () => {
    // Beyond 6,000 a walk that calls itself has no stack left.
    const n = what === "a chain" ? 7000 : atDepth(500, 19_000);
    const { programs } = compileModel(fromOnnx(longModel(make(n)), { loss: "mse" }), "none");
    for (const model of programs.flatMap(({ models }) => Object.values(models))) {
      assert.ok(scratchBytes(model) >= 0);
    }
    assert.ok(programs.length <= 1001, `${programs.length}`);
  });
}

Deno.test("a file of more nodes or operands than a run compiles in time is refused", () => {
  const refused = [
    [chain(20_000, "Relu", () => []), "20001 with 40003"],
    [[{ op: "Sum", inputs: Array(80_000).fill("y"), outputs: ["z"] }], "2 with 80004"],
  ] as const;
  for (const [nodes, received] of refused) {
    const wanted =
      `Cannot import the ONNX model: it must have at most 20000 nodes with 80000 inputs and outputs, received ${received}`;
    assert.equal(refusalOf(longModel({ nodes }), { loss: "mse" }), wanted);
  }
});

Deno.test("the memory of a chain of operations does not grow with its length", () => {
  const bytes = [10, 20_000].map((length) => {
    const g = new Graph(), x = g.input("x", [4]);
    const y = Array(length).fill(0).reduce<Value>((value) => g.relu(value), x);
    return scratchBytes(modelOf(g, { y }));
  });
  assert.equal(bytes[1], bytes[0]);
});

/** Sizes that the files leave open. */
const SEQ = { batch: 4, seq: 16 }, ROWS = { batch: 4 };
const OPEN = { resnet: ROWS, resnet_fused: ROWS, bert: {}, gpt: SEQ, gpt_tied: SEQ };

const DYNAMIC = onnxModel(
  line({ inputs: { x: ["n", 3] }, outputs: { z: "f32" } }, [
    { op: "Shape", inputs: ["y"], outputs: ["s"] },
    { op: "Reshape", inputs: ["y", "s"], outputs: ["z"] },
  ]),
);

const FILES: readonly (readonly [name: string, bytes: Uint8Array, FromOnnxOptions])[] = [
  ["a product", DYNAMIC, { loss: "mse", dimensions: { n: 4 } }],
  ...ONNX_FIXTURES.map((name) => {
    const options = { loss: "cross-entropy", dimensions: OPEN[name] } as const;
    return [name, Deno.readFileSync(onnxPath(name)), options] as const;
  }),
];

for (const [name, bytes, options] of FILES) {
  Deno.test(`${name} that is cut anywhere is refused, and with other bytes is refused or a model`, async () => {
    assert.equal(refusalOf(bytes, options), undefined);
    const last = bytes.length - 1, place = fc.nat(last);
    const refuses = (length: number) => {
      const refusal = refusalOf(bytes.subarray(0, length), options);
      // The last of its opsets may be missed.
      if (bytes !== DYNAMIC) assert.notEqual(refusal, undefined);
    };
    [0, 1, last, last - 1].forEach(refuses);
    await forAll(atDepth(96, 996), [place], refuses);
    const changes = fc.array(fc.tuple(place, fc.nat(255)), { minLength: 1, maxLength: 4 });
    await forAll(bytes === DYNAMIC ? 500 : atDepth(40, 500), [changes], (places) => {
      const forged = bytes.slice();
      for (const [at, byte] of places) forged[at] = byte;
      refusalOf(forged, options);
    });
  });
}
