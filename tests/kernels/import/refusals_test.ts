/** Files that are none, cannot be trained, or are forged are refused in one sentence, and soon. */

import assert from "node:assert/strict";
import {
  fromOnnx,
  type FromOnnxOptions,
  LayerGraph,
  onnxWithWeights,
  type Value,
} from "../../../kernels/mod.ts";
import { readOnnx } from "../../../kernels/import/file/onnx_graph.ts";
import { trainedWeights } from "../../../kernels/import/gradients.ts";
import type { Step } from "../../../kernels/import/plan.ts";
import { atDepth } from "../../depth.ts";
import fc from "../../fast_check.ts";
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

const W = { w: { data: numbers([3, 2]), shape: [3, 2] } };

/** A product, and what is changed of it. */
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
    assert.ok(error instanceof TypeError || error instanceof RangeError, `${error}`);
    assert.match(error.message, /^Cannot [^\n]+$/, error.stack);
    assert.ok(error.message.length < 1000, error.message);
    return error.message;
  }
}

/** What a golden line changes of the product, and what comes of it. */
interface Refusal {
  readonly model: Partial<TestModel> & {
    readonly initializers?: Readonly<Record<string, GoldenTensor>>;
    /** Nodes behind the product. */
    readonly behind?: readonly TestNode[];
  };
  readonly options?: FromOnnxOptions;
  readonly refusal: string;
}

Deno.test("each file that cannot be imported or trained is refused by its sentence", () => {
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

Deno.test("bytes that are no ONNX model, or part of one, are refused", () => {
  const bytes = onnxModel(line());
  const cases = [
    [new Uint8Array(), /received 0 bytes with no graph with nodes$/],
    [new TextEncoder().encode("no model"), /received 8 bytes with what is no such message/],
    [bytes.slice(0, bytes.length / 2), /received \d+ bytes with what is no such/],
  ] as const;
  for (const [wrong, received] of cases) {
    assert.match(refusalOf(wrong, { loss: "mse" })!, received);
    assert.throws(() => onnxWithWeights(wrong, new Map()), received);
  }
});

Deno.test("an open dimension that is given by its name is the number of samples", () => {
  const bytes = onnxModel(line({ inputs: { x: ["batch", 3] } }));
  assert.equal(fromOnnx(bytes, { loss: "mse", dimensions: { batch: 4 } }).samples, 4);
});

Deno.test("an operation that is known but has no gradient is named with its node, where one must flow", () => {
  const file = readOnnx(onnxModel(line()), {});
  const graph = new LayerGraph(), weight = graph.parameter("w", [2]);
  const [output] = graph.node("Jump", [graph.relu(weight)], [[2]]) as [Value];
  const step = { node: { ...file.nodes[0]!, op: "Jump" }, from: 1, to: 2 } as Step;
  assert.throws(() => trainedWeights({ graph, steps: [step] }, output), {
    message:
      'Cannot train the ONNX model: every op between parameters and loss must have a gradient, received Jump (node "/y/MatMul")',
  });
});

/** Sizes that the files leave open. */
const OPEN = {
  resnet: { batch: 4 },
  resnet_fused: { batch: 4 },
  bert: {},
  gpt: { batch: 4, seq: 16 },
  gpt_tied: { batch: 4, seq: 16 },
};

const DYNAMIC = onnxModel({
  ...line({ inputs: { x: ["n", 3] }, outputs: { z: "f32" } }, [
    { op: "Shape", inputs: ["y"], outputs: ["s"] },
    { op: "Reshape", inputs: ["y", "s"], outputs: ["z"] },
  ]),
});

const FILES: readonly (readonly [name: string, bytes: Uint8Array, FromOnnxOptions])[] = [
  ["a product", DYNAMIC, { loss: "mse", dimensions: { n: 4 } }],
  ...ONNX_FIXTURES.map((name) =>
    [
      name,
      Deno.readFileSync(onnxPath(name)),
      { loss: "cross-entropy", dimensions: OPEN[name] },
    ] as const
  ),
];

for (const [name, bytes, options] of FILES) {
  Deno.test(`${name} that is cut anywhere is refused, and with other bytes is refused or a model`, () => {
    assert.equal(refusalOf(bytes, options), undefined);
    const last = bytes.length - 1, place = fc.nat(last);
    fc.assert(
      fc.property(place, (length) => {
        const refusal = refusalOf(bytes.subarray(0, length), options);
        // The last of its opsets may be missed.
        if (bytes !== DYNAMIC) assert.notEqual(refusal, undefined);
      }),
      { numRuns: atDepth(100, 1000), examples: [[0], [1], [last], [last - 1]] },
    );
    const changes = fc.array(fc.tuple(place, fc.nat(255)), { minLength: 1, maxLength: 4 });
    fc.assert(
      fc.property(changes, (places) => {
        const forged = bytes.slice();
        for (const [at, byte] of places) forged[at] = byte;
        refusalOf(forged, options);
      }),
      { numRuns: bytes === DYNAMIC ? 500 : atDepth(40, 500) },
    );
  });
}
