/** ONNX Runtime's memory is one number for all isolates of a process, so this file runs alone. */

import assert from "node:assert/strict";
import { prepareModel } from "../../../kernels/devices/cpu/native.ts";
import { openOrt } from "../../../kernels/devices/cpu/ort_api.ts";
import { Graph, nativeLibraryPath, openNative, type Value } from "../../../kernels/mod.ts";
import { scratchBytes } from "../../../kernels/onnx/scratch.ts";
import { modelOf } from "./models.ts";

const SIZE = 512;

const row = (g: Graph) => g.constant(new Float32Array(SIZE).fill(0.5), [SIZE]);
const places = (g: Graph, ...shape: readonly number[]) =>
  g.constant(new Int32Array(shape.reduce((a, b) => a * b)), shape, "i32");
const truths = (g: Graph, a: Value) => [g.less(a, row(g)), g.greater(a, g.scalar(0))] as const;

/** Of a matrix that nothing reads afterwards. */
const OPERATIONS: Readonly<Record<string, (g: Graph, a: Value) => Value>> = {
  sin: (g, a) => g.sin(a),
  abs: (g, a) => g.abs(a),
  reciprocal: (g, a) => g.reciprocal(a),
  softplus: (g, a) => g.softplus(a),
  silu: (g, a) => g.silu(a),
  elu: (g, a) => g.elu(a),
  leakyRelu: (g, a) => g.leakyRelu(a),
  hardSigmoid: (g, a) => g.hardSigmoid(a),
  hardSwish: (g, a) => g.hardSwish(a),
  prelu: (g, a) => g.prelu(a, row(g)),
  pow: (g, a) => g.pow(a, g.scalar(3)),
  maximum: (g, a) => g.maximum(a, row(g)),
  clip: (g, a) => g.clip(a, 0, 1),
  equal: (g, a) => g.cast(g.equal(a, row(g)), "f32"),
  or: (g, a) => g.cast(g.or(...truths(g, a)), "f32"),
  not: (g, a) => g.cast(g.not(truths(g, a)[0]), "f32"),
  "where, by row": (g, a) => g.where(g.less(g.input("z", [SIZE]), row(g)), a, g.scalar(0)),
  "where, by element": (g, a) => g.where(g.less(g.input("z", a.shape), row(g)), a, g.scalar(0)),
  slice: (g, a) => g.slice(a, [1], [SIZE], [1]),
  "slice in steps": (g, a) => g.slice(a, [0], [SIZE], [1], [2]),
  "uneven split": (g, a) => g.split(a, 1, [12, SIZE - 12])[1]!,
  "uneven concat": (g, a) => g.concat([a, g.input("z", [SIZE, 1])], 1),
  "gather of columns": (g, a) => g.gather(a, places(g, SIZE), 1),
  gatherElements: (g, a) => g.gatherElements(a, places(g, SIZE, SIZE), 1),
  scatterND: (g, a) => g.scatterND(a, places(g, 1, 1), g.input("z", [1, SIZE])),
  max: (g, a) => g.max(a, [1]),
  norm: (g, a) => g.norm(a, [0]),
  logSumExp: (g, a) => g.logSumExp(a, [1]),
  argMax: (g, a) => g.cast(g.argMax(a, 1), "f32"),
  cumsum: (g, a) => g.cumsum(a, 1),
  rmsNorm: (g, a) => g.rmsNorm(a, row(g)),
  logSoftmax: (g, a) => g.logSoftmax(a),
  tile: (g, a) => g.tile(a, [2, 1]),
};

for (const [name, build] of Object.entries(OPERATIONS)) {
  Deno.test(`ONNX Runtime holds the planned memory of the operation ${name}`, async () => {
    const g = new Graph(), y = g.neg(build(g, g.exp(g.input("x", [SIZE, SIZE]))));
    const model = modelOf(g, { y }), device = await openNative();
    const ort = openOrt(await nativeLibraryPath(), { threads: 1, isBlocking: true });
    try {
      const kernel = await device.compile(model);
      const inputs = g.inputs.map(({ name, shape }) => [name, device.alloc("f32", shape)]);
      await kernel.bind(Object.fromEntries(inputs), { y: device.alloc("f32", y.shape) })();
      const planned = scratchBytes(prepareModel(model)), held = ort.arenaBytes();
      assert.ok(held >= planned && held < 1.1 * planned, `planned ${planned}, held ${held}`);
    } finally {
      ort.close();
      device.close();
    }
  });
}
