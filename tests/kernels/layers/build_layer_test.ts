/** A mistake in a layer is told with the layer's name, wherever a model is built or compiled. */

import assert from "node:assert/strict";
import { compileModel, type Layer, LayerGraph, modelFields } from "../../../kernels/mod.ts";

const first: Layer = {
  name: "points",
  build: (g) => g.gemm(g.batch("points", [8, 4]), g.parameter("weight", [4, 16])),
};

/** Layers that cannot be built, and what is said of them after their name. */
const BAD: readonly [Layer["build"], "RangeError" | "TypeError" | "Error", string][] = [
  [
    (g, x) => g.gemm(x!, g.parameter("weight", [4, 2])),
    "RangeError",
    "cannot multiply matrices: inner sizes must be equal, received [8,16] and [4,2]",
  ],
  [
    (g, x) => g.add(x!, g.parameter("bias", [2])),
    "RangeError",
    "cannot combine tensors: shapes must be equal or broadcast, received [8,16] and [2]",
  ],
  [
    () => undefined as never,
    "TypeError",
    "build must return a value of its graph or a record of them, received undefined",
  ],
  [
    () => 7 as never,
    "TypeError",
    "build must return a value of its graph or a record of them, received number",
  ],
  [
    () => {
      throw "by hand";
    },
    "Error",
    "by hand",
  ],
];

Deno.test("a layer that cannot be built is named, and its error stays of its class", () => {
  for (const [build, name, message] of BAD) {
    const layers = [first, { name: "dense 2", build }];
    const expected = { name, message: `Cannot build the layer "dense 2": ${message}` };
    assert.throws(() => modelFields({ layers }), expected);
    assert.throws(
      () => compileModel({ name: "own", layers, predictions: 8 }, "none", { endsWithLoss: false }),
      expected,
    );
  }
});

Deno.test("a first layer that reads the output of one before is told that there is none", () => {
  const layers: Layer[] = [{ name: "dense", build: (g, x) => g.relu(x!) }];
  assert.throws(() => modelFields({ layers }), {
    name: "TypeError",
    message: 'Cannot build the layer "dense": cannot read properties of undefined (reading ' +
      "'shape'); the first layer gets no input, and reads the micro-batch with g.batch",
  });
});

Deno.test("a layer without a gradient is named", () => {
  const layers: Layer[] = [
    first,
    { name: "sorted", build: (g, x) => g.node("Hardmax", [x!], [x!.shape])[0]! },
  ];
  assert.throws(
    () => compileModel({ name: "own", layers, predictions: 8 }, "none", { endsWithLoss: false }),
    /^TypeError: Cannot train layer "sorted": cannot differentiate: .*Hardmax/,
  );
});

Deno.test("what a layer returns or gives that is no value of its graph is told, and of which layer", () => {
  const refuse = (build: Layer["build"], expected: RegExp) => {
    const layers: Layer[] = [first, { name: "second", build }];
    assert.throws(
      () => compileModel({ name: "own", layers, predictions: 8 }, "none", { endsWithLoss: false }),
      expected,
    );
  };
  const leak = new LayerGraph().constant(Float32Array.of(1), [1]);
  refuse(
    (g, x) => g.add(x!, leak),
    /^TypeError: Cannot build the layer "second": its values must be of its own graph, received "c0" of another; .*g\.give.*g\.take/,
  );
  refuse((_g) => leak, /layer "second": its values must be of its own graph/);
  refuse((g, x) => (g.give("q", leak), x!), /layer "second": its values must be of its own graph/);
  refuse(
    (g, x) => (g.give("q", 3 as never), x!),
    /layer "second": "q" must be given a value of its graph, received number/,
  );
  refuse(
    (g, x) => (g.give("a\0", x!), x!),
    /"second": names of what is given must be text without NUL/,
  );
  refuse((_g, x) => [x!] as never, /"second": build must return .*, received Array/);
  refuse((() => Promise.resolve()) as never, /"second": build must return .*, received Promise/);
  refuse((() => new Map()) as never, /"second": build must return .*, received Map/);
  refuse(
    (_g, x) => ({ "\ud800": x! }) as never,
    /"second": names of a record must be text without NUL/,
  );
  refuse((() => ({})) as never, /"second": it must hand on a value or give one, received neither/);
});
