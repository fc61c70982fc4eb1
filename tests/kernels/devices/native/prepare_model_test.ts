/** Models as the native device computes them. */

import assert from "node:assert/strict";
import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { encodeModel, Graph } from "../../../../kernels/mod.ts";
import { addGradients } from "../../../../kernels/graph/autodiff.ts";
import type { Value } from "../../../../kernels/graph/value.ts";
import { prepareModel } from "../../../../kernels/devices/native/prepare_model.ts";
import { shareEqual } from "../../../../kernels/onnx/graph_writer.ts";
import { ModelProtoSchema } from "../../../../kernels/onnx/onnx_pb.ts";
import { openReference } from "../../../../kernels/devices/reference/reference.ts";
import { substream } from "../../../../kernels/random.ts";

/** The model of d loss/d inputs of y = build(inputs). */
function gradientModel(shapes: readonly (readonly number[])[], build: Build): Uint8Array {
  const g = new Graph(), inputs = shapes.map((shape, i) => g.input(`x${i}`, shape));
  const y = build(g, inputs), dy = g.input("dy", y.shape);
  const gradients = addGradients(g, [[y, dy]], inputs);
  return encodeModel(
    g,
    [...inputs, dy].map((value) => ({ name: value.name, value })),
    gradients.map((value, i) => ({ name: `d${i}`, value: value! })),
  );
}
type Build = (g: Graph, inputs: readonly Value[]) => Value;

const operations = (model: Uint8Array) =>
  fromBinary(ModelProtoSchema, model).graph!.node.map(({ opType }) => opType);

/** What a model computes of numbers from a seed. */
async function outputsOf(model: Uint8Array): Promise<Float32Array[]> {
  const device = await openReference(), kernel = await device.compile(model);
  const { graph } = fromBinary(ModelProtoSchema, model), random = substream(1, "prepared models");
  const tensors = [...graph!.input, ...graph!.output].map(({ name, type }) => {
    const dims = type!.value.case === "tensorType" ? type!.value.value.shape!.dim : [];
    const shape = dims.map(({ value }) => Number(value.value));
    const tensor = device.alloc("f32", shape), count = shape.reduce((a, b) => a * b, 1);
    device.write(tensor, Float32Array.from({ length: count }, () => random.next() / 2 ** 29));
    return [name!, tensor] as const;
  });
  const inputs = tensors.slice(0, graph!.input.length), outputs = tensors.slice(inputs.length);
  await kernel.bind(Object.fromEntries(inputs), Object.fromEntries(outputs))();
  const results = await Promise.all(
    outputs.map(([, tensor]) => device.read<Float32Array>(tensor)),
  );
  device.close();
  return results;
}

/** That rewriting a model changes no more than the last bits of what it computes. */
async function assertSame(model: Uint8Array, prepared: Uint8Array) {
  const [expected, found] = [await outputsOf(model), await outputsOf(prepared)];
  expected.forEach((values, i) => {
    values.forEach((value, at) => {
      assert.ok(
        Math.abs(value - found[i]![at]!) <= 2e-5 * Math.max(1, Math.abs(value)),
        `output ${i} at ${at}: ${value} is not ${found[i]![at]}`,
      );
    });
  });
}

Deno.test("GELU's gradient is computed in parts that fit into a core's cache, rows that do not divide included", async () => {
  const model = gradientModel([[67, 2048]], (g, [x]) => g.gelu(x!));
  const prepared = prepareModel(model);
  assert.equal(operations(prepared).filter((op) => op === "Sigmoid").length, 3);
  await assertSame(model, prepared);
});

Deno.test("what fits is computed at once", () => {
  const prepared = prepareModel(gradientModel([[8, 16]], (g, [x]) => g.gelu(x!)));
  assert.ok(!operations(prepared).includes("Split"));
});

Deno.test("a weight gradient is transposed first where its operand is narrower", async () => {
  for (
    const [inputs, outputs, isFirst] of [[8, 32, true], [8, 8, false], [32, 8, false]] as const
  ) {
    const model = gradientModel([[16, inputs], [inputs, outputs]], (g, [x, w]) => g.gemm(x!, w!));
    const prepared = prepareModel(model);
    assert.equal(operations(prepared).includes("Transpose"), isFirst, `${inputs} to ${outputs}`);
    await assertSame(model, prepared);
  }
});

Deno.test("both gradients of a LayerNorm share what they normalise", async () => {
  const model = gradientModel(
    [[6, 16], [16], [16]],
    (g, [x, weight, bias]) => g.layerNorm(x!, weight!, bias!),
  );
  const prepared = prepareModel(model);
  const count = (op: string) => operations(prepared).filter((one) => one === op).length;
  assert.equal(count("Sub"), 3); // x − μ once, and two within the gradient of x
  assert.equal(count("ReduceMean"), 0);
  await assertSame(model, prepared);
});

Deno.test("softmax's gradient is that of the definition", async () => {
  const model = gradientModel([[2, 3, 8]], (g, [x]) => g.softmax(x!));
  await assertSame(model, prepareModel(model));
});

Deno.test("of nodes that compute the same one stays, and outputs of the graph keep theirs", () => {
  const g = new Graph(), x = g.input("x", [2]);
  const [a, b, c] = [g.exp(x), g.exp(x), g.exp(x)] as const;
  const ports = (values: Record<string, Value>) =>
    Object.entries(values).map(([name, value]) => ({ name, value }));
  const bytes = encodeModel(g, ports({ x }), ports({ sum: g.add(g.add(a, b), g.neg(a)), c }));
  const model = fromBinary(ModelProtoSchema, bytes);
  shareEqual(model.graph!);
  assert.deepEqual(operations(toBinary(ModelProtoSchema, model)).sort(), [
    "Add",
    "Add",
    "Exp",
    "Exp",
    "Neg",
  ]);
});
