/** Outputs over inputs have the bits that they have apart, whichever way they come about. */

import assert from "node:assert/strict";
import { type Device, Graph, openDevice, type Tensor } from "../../../../kernels/mod.ts";
import { IN_PLACE } from "../../../../kernels/devices/webgpu/model/in_place.ts";
import { prepareModel } from "../../../../kernels/devices/webgpu/model/prepare_model.ts";
import type { Value } from "../../../../kernels/graph/value.ts";
import { gpuTest, keepGpuOpen } from "../../../gpu.ts";
import { hostArray, modelOf, pseudoRandom } from "../models.ts";

keepGpuOpen();

/** Rows of a square: its elements fill thousands of workgroups, and its rows many tiles of a product. */
const N = 160;

/** Builds y, which is to lie over the input x. */
type Build = (g: Graph, x: Value) => Value;

const other = (g: Graph) => g.input("other", [N, N]);
const mask = (g: Graph) => g.input("mask", [N, N]);
const rows = (g: Graph) => g.input("rows", [N], "i32");

/** What is in the list, at each place of it. */
const LISTED: Readonly<Record<string, Build>> = {
  "Add 0": (g, x) => g.add(x, other(g)),
  "Add 1": (g, x) => g.add(other(g), x),
  "Sub 0": (g, x) => g.sub(x, other(g)),
  "Sub 1": (g, x) => g.sub(other(g), x),
  "Mul 0": (g, x) => g.mul(x, other(g)),
  "Mul 1": (g, x) => g.mul(other(g), x),
  "Cast 0": (g, x) => g.node("Cast", [x], [x.shape], { to: 1 })[0]!,
  "Where 1": (g, x) => g.where(g.greater(mask(g), g.scalar(0)), x, other(g)),
  "Where 2": (g, x) => g.where(g.greater(mask(g), g.scalar(0)), other(g), x),
  "Gemm 2": (g, x) => g.gemm(other(g), g.input("right", [N, N]), x, { transA: true }),
  "ScatterND 0": (g, x) =>
    g.scatterAdd(x, g.input("some", [N / 4], "i32"), g.input("updates", [N / 4, N])),
  "ScatterElements 0": (g, x) => g.scatterAddColumns(x, rows(g), g.input("updates", [N, 1])),
  "Softmax 0": (g, x) => g.softmax(x),
};

/** More ways of the same, as training and others use them. */
const FREE: Readonly<Record<string, Build>> = {
  "more updates than rows": (g, x) => g.scatterAdd(x, rows(g), other(g)),
  "both operands": (g, x) => g.mul(x, x),
  "an operand that is repeated": (g, x) => g.add(x, g.input("bias", [N])),
  "the second operand transposed": (g, x) =>
    g.gemm(other(g), g.input("right", [N, N]), x, { transB: true }),
  "a chain of element-wise operations": (g, x) =>
    g.sub(g.mul(x, g.scalar(0.9)), g.mul(g.add(x, other(g)), g.scalar(0.1))),
};

/** What would be wrong in place; some only after the library has made one node of two. */
const COPIED: Readonly<Record<string, Build>> = {
  Transpose: (g, x) => g.transpose(x, [1, 0]),
  MatMul: (g, x) => g.matmul(x, other(g)),
  "MatMul of both operands": (g, x) => g.matmul(x, x),
  "Softmax of columns": (g, x) => g.softmax(x, 0),
  "a mean of columns, repeated": (g, x) => g.expand(g.mean(x, [0], true), [N, N]),
  Gather: (g, x) => g.gather(x, rows(g)),
  "rows in another order": (g, x) => g.concat(g.split(x, 0, 2).toReversed(), 0),
  "a product and the sum with its operand": (g, x) => g.add(g.matmul(x, other(g)), x),
  "a product and a sum": (g, x) => g.add(g.matmul(x, other(g)), g.input("bias", [N])),
  "a transposition before a product": (g, x) =>
    g.gemm(g.transpose(x, [1, 0]), other(g), g.input("right", [N, N])),
  "a transposition of what is multiplied by one": (g, x) =>
    g.transpose(g.mul(x, g.scalar(1)), [1, 0]),
  "the same memory in another shape": (g, x) =>
    g.reshape(g.add(g.reshape(x, [N / 2, 2 * N]), g.input("bias", [2 * N])), [N, N]),
  "a normal form, written out": (g, x) => {
    const centred = g.sub(x, g.mean(x, [1], true));
    const deviation = g.sqrt(g.add(g.mean(g.mul(centred, centred), [1], true), g.scalar(1e-5)));
    const normal = g.div(centred, deviation);
    return g.add(g.mul(normal, g.input("weight", [N])), g.input("bias", [N]));
  },
};

async function results(device: Device, build: Build): Promise<[Float32Array, Float32Array]> {
  const g = new Graph(), y = build(g, g.input("x", [N, N]));
  const kernel = await device.compile(modelOf(g, { y }));
  const tensors: Record<string, Tensor> = {};
  const write = ({ name, shape, dtype }: Value, i: number) => {
    const numbers = pseudoRandom(i * 1e6, shape.reduce((product, size) => product * size, 1));
    const whole = numbers.map((number) => Math.floor((number + 1) * N / 2));
    tensors[name] ??= device.alloc(dtype, shape);
    device.write(tensors[name]!, hostArray(dtype, dtype === "i32" ? whole : numbers));
  };
  g.inputs.forEach(write);
  const apart = device.alloc("f32", [N, N]);
  await kernel.bind(tensors, { y: apart })();
  const wanted = await device.read<Float32Array>(apart);
  await kernel.bind(tensors, { y: tensors.x! })();
  const received = await device.read<Float32Array>(tensors.x!);
  for (const tensor of [apart, ...Object.values(tensors)]) device.free(tensor);
  kernel.close();
  return [received, wanted];
}

function isFree(build: Build): boolean {
  const g = new Graph(), y = build(g, g.input("x", [N, N]));
  return prepareModel(modelOf(g, { y })).inPlace.get("y")!.has("x");
}

gpuTest("an output over an input has the bits that it has apart", async (t) => {
  const device = await openDevice("webgpu");
  for (const [what, build] of Object.entries({ ...LISTED, ...FREE, ...COPIED })) {
    await t.step(what, async () => {
      const [received, wanted] = await results(device, build);
      const different = received.filter((value, i) => !Object.is(value, wanted[i])).length;
      assert.equal(different, 0, `${different} of ${N * N} elements differ`);
    });
  }
  device.close();
});

Deno.test("every place of the list is tried, and nothing else is computed in place", () => {
  const places = Object.entries(IN_PLACE).flatMap(([op, at]) =>
    at.map((place) => `${op} ${place}`)
  );
  assert.deepEqual(places.sort(), Object.keys(LISTED).sort());
  for (const [what, build] of Object.entries({ ...LISTED, ...FREE })) {
    assert.ok(isFree(build), what);
  }
  for (const [what, build] of Object.entries(COPIED)) assert.ok(!isFree(build), what);
});
