/** The promises of every device; `devices_test.ts` and `webgpu_alone_test.ts` run the whole of them. */

import assert from "node:assert/strict";
import {
  type Device,
  type DType,
  DTYPE_BYTES,
  type Tensor,
} from "../../../kernels/devices/device.ts";
import { Graph } from "../../../kernels/graph/graph.ts";
import type { RegisterTest } from "../../devices.ts";
import {
  hostArray,
  modelOf,
  numbersOf,
  pseudoRandom,
  square,
  tensorOf,
  withDevice,
} from "./models.ts";

type Check = (device: Device) => Promise<void> | void;

const DTYPES = Object.keys(DTYPE_BYTES) as DType[];

/** The checks of tensors. */
const MEMORY: Record<string, Check> = {
  async "gives zeroed tensors and counts their bytes"(device) {
    const before = device.allocatedBytes;
    for (const dtype of DTYPES) {
      const tensor = device.alloc(dtype, [3, 5]);
      assert.deepEqual(tensor.shape, [3, 5]);
      assert.equal(device.allocatedBytes - before, 15 * DTYPE_BYTES[dtype]);
      assert.deepEqual(await numbersOf(device, tensor), Array(15).fill(0));
      device.write(tensor, hostArray(dtype, Array(15).fill(1)));
      device.free(tensor);
      assert.equal(device.allocatedBytes, before);
    }
  },

  async "gives zeroed memory again after dirty memory was freed"(device) {
    for (let round = 0; round < 3; round++) {
      const tensor = device.alloc("f32", [1000]);
      assert.ok((await numbersOf(device, tensor)).every((x) => x === 0));
      device.write(tensor, new Float32Array(1000).fill(7));
      device.free(tensor);
    }
  },

  async "reads back what was written, in every dtype"(device) {
    for (const dtype of DTYPES) {
      const data = hostArray(dtype, [1, 0, 1]);
      const tensor = device.alloc(dtype, [3]);
      device.write(tensor, data);
      assert.deepEqual(await device.read(tensor), data);
      const into = hostArray(dtype, [0, 0, 0]);
      assert.equal(await device.read(tensor, into), into);
      assert.deepEqual(into, data);
    }
  },

  async "reads into arrays that can be transferred"(device) {
    const array = await device.read(tensorOf(device, [2], [3, 4]));
    assert.ok(array.buffer instanceof ArrayBuffer);
    assert.equal(array.buffer.byteLength, array.byteLength);
    assert.equal(structuredClone(array, { transfer: [array.buffer] })[1], 4);
  },

  async "holds scalars and empty tensors"(device) {
    assert.deepEqual(await numbersOf(device, tensorOf(device, [], [5])), [5]);
    assert.deepEqual(await numbersOf(device, device.alloc("f32", [0, 4])), []);
  },

  async "lets views share the memory of their tensor"(device) {
    const before = device.allocatedBytes, whole = tensorOf(device, [6], [0, 1, 2, 3, 4, 5]);
    const rows = device.view(whole, 2, [2, 2]);
    assert.deepEqual(await numbersOf(device, rows), [2, 3, 4, 5]);
    const last = device.view(rows, 3, []);
    device.write(last, Float32Array.of(9));
    device.zero(device.view(whole, 0, [2]));
    assert.deepEqual(await numbersOf(device, whole), [0, 0, 2, 3, 4, 9]);
    assert.equal(device.allocatedBytes - before, 24);
  },

  "refuses dtypes that there are not"(device) {
    for (const dtype of ["f64", "", "toString"]) {
      assert.throws(() => device.alloc(dtype as DType, [1]), {
        name: "TypeError",
        message:
          `Cannot make a tensor: its dtype must be one of f32, f16, i32, i64, bool, received ${dtype}`,
      });
    }
  },

  "refuses views that leave their tensor, and shapes that there are not"(device) {
    const whole = device.alloc("f32", [6]), rows = device.view(whole, 2, [2, 2]);
    for (const [offset, size] of [[4, 3], [-1, 1], [0.5, 1], [0, 1.5], [0, -1]] as const) {
      assert.throws(() => device.view(whole, offset, [size]), RangeError);
    }
    assert.throws(() => device.view(rows, 1, [4]), RangeError);
    for (const size of [-1, 1.5, NaN]) {
      assert.throws(() => device.alloc("f32", [2, size]), /whole numbers from 0, received \[2,/);
    }
  },

  async "counts the bytes that it copies"(device) {
    const { toDevice, toHost } = device.copied;
    await device.read(device.view(tensorOf(device, [3], [1, 2, 3]), 0, [2]));
    const { copied } = device;
    assert.deepEqual([copied.toDevice - toDevice, copied.toHost - toHost], [12, 8]);
  },

  async "sets the beginning of a tensor to zero, and all of it"(device) {
    const tensor = tensorOf(device, [9], Array(9).fill(5));
    device.zero(device.view(tensor, 0, [3]));
    assert.deepEqual(await numbersOf(device, tensor), [0, 0, 0, 5, 5, 5, 5, 5, 5]);
    for (let round = 0; round < 2; round++) {
      device.zero(tensor);
      assert.deepEqual(await numbersOf(device, tensor), Array(9).fill(0));
      device.write(tensor, new Float32Array(9).fill(round));
    }
  },

  async "refuses host arrays of another length or dtype"(device) {
    const tensor = device.alloc("f32", [2]);
    assert.throws(() => device.write(tensor, new Float32Array(3)), RangeError);
    assert.throws(() => device.write(tensor, new Int32Array(2)), TypeError);
    await assert.rejects(device.read(tensor, new Float32Array(1)), RangeError);
  },

  async "refuses tensors that were freed, views of them, and views to free"(device) {
    const tensor = device.alloc("f32", [2]);
    const view = device.view(tensor, 0, [1]);
    assert.throws(() => device.free(view), /view/);
    device.free(tensor);
    assert.throws(() => device.free(tensor), TypeError);
    assert.throws(() => device.zero(view), TypeError);
    await assert.rejects(device.read(tensor), TypeError);
  },
};

/** The checks of kernels. */
const KERNELS: Record<string, Check> = {
  async "names the inputs and outputs of a kernel"(device) {
    const g = new Graph();
    const a = g.input("a", [2]), b = g.input("b", [2]);
    const kernel = await device.compile(modelOf(g, { sum: g.add(a, b), product: g.mul(a, b) }));
    assert.deepEqual(kernel.inputs, ["a", "b"]);
    assert.deepEqual(kernel.outputs, ["sum", "product"]);
  },

  async "computes the outputs of a kernel each time it runs"(device) {
    const kernel = await device.compile(square([3]));
    const x = tensorOf(device, [3], [1, 2, 3]), y = device.alloc("f32", [3]);
    const run = kernel.bind({ x }, { y });
    await run();
    assert.deepEqual(await numbersOf(device, y), [1, 4, 9]);
    device.write(x, Float32Array.of(4, 5, 6));
    await run();
    assert.deepEqual(await numbersOf(device, y), [16, 25, 36]);
  },

  async "runs on views at any offset"(device) {
    const kernel = await device.compile(square([2]));
    const whole = tensorOf(device, [7], [0, 0, 0, 5, 6, 0, 0]);
    await kernel.bind({ x: device.view(whole, 3, [2]) }, { y: device.view(whole, 5, [2]) })();
    assert.deepEqual(await numbersOf(device, whole), [0, 0, 0, 5, 6, 25, 36]);
  },

  async "binds one kernel to the memory of many layers"(device) {
    const kernel = await device.compile(square([1]));
    const tensors = [2, 3, 4].map((number) => tensorOf(device, [1], [number]));
    const runs = tensors.map((tensor) => kernel.bind({ x: tensor }, { y: tensor }));
    for (const run of [...runs, runs[0]!]) await run();
    const results = await Promise.all(tensors.map((tensor) => numbersOf(device, tensor)));
    assert.deepEqual(results.flat(), [16, 9, 16]);
  },

  async "lets an output share the memory of an input"(device) {
    const kernel = await device.compile(square([3]));
    const x = tensorOf(device, [3], [1, 2, 3]);
    const run = kernel.bind({ x }, { y: x });
    await run();
    await run();
    assert.deepEqual(await numbersOf(device, x), [1, 16, 81]);
  },

  async "accumulates a product in place through the third operand of Gemm"(device) {
    const g = new Graph();
    const x = g.input("x", [5, 3]), dy = g.input("dy", [5, 4]), sum = g.input("sum", [3, 4]);
    const model = modelOf(g, { total: g.gemm(x, dy, sum, { transA: true }) });
    const kernel = await device.compile(model);
    const left = tensorOf(device, [5, 3], Array.from({ length: 15 }, (_, i) => i));
    const right = tensorOf(device, [5, 4], Array.from({ length: 20 }, (_, i) => i));
    const total = device.alloc("f32", [3, 4]);
    const run = kernel.bind({ x: left, dy: right, sum: total }, { total });
    for (let i = 0; i < 3; i++) await run();
    const sums = [1080, 1170, 1260, 1350, 1200, 1305, 1410, 1515, 1320, 1440, 1560, 1680];
    assert.deepEqual(await numbersOf(device, total), sums);
  },

  async "steps a parameter and its moments in place, with the bits that they have apart"(device) {
    const n = 1000, g = new Graph(), names = ["p", "m", "v", "d"];
    const [p, m, v, d] = names.map((name) => g.input(name, [n]));
    const m2 = g.add(m!, g.mul(g.sub(d!, m!), g.scalar(0.1)));
    const v2 = g.add(v!, g.mul(g.sub(g.mul(d!, d!), v!), g.scalar(0.05)));
    const p2 = g.sub(p!, g.div(m2, g.add(g.sqrt(v2), g.scalar(1))));
    const kernel = await device.compile(modelOf(g, { p2, m2, v2 }));
    const inputs = Object.fromEntries(names.map((name, i) => [
      name,
      tensorOf(device, [n], pseudoRandom(3 + i, n).map(Math.abs)),
    ]));
    const step = async (outputs: readonly Tensor[]) => {
      const [p2, m2, v2] = outputs as [Tensor, Tensor, Tensor];
      await kernel.bind(inputs, { p2, m2, v2 })();
      return await Promise.all(outputs.map((tensor) => device.read(tensor)));
    };
    const apart = await step([1, 2, 3].map(() => device.alloc("f32", [n])));
    assert.deepEqual(await step([inputs.p!, inputs.m!, inputs.v!]), apart);
  },

  async "reduces over no axes each element by itself, and over all where none are named"(device) {
    const g = new Graph();
    const x = g.input("x", [2, 2]);
    const [bare] = g.node("ReduceSum", [x, g.int64([])], [[]], { keepdims: 0 });
    const kernel = await device.compile(modelOf(g, {
      ...{ sum: g.sum(x, []), mean: g.mean(x, []), squares: g.sumOfSquares(x, [], true) },
      ...{ all: g.sum(x), bare: bare! },
    }));
    const shapes = { sum: [2, 2], mean: [2, 2], squares: [2, 2], all: [], bare: [] };
    const outputs = Object.fromEntries(
      Object.entries(shapes).map(([name, shape]) => [name, device.alloc("f32", shape)]),
    );
    await kernel.bind({ x: tensorOf(device, [2, 2], [1, 2, 3, 4]) }, outputs)();
    const results = [];
    for (const tensor of Object.values(outputs)) results.push(await numbersOf(device, tensor));
    assert.deepEqual(results, [[1, 2, 3, 4], [1, 2, 3, 4], [1, 4, 9, 16], [10], [10]]);
  },

  async "gives the same bits for the same inputs"(device) {
    const g = new Graph();
    const x = g.input("x", [64, 48]), w = g.input("w", [48, 32]);
    const kernel = await device.compile(modelOf(g, { y: g.softmax(g.gelu(g.gemm(x, w))) }));
    const y = device.alloc("f32", [64, 32]);
    const run = kernel.bind({
      x: tensorOf(device, [64, 48], pseudoRandom(7, 64 * 48)),
      w: tensorOf(device, [48, 32], pseudoRandom(8, 48 * 32)),
    }, { y });
    await run();
    const first = await device.read(y);
    device.zero(y);
    await run();
    assert.deepEqual(await device.read(y), first);
  },

  async "refuses to bind other names, dtypes, shapes and dead tensors"(device) {
    const kernel = await device.compile(square([2]));
    const x = device.alloc("f32", [2]), y = device.alloc("f32", [2]);
    assert.throws(() => kernel.bind({}, { y }), /input "x" must be given/);
    assert.throws(() => kernel.bind({ x }, {}), /output "y" must be given/);
    assert.throws(() => kernel.bind({ x, z: x }, { y }), /"z"/);
    assert.throws(() => kernel.bind({ x }, { y: device.alloc("f32", [1, 2]) }), TypeError);
    assert.throws(() => kernel.bind({ x: device.alloc("i32", [2]) }, { y }), /f32 \[2\].*i32/);
    device.free(x);
    assert.throws(() => kernel.bind({ x }, { y }), TypeError);
  },

  async "refuses to run after a bound tensor was freed"(device) {
    const kernel = await device.compile(square([2]));
    const x = device.alloc("f32", [2]), y = device.alloc("f32", [2]);
    const run = kernel.bind({ x }, { y });
    device.free(y);
    await assert.rejects(run(), TypeError);
  },

  async "keeps memory that is freed during a run until the run is over"(device) {
    const n = 100_000, before = device.allocatedBytes;
    const kernel = await device.compile(square([n]));
    const x = device.alloc("f32", [n]), y = device.alloc("f32", [n]);
    device.write(x, new Float32Array(n).fill(3));
    const run = kernel.bind({ x }, { y });
    const running = run();
    device.free(x);
    // Memory given out now must not be what the run still reads.
    device.write(device.alloc("f32", [n]), new Float32Array(n).fill(9));
    await running;
    assert.ok((await numbersOf(device, y)).every((value) => value === 9));
    assert.equal(device.allocatedBytes - before, 8 * n);
  },

  async "refuses what is no model, and a model of unknown operations"(device) {
    await assert.rejects(device.compile(Uint8Array.of(1, 2, 3)), Error);
    const g = new Graph();
    const [y] = g.node("Frobnicate", [g.input("x", [1])], [[1]]);
    await assert.rejects(device.compile(modelOf(g, { y: y! })), /Frobnicate/);
  },
};

/** The checks of endings. */
const CLOSE: Record<string, Check> = {
  async "refuses every use after close"(device) {
    const kernel = await device.compile(square([2]));
    const x = device.alloc("f32", [2]);
    const run = kernel.bind({ x }, { y: x });
    device.close();
    device.close();
    assert.equal(device.allocatedBytes, 0);
    assert.throws(() => device.alloc("f32", [1]), /closed/);
    assert.throws(() => device.zero(x), /closed/);
    assert.throws(() => kernel.bind({ x }, { y: x }), /closed/);
    await assert.rejects(device.read(x), /closed/);
    await assert.rejects(device.compile(square([2])), /closed/);
    await assert.rejects(run(), /closed/);
  },

  async "refuses to run a closed kernel and keeps the others"(device) {
    const first = await device.compile(square([1])), second = await device.compile(square([1]));
    const x = tensorOf(device, [1], [3]);
    const runs = [first, second].map((kernel) => kernel.bind({ x }, { y: x }));
    first.close();
    await assert.rejects(runs[0]!(), /closed/);
    await runs[1]!();
    assert.deepEqual(await numbersOf(device, x), [9]);
  },

  async "finishes compiling and running what was begun before close"(device) {
    const kernel = await device.compile(square([1000]));
    const x = device.alloc("f32", [1000]);
    const running = kernel.bind({ x }, { y: x })();
    const compiling = device.compile(square([2]));
    device.close();
    await running;
    await assert.rejects(async () => (await compiling).bind({ x }, { y: x }), /closed/);
  },
};

/** Registers the tests of a device: all use one, but those of endings, which have one each. */
export function testContract(
  name: string,
  open: () => Promise<Device>,
  test: RegisterTest = Deno.test,
): void {
  const use = (check: Check) =>
    withDevice(open(), async (device) => {
      assert.equal(device.name, name);
      await check(device);
    });
  test(`the ${name} device keeps the contract of all devices`, (t) =>
    use(async (device) => {
      for (const [sentence, check] of Object.entries({ ...MEMORY, ...KERNELS })) {
        await t.step(`the ${name} device ${sentence}`, async () => await check(device));
      }
      for (const [sentence, check] of Object.entries(CLOSE)) {
        await t.step(`the ${name} device ${sentence}`, () => use(check));
      }
      await t.step(`the ${name} device refuses tensors of another device`, () =>
        use(async (other) => {
          const tensor = other.alloc("f32", [2]), kernel = await device.compile(square([2]));
          assert.throws(() =>
            device.zero(tensor), TypeError);
          const outputs = { y: device.alloc("f32", [2]) };
          assert.throws(() => kernel.bind({ x: tensor }, outputs), TypeError);
        }));
    }));
}
