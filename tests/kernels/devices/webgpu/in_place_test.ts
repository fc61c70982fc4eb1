/** Which outputs may lie over which inputs, by the graph alone. */

import assert from "node:assert/strict";
import { prepareModel } from "../../../../kernels/devices/webgpu/model/prepare_model.ts";
import { Graph } from "../../../../kernels/graph/graph.ts";
import type { Value } from "../../../../kernels/graph/value.ts";
import { readSignature } from "../../../../kernels/onnx/signature.ts";
import { PORTS } from "../../../../kernels/mod.ts";
import { modelOf } from "../models.ts";
import { trainedModels } from "./trained_models.ts";

/** The inputs over which training binds an output: accumulators, weights, moments, norms. */
function wantedInput(output: string): string | undefined {
  const gradient = PORTS.gradient("");
  if (output.startsWith(gradient)) return PORTS.accumulator(output.slice(gradient.length));
  if (/^(sum|top)$/.test(output)) return `${output}s`; // absent where copies are added
  return /^(w|m\d)'$/.test(output) ? output.slice(0, -1) : undefined;
}

Deno.test("training adds gradients and steps parameters without a copy", async () => {
  let count = 0;
  for (const [what, model] of await trainedModels()) {
    const { inPlace } = prepareModel(model), { inputs, outputs } = readSignature(model);
    for (const { name } of outputs) {
      const input = wantedInput(name);
      if (!inputs.some((one) => one.name === input)) continue;
      assert.ok(inPlace.get(name)!.has(input!), `${what}: ${name} over ${input}`);
      count++;
    }
  }
  assert.ok(count > 100, `${count} outputs`);
});

/** The inputs over which each output may lie. */
function places(build: (g: Graph, a: Value, b: Value) => Record<string, Value>) {
  const g = new Graph(), a = g.input("a", [4, 4]), b = g.input("b", [4, 4]);
  const { inPlace } = prepareModel(modelOf(g, build(g, a, b)));
  return Object.fromEntries([...inPlace].map(([name, free]) => [name, [...free].sort().join()]));
}

const swap = (g: Graph, x: Value) => g.transpose(x, [1, 0]);

Deno.test("an output lies over no input that is read afterwards, or may be", () => {
  // Two outputs crosswise: each would overwrite what the other reads.
  const crosswise = places((g, a, b) => ({ y: g.mul(a, a), z: g.mul(b, b) }));
  assert.deepEqual(crosswise, { y: "a", z: "b" });
  // Who reads the input stands beside the output, not before it.
  assert.deepEqual(places((g, a, b) => ({ y: g.add(a, b), z: swap(g, a) })), { y: "b", z: "" });
  // An output that goes on to be read is read where it lies.
  const chain = places((g, a, b) => {
    const y = g.add(a, b);
    return { y, z: g.matmul(y, y) };
  });
  assert.deepEqual(chain, { y: "a,b", z: "" });
  // An input read twice, by one node or by one before the other.
  assert.deepEqual(places((g, a) => ({ y: g.add(a, a) })), { y: "a" });
  assert.deepEqual(places((g, a, b) => ({ y: g.gemm(a, b, a) })), { y: "" });
  assert.deepEqual(places((g, a, b) => ({ y: g.add(g.mul(a, b), a) })), { y: "a,b" });
});

Deno.test("an input under another name is the input", () => {
  const reshaped = (g: Graph, x: Value) => g.reshape(g.reshape(x, [16]), [4, 4]);
  assert.deepEqual(places((g, a) => ({ y: swap(g, reshaped(g, a)) })), { y: "" });
  assert.deepEqual(places((g, a) => ({ y: g.mul(reshaped(g, a), a) })), { y: "a" });
  // As a vector its elements are the same ones; the rule does not look so far.
  assert.deepEqual(
    places((g, a) => {
      const flat = g.reshape(a, [16]);
      return { y: g.reshape(g.mul(flat, flat), [4, 4]) };
    }),
    { y: "" },
  );
  // An output of the model that is an input is a copy, which may be made last.
  assert.deepEqual(places((g, a, b) => ({ y: g.add(a, b), z: a })), { y: "b", z: "" });
  // What the library leaves out, as it does nothing.
  assert.deepEqual(places((g, a) => ({ y: swap(g, g.mul(a, g.scalar(1))) })), { y: "" });
  assert.deepEqual(places((g, a) => ({ y: swap(g, g.add(a, g.scalar(0))) })), { y: "" });
});

Deno.test("what the library may join is looked at as if it were joined", () => {
  // A product and a sum become a Gemm, which reads the product's operands to the end.
  assert.deepEqual(places((g, a, b) => ({ y: g.add(g.matmul(a, a), b) })), { y: "b" });
  assert.deepEqual(places((g, a, b) => ({ y: g.add(g.matmul(g.mul(a, g.scalar(1)), a), b) })), {
    y: "b",
  });
  assert.deepEqual(places((g, a, b) => ({ y: g.gemm(swap(g, a), a, b) })), { y: "b" });
});

Deno.test("an output lies over no input of another shape or type", () => {
  const g = new Graph(), a = g.input("a", [1, 4]), b = g.input("b", [4, 4]);
  const c = g.input("c", [4, 4], "i32");
  const model = modelOf(g, { y: g.add(g.add(a, b), g.cast(c, "f32")) });
  assert.deepEqual([...prepareModel(model).inPlace.get("y")!], ["b"]);
});
