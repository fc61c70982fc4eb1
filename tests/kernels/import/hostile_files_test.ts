/** Files of strangers are data: what is none, cut short or forged is refused in one sentence, and soon. */

import assert from "node:assert/strict";
import { fromOnnx, type FromOnnxOptions } from "../../../kernels/mod.ts";
import fc from "../../fast_check.ts";
import { ONNX_FIXTURES, onnxPath } from "../../onnx.ts";
import { int64, numbers, onnxModel, type TestModel } from "./onnx_model.ts";

const OPTIONS: FromOnnxOptions = { loss: "cross-entropy" };

/** Sizes that the files leave open. */
const OPEN = {
  resnet: { batch: 4 },
  resnet_fused: { batch: 4 },
  bert: {},
  gpt: { batch: 4, seq: 16 },
  gpt_tied: { batch: 4, seq: 16 },
};

/** The refusal of a file; undefined where it is a model. */
function refusalOf(bytes: Uint8Array, options: FromOnnxOptions = OPTIONS): string | undefined {
  try {
    fromOnnx(bytes, options);
    return undefined;
  } catch (error) {
    assert.ok(error instanceof TypeError || error instanceof RangeError, `${error}`);
    assert.match(error.message, /^Cannot [^\n]+$/, error.stack);
    return error.message;
  }
}

/** A product of x [2, 3] and w [3, 4], and what is forged of it. */
const product = (more: Partial<TestModel> = {}): TestModel => ({
  inputs: { x: [2, 3] },
  initializers: { w: { data: numbers([3, 4]), shape: [3, 4] } },
  nodes: [{ op: "MatMul", inputs: ["x", "w"], outputs: ["y"] }],
  outputs: { y: "f32" },
  ...more,
});

/** The same with a node before it, whose setting is a constant. */
const after = (op: string, ...setting: number[]): TestModel =>
  product({
    initializers: { ...product().initializers, setting: int64(...setting) },
    nodes: [
      { op, inputs: ["x", "setting"], outputs: ["large"] },
      { op: "MatMul", inputs: ["large", "w"], outputs: ["y"] },
    ],
  });

const UNSHOWN =
  /must have at most 500 characters, and none that controls how text is shown, received "/;

const REFUSED: readonly (readonly [what: string, model: TestModel, told: RegExp])[] = [
  [
    "an operation whose name clears a screen",
    product({ nodes: [{ op: "A\nB\x1b[2J", inputs: ["x", "w"], outputs: ["y"] }] }),
    /the names of nodes must have .* shown, received ".*A\ufffdB\ufffd\[2J/,
  ],
  [
    "a value without an end to its name",
    product({ outputs: { ["y".repeat(1e6)]: "f32" } }),
    UNSHOWN,
  ],
  ["a size whose name turns the text", product({ inputs: { x: ["\u202ebatch", 3] } }), UNSHOWN],
  [
    "a size beyond counting",
    product({ inputs: { x: [2 ** 52, 3] } }),
    /"x" must have at most \d+ elements/,
  ],
  [
    "sizes whose product is beyond memory",
    product({ inputs: { x: [2 ** 31, 2 ** 31] } }),
    /"x" must have at most \d+ elements/,
  ],
  [
    "a copy beyond memory",
    after("Expand", 2 ** 30, 2, 3),
    /Expand .*: sizes must be from 0 and their product at most \d+, received \[1073741824,2,3\]$/,
  ],
  ["a shape without end", after("Reshape", -1, -1), /Reshape .*: .*received \[/],
];

for (const [what, model, told] of REFUSED) {
  Deno.test(`${what} is refused in one sentence`, () => {
    assert.equal(refusalOf(onnxModel(product())), undefined);
    const message = refusalOf(onnxModel(model)) ?? "no refusal";
    assert.match(message, told);
    assert.ok(message.length < 1000, message);
  });
}

for (const name of ONNX_FIXTURES) {
  const bytes = Deno.readFileSync(onnxPath(name)), options = { ...OPTIONS, dimensions: OPEN[name] };

  Deno.test(`${name} cut anywhere is refused`, () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: bytes.length - 1 }), (length) => {
        assert.notEqual(refusalOf(bytes.subarray(0, length), options), undefined);
      }),
      { numRuns: 150, examples: [[0], [1], [bytes.length - 1], [bytes.length - 2]] },
    );
  });

  Deno.test(`${name} with other bytes in it is a model or is refused`, () => {
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.nat(bytes.length - 1), fc.nat(255)), { minLength: 1, maxLength: 4 }),
        (places) => {
          const forged = bytes.slice();
          for (const [at, byte] of places) forged[at] = byte;
          refusalOf(forged, options);
        },
      ),
      { numRuns: 60 },
    );
  });
}
