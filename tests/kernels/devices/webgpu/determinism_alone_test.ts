/** Sums on the GPU have one order: the same bits each time, whichever thread comes first. */

import assert from "node:assert/strict";
import { type Device, Graph, openDevice, type Tensor } from "../../../../kernels/mod.ts";
import type { Value } from "../../../../kernels/graph/value.ts";
import { gpuTest, keepGpuOpen } from "../../../gpu.ts";
import { hostArray, modelOf, pseudoRandom, tensorOf } from "../models.ts";

keepGpuOpen();

const ROWS = 300, WIDTH = 24;

/** Rows of a table: fewer than are added to it, and more. */
const TABLES = [16, 400];

type Run = (ids: readonly number[], updates: readonly number[]) => Promise<Float32Array>;

/** Adds updates to the rows of a table of ones. */
async function openAddition(device: Device, table: number): Promise<Run> {
  const g = new Graph(),
    base = g.input("base", [table, WIDTH]),
    ids = g.input("ids", [ROWS], "i32");
  const y = g.scatterAdd(base, ids, g.input("updates", [ROWS, WIDTH]));
  const kernel = await device.compile(modelOf(g, { y }));
  const tensors = {
    base: tensorOf(device, [table, WIDTH], Array(table * WIDTH).fill(1)),
    ids: device.alloc("i32", [ROWS]),
    updates: device.alloc("f32", [ROWS, WIDTH]),
  };
  const result = device.alloc("f32", [table, WIDTH]), run = kernel.bind(tensors, { y: result });
  return async (ids, updates) => {
    device.write(tensors.ids, hostArray("i32", ids));
    device.write(tensors.updates, hostArray("f32", updates));
    await run();
    return await device.read<Float32Array>(result);
  };
}

const rowOf = (table: Float32Array, row: number) => table.slice(row * WIDTH, (row + 1) * WIDTH);

async function assertOneOrder(add: Run, table: number): Promise<void> {
  const updates = pseudoRandom(1, ROWS * WIDTH),
    all = (row: number) => Array<number>(ROWS).fill(row);
  const first = await add(all(5), updates);
  for (let row = 0; row < table; row++) {
    rowOf(first, row).forEach((got, column) => {
      const sum = (total: number, x: number, i: number) =>
        i % WIDTH === column ? total + Math.fround(x) : total;
      const want = row === 5 ? updates.reduce(sum, 1) : 1;
      assert.ok(Math.abs(got - want) < 1e-4, `row ${row}, column ${column}: ${got}, not ${want}`);
    });
  }
  for (let round = 0; round < 10; round++) {
    assert.deepEqual(await add(all(5), updates), first);
    // Another row is only another place.
    assert.deepEqual(rowOf(await add(all(round), updates), round), rowOf(first, 5));
  }
  // Which rows stand between does not matter: those of a row are added in the order of the batch.
  const ids = all(5).map((row, i) => i % 3 === 0 ? row : 6 + i % 7),
    spread = await add(ids, updates);
  const others = ids.map((row) => row === 5 ? row : 15);
  assert.deepEqual(rowOf(await add(others, updates), 5), rowOf(spread, 5));
}

gpuTest(
  "updates of one row are added with the same bits each time, whatever else is added",
  async () => {
    const device = await openDevice("webgpu");
    for (const table of TABLES) await assertOneOrder(await openAddition(device, table), table);
    device.close();
  },
);

/** A layer with every kind of sum: products, reductions, a norm, softmax, a loss's rows. */
function everySum(g: Graph, x: Value): Record<string, Value> {
  const weight = g.input("weight", [WIDTH, WIDTH]), targets = g.input("targets", [ROWS], "i32");
  const product = g.gemm(x, weight), seed = g.input("seed", [ROWS, 1]);
  const square = g.matmul(x, x, { transA: true, alpha: 0.5 });
  return {
    product,
    square,
    sum: g.sum(product, [0]),
    squares: g.sumOfSquares(product),
    norm: g.layerNorm(product, g.input("scale", [WIDTH]), g.input("shift", [WIDTH])),
    softmax: g.softmax(product),
    loss: g.crossEntropy(product, targets),
    gradient: g.scatterAddColumns(g.exp(product), targets, seed),
    long: g.gemm(g.input("a", [4, 1024]), g.input("b", [1024, 8])),
  };
}

gpuTest("every kind of sum has the same bits each time that it is made", async () => {
  const device = await openDevice("webgpu"), g = new Graph();
  const outputs = everySum(g, g.input("x", [ROWS, WIDTH])), model = modelOf(g, outputs);
  const inputs: Record<string, Tensor> = {};
  for (const { name, shape, dtype } of g.inputs) {
    const numbers = pseudoRandom(1, shape.reduce((product, size) => product * size, 1));
    const whole = numbers.map((x) => Math.floor((x + 1) / 2 * WIDTH));
    inputs[name] = tensorOf(device, shape, dtype === "i32" ? whole : numbers, dtype);
  }
  const results = Object.fromEntries(
    Object.entries(outputs).map(([name, { shape }]) => [name, device.alloc("f32", shape)]),
  );
  const first = new Map<string, Float32Array>();
  for (let session = 0; session < 2; session++) {
    const kernel = await device.compile(model), run = kernel.bind(inputs, results);
    for (let round = 0; round < 5; round++) {
      await run();
      for (const [name, tensor] of Object.entries(results)) {
        const bits = await device.read<Float32Array>(tensor);
        if (!first.has(name)) first.set(name, bits);
        assert.deepEqual(bits, first.get(name), `${name}, round ${round}, session ${session}`);
        device.zero(tensor);
      }
    }
    kernel.close();
  }
  device.close();
});
