/** Files that cannot be trained, or are none, are refused in one sentence that says why. */

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
import fc from "../../fast_check.ts";
import { int64, numbers, onnxModel, type TestModel, type TestNode } from "./onnx_model.ts";

/** A product, and what else is told. */
function line(more: Partial<TestModel> = {}, nodes: readonly TestNode[] = []): TestModel {
  return {
    inputs: { x: [4, 3] },
    initializers: { w: { data: numbers([3, 2]), shape: [3, 2] } },
    nodes: [{ op: "MatMul", inputs: ["x", "w"], outputs: ["y"] }, ...nodes],
    outputs: { y: "f32" },
    ...more,
  };
}

const node = (op: string, inputs: readonly string[], outputs = ["z"]): TestNode => ({
  op,
  inputs,
  outputs,
});

const MSE = { loss: "mse" } as const;

const refuse = (model: TestModel, message: RegExp, options: FromOnnxOptions = MSE) =>
  assert.throws(() => fromOnnx(onnxModel(model), options), { message });

Deno.test("bytes that are no ONNX model, or part of one, are refused", () => {
  const bytes = onnxModel(line());
  for (
    const [what, wrong, received] of [
      ["nothing", new Uint8Array(), /received 0 bytes with no graph with nodes$/],
      [
        "text",
        new TextEncoder().encode("no model"),
        /received 8 bytes with what is no such message/,
      ],
      ["half of it", bytes.slice(0, bytes.length / 2), /received \d+ bytes with what is no such/],
    ] as const
  ) {
    assert.throws(() => fromOnnx(wrong, MSE), received, what);
    assert.throws(() => onnxWithWeights(wrong, new Map()), received, what);
  }
});

Deno.test("whatever of a file is cut off or changed, it is refused in one sentence or is still a model", () => {
  const dynamic = line({ inputs: { x: ["n", 3] } }, [
    node("Shape", ["y"], ["s"]),
    node("Reshape", ["y", "s"]),
  ]);
  const bytes = onnxModel({ ...dynamic, outputs: { z: "f32" } });
  const attempt = (changed: Uint8Array) => {
    try {
      fromOnnx(changed, { loss: "mse", dimensions: { n: 4 } });
    } catch (error) {
      assert.ok(error instanceof TypeError || error instanceof RangeError, String(error));
      assert.match(error.message, /^Cannot [^\n]*, received [^\n]*$/);
      assert.ok(error.message.length < 1000, error.message);
    }
  };
  for (let length = 0; length < bytes.length; length++) attempt(bytes.slice(0, length));
  const place = fc.nat({ max: bytes.length - 1 });
  fc.assert(
    fc.property(fc.array(fc.tuple(place, fc.nat({ max: 255 })), { maxLength: 4 }), (changes) => {
      const changed = bytes.slice();
      for (const [at, byte] of changes) changed[at] = byte;
      attempt(changed);
    }),
    { numRuns: 500 },
  );
});

Deno.test("a dimension that is open must be given by its name", () => {
  const model = line({ inputs: { x: ["batch", 3] } });
  refuse(model, /the dimension "batch" of its input "x" must be given, received none$/);
  refuse(model, /dimensions must be among those that it leaves open, batch, received "samples"$/, {
    ...MSE,
    dimensions: { samples: 4 },
  });
  refuse(model, /the dimension "batch" must be a whole number from 1, received 0.5$/, {
    ...MSE,
    dimensions: { batch: 0.5 },
  });
  refuse(line({ inputs: { x: ["toString", 3] } }), /the dimension "toString" .* must be given/);
  refuse(line({ inputs: { x: [-1, 3] } }), /the dimension "x.0" of its input "x" must be given/);
  assert.equal(fromOnnx(onnxModel(model), { ...MSE, dimensions: { batch: 4 } }).samples, 4);
});

Deno.test("an operation that is not known is named with its node", () => {
  const outputs = { z: "f32" } as const;
  refuse(
    line({ outputs }, [node("NonZero", ["y"])]),
    /its operations must be among those that are understood, received NonZero \(node "\/z\/NonZero"\)$/,
  );
  refuse(
    line({ outputs }, [{ ...node("Own", ["y"]), domain: "my.ops" }]),
    /received my\.ops\.Own \(node "\/z\/Own"\)$/,
  );
  refuse(
    line({ outputs }, [node("ArgMax", ["y"], ["i"]), {
      ...node("Cast", ["i"]),
      attributes: { to: 1 },
    }]),
    /its output must depend on a weight that is trained, received none to which a gradient comes$/,
  );
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

Deno.test("settings and shapes that do not fit are told with the node", () => {
  const outputs = { z: "f32" } as const;
  refuse(
    line({ inputs: { x: [4, 5] } }),
    /^Cannot import MatMul of the ONNX model \(node "\/y\/MatMul"\): cannot multiply matrices: inner sizes must be equal, received \[4,5\] and \[3,2\]$/,
  );
  refuse(
    line({ outputs }, [{ ...node("Pad", ["y", "p"]), attributes: { mode: "wrap" } }]),
    /what a node reads must be made before it, received "p" as an input of Pad/,
  );
  const pads = { ...line().initializers, p: int64(1, 0, 0, 0) };
  refuse(
    line({ outputs, initializers: pads }, [{
      ...node("Pad", ["y", "p"]),
      attributes: { mode: "wrap" },
    }]),
    /\(node "\/z\/Pad"\): mode must be constant or edge or reflect, received wrap$/,
  );
  refuse(
    line({ outputs }, [node("Cast", ["y"], ["i"]), node("Reshape", ["y", "i"])]),
    /Cast .*: to must be a type that devices hold, received 0$/,
  );
  refuse(
    line({ outputs, inputs: { x: [4, 3], i: [2] }, types: { i: "i64" } }, [
      node("Reshape", ["y", "i"]),
    ]),
    /Reshape .*: input 1 must be known before a run, received i64 \[2\] that each computes$/,
  );
  refuse(line({}, [node("Relu", ["x"], ["y"])]), /values must be made once, received "y" again/);
  refuse(line({ opset: 8 }), /its opset must be from 9 to 23, received 8$/);
});

Deno.test("what is trained, frozen or asked for must be there", () => {
  refuse(
    line({ outputs: { y: "f32", x: "f32" } }),
    /output must be one of its outputs, y, x, received none$/,
  );
  refuse(line(), /output must be one of its outputs, y, received z$/, { ...MSE, output: "z" });
  refuse(
    line({ outputs: { q: "f32" } }),
    /its output must be made by a node, received "q" from nowhere$/,
  );
  refuse(line(), /frozen weights must be among its initializers, received "v"$/, {
    ...MSE,
    frozen: ["v"],
  });
  refuse(
    line(),
    /must depend on a weight that is trained, received none to which a gradient comes$/,
    {
      ...MSE,
      frozen: ["w"],
    },
  );
  refuse(line(), /label must be a field of its own, received "x", which is one of its inputs$/, {
    ...MSE,
    label: "x",
  });
  refuse(line(), /layers must be a whole number from 1, received 0$/, { ...MSE, layers: 0 });
  refuse(line(), /loss must be one of cross-entropy, mse, received hinge$/, {
    loss: "hinge" as "mse",
  });
  refuse(
    line({ outputs: { z: "f32" } }, [{
      ...node("ReduceSum", ["y"]),
      attributes: { keepdims: 0 },
    }]),
    /for cross-entropy its output "z" must be logits, .*, received f32 \[\]$/,
    { loss: "cross-entropy" },
  );
});

Deno.test("tensors must have the bytes of their sizes, which are looked at before any are taken", () => {
  const tensors = (w: NonNullable<TestModel["tensors"]>[string]) => line({ tensors: { w } });
  refuse(
    tensors({ dims: [3n, 3n] }),
    /the initializer "w" must have the 36 bytes of its sizes \[3,3\], received 24 bytes$/,
  );
  refuse(
    tensors({ dims: [2n ** 40n, 2n ** 40n] }),
    /"w" must have sizes from 0 whose product is at most \d+, received \[/,
  );
  refuse(tensors({ dims: [-3n, -2n] }), /"w" must have sizes from 0/);
  refuse(tensors({ dataType: 10 }), /"w" must hold f32, .*, received ONNX type 10$/);
  refuse(
    tensors({ dataLocation: 1, externalData: [{ key: "location", value: "../w.bin" }] }),
    /"w" lies in the file "\.\.\/w\.bin" beside it, which must be given as one of `external`, received \[\]$/,
  );
});

Deno.test("constants that a file computes are bounded before they are made", () => {
  const initializers = { ...line().initializers, s: int64(2 ** 20, 2 ** 20) };
  refuse(
    line({ initializers, outputs: { z: "f32" } }, [
      node("ConstantOfShape", ["s"], ["c"]),
      node("Add", ["y", "c"]),
    ]),
    /what it computes of constants must be at most \d+ elements, and \d+ in all, received more at ConstantOfShape \(node "\/c\/ConstantOfShape"\)$/,
  );
  const wide = { ...line().initializers, s: int64(2 ** 13, 2 ** 12) };
  refuse(
    line({ initializers: wide, outputs: { z: "f32" } }, [
      node("ConstantOfShape", ["s"], ["c"]),
      node("Add", ["y", "c"]),
    ]),
    /must be at most 16777216 elements, and \d+ in all, received more at ConstantOfShape/,
  );
  const values = { data: Float32Array.of(0, 1) };
  refuse(
    line({
      initializers: { ...line().initializers, depth: int64(2 ** 30), values },
      outputs: { z: "f32" },
    }, [node("ArgMax", ["y"], ["i"]), node("OneHot", ["i", "depth", "values"])]),
    /OneHot .*: its depth must be at most \d+, received 1073741824$/,
  );
  refuse(
    line({
      initializers: { ...line().initializers, to: int64(1, 1, 4, 2 ** 30) },
      outputs: { z: "f32" },
      inputs: { x: [1, 1, 4, 3] },
    }, [{ ...node("Resize", ["y", "", "", "to"]), attributes: { mode: "linear" } }]),
    /Resize .*: old sizes times new ones must be at most \d+, received 2147483648$/,
  );
  refuse(
    line({ inputs: { x: [1, 1, 4, 3] }, outputs: { z: "f32" } }, [{
      ...node("AveragePool", ["y"]),
      attributes: { kernel_shape: [2 ** 30, 1], pads: [2 ** 29, 0, 2 ** 29, 0] },
    }]),
    /AveragePool .*: windows must be at most \d+, received 1073741824$/,
  );
  const range = { ...line().initializers, s: int64(2 ** 40), zero: int64(0), one: int64(1) };
  refuse(
    line({ initializers: range, outputs: { z: "f32" } }, [
      node("Range", ["zero", "s", "one"], ["c"]),
      node("Add", ["y", "c"]),
    ]),
    /received more at Range/,
  );
});
