/** The promises of every device; `devices_test.ts` and `webgpu_alone_test.ts` run the whole of them. */

import assert from "node:assert/strict";
import { type Device, type DType, DTYPE_BYTES } from "../../../kernels/devices/device.ts";
import { Graph } from "../../../kernels/ops/graph.ts";
import type { RegisterTest } from "../../devices.ts";
import {
  hostArray,
  modelOf,
  numbersOf,
  pseudoRandom,
  runModel,
  square,
  tensorOf,
  withDevice,
} from "./models.ts";

type Check = (device: Device) => Promise<void> | void;

const DTYPES = Object.keys(DTYPE_BYTES) as DType[];

/** The checks of tensors. */
const MEMORY: Record<string, Check> = {
  async "gives zeroed tensors, also where dirty memory was freed, and counts their bytes"(device) {
    const before = device.allocatedBytes;
    for (const dtype of [...DTYPES, ...DTYPES]) {
      const tensor = device.alloc(dtype, [4000, 5]);
      assert.deepEqual(tensor.shape, [4000, 5]);
      assert.equal(device.allocatedBytes - before, 20_000 * DTYPE_BYTES[dtype]);
      assert.deepEqual(await numbersOf(device, tensor), Array(20_000).fill(0));
      device.write(tensor, hostArray(dtype, Array(20_000).fill(1)));
      device.free(tensor);
      assert.equal(device.allocatedBytes, before);
    }
  },

  async "reads back written values, in every dtype, into arrays that can be transferred"(device) {
    for (const dtype of DTYPES) {
      const data = hostArray(dtype, [1, 0, 1]), tensor = tensorOf(device, [3], [1, 0, 1], dtype);
      const array = await device.read(tensor), into = hostArray(dtype, [0, 0, 0]);
      assert.equal(await device.read(tensor, into), into);
      assert.deepEqual(into, data);
      assert.equal(array.buffer.byteLength, array.byteLength);
      const { buffer } = array as { buffer: ArrayBuffer };
      assert.deepEqual(structuredClone(array, { transfer: [buffer] }), data);
    }
  },

  async "holds scalars and empty tensors"(device) {
    assert.deepEqual(await numbersOf(device, tensorOf(device, [], [5])), [5]);
    assert.deepEqual(await numbersOf(device, device.alloc("f32", [0, 4])), []);
  },

  async "lets views share the memory of a tensor, and sets parts and all of it to zero"(device) {
    const before = device.allocatedBytes, whole = tensorOf(device, [6], [0, 1, 2, 3, 4, 5]);
    const rows = device.view(whole, 2, [2, 2]);
    assert.deepEqual(await numbersOf(device, rows), [2, 3, 4, 5]);
    const last = device.view(rows, 3, []);
    device.write(last, Float32Array.of(9));
    device.zero(device.view(whole, 0, [2]));
    assert.deepEqual(await numbersOf(device, whole), [0, 0, 2, 3, 4, 9]);
    device.zero(whole);
    assert.deepEqual(await numbersOf(device, rows), [0, 0, 0, 0]);
    assert.equal(device.allocatedBytes - before, 24);
  },

  "refuses dtypes that there are not"(device) {
    const message =
      "Cannot make a tensor: its dtype must be one of f32, f16, i32, i64, bool, received ";
    for (const dtype of ["f64", "", "toString"]) {
      const refusal = { name: "TypeError", message: message + dtype };
      assert.throws(() => device.alloc(dtype as DType, [1]), refusal);
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

  async "binds one kernel to the memory of many layers, an output over an input"(device) {
    const kernel = await device.compile(square([1]));
    const tensors = [2, 3, 4].map((number) => tensorOf(device, [1], [number]));
    const runs = tensors.map((tensor) => kernel.bind({ x: tensor }, { y: tensor }));
    for (const run of [...runs, runs[0]!]) await run();
    const results = await Promise.all(tensors.map((tensor) => numbersOf(device, tensor)));
    assert.deepEqual(results.flat(), [16, 9, 16]);
  },

  async "reduces each element separately over empty axes, and over all axes by default"(device) {
    const g = new Graph(), x = g.input("x", [2, 2]);
    const [bare] = g.node("ReduceSum", [x, g.int64([])], [[]], { keepdims: 0 });
    const model = modelOf(g, {
      ...{ sum: g.sum(x, []), mean: g.mean(x, []), squares: g.sumOfSquares(x, [], true) },
      ...{ all: g.sum(x), bare: bare! },
    });
    const results = await runModel(device, model, () => [1, 2, 3, 4]);
    const wanted = [[1, 2, 3, 4], [1, 2, 3, 4], [1, 4, 9, 16], [10], [10]];
    assert.deepEqual([...results.values()], wanted);
  },

  async "multiplies matrices without elements to sums of nothing"(device) {
    const g = new Graph(),
      a = g.input("a", [2, 0]),
      b = g.input("b", [0, 3]),
      c = g.input("c", [3]);
    const added = g.gemm(a, b, c, { beta: 0.5 }), batch = g.reshape(a, [2, 1, 0]);
    const results = await runModel(
      device,
      modelOf(g, { added, bare: g.gemm(a, b), each: g.matmul(batch, b, { alpha: 2 }) }),
      ({ shape }) => shape.includes(0) ? [] : [2, 4, 6],
    );
    assert.deepEqual([...results.values()], [
      [1, 2, 3, 1, 2, 3],
      Array(6).fill(0),
      Array(6).fill(0),
    ]);
  },

  async "gives the same bits for the same inputs"(device) {
    const g = new Graph(), x = g.input("x", [64, 48]), w = g.input("w", [48, 32]);
    const model = modelOf(g, { y: g.softmax(g.gelu(g.gemm(x, w))) });
    const run = () => runModel(device, model, ({ shape: [n, m] }, i) => pseudoRandom(i, n! * m!));
    assert.deepEqual(await run(), await run());
  },

  async "refuses to bind other names, dtypes, shapes and dead tensors, or to run then"(device) {
    const kernel = await device.compile(square([2]));
    const x = device.alloc("f32", [2]), y = device.alloc("f32", [2]);
    const runs = [kernel.bind({ x }, { y }), kernel.bind({ x: y }, { y })];
    assert.throws(() => kernel.bind({}, { y }), /input "x" must be given/);
    assert.throws(() => kernel.bind({ x }, {}), /output "y" must be given/);
    assert.throws(() => kernel.bind({ x, z: x }, { y }), /"z"/);
    assert.throws(() => kernel.bind({ x }, { y: device.alloc("f32", [1, 2]) }), TypeError);
    assert.throws(() => kernel.bind({ x: device.alloc("i32", [2]) }, { y }), /f32 \[2\].*i32/);
    device.free(x);
    assert.throws(() => kernel.bind({ x }, { y }), TypeError);
    await assert.rejects(runs[0]!(), TypeError);
    device.free(y);
    await assert.rejects(runs[1]!(), TypeError);
  },

  async "keeps memory that is freed during a run until the run is over"(device) {
    const n = 100_000, before = device.allocatedBytes;
    const kernel = await device.compile(square([n]));
    const x = tensorOf(device, [n], Array(n).fill(3)), y = device.alloc("f32", [n]);
    const running = kernel.bind({ x }, { y })();
    device.free(x);
    // Memory given out now must not be what the run still reads.
    device.write(device.alloc("f32", [n]), new Float32Array(n).fill(9));
    await running;
    assert.ok((await numbersOf(device, y)).every((value) => value === 9));
    assert.equal(device.allocatedBytes - before, 8 * n);
  },

  async "refuses bytes that are not a model, and a model with unknown operations"(device) {
    await assert.rejects(device.compile(Uint8Array.of(1, 2, 3)), Error);
    const g = new Graph();
    const [y] = g.node("Frobnicate", [g.input("x", [1])], [[1]]);
    await assert.rejects(device.compile(modelOf(g, { y: y! })), /Frobnicate/);
  },
};

/** The checks of devices whose memory is cleared. */
const CLEAR: Record<string, Check> = {
  async "keeps compiled kernels, and neither tensors nor runs, when it is cleared"(device) {
    const models = [square([2]), square([3])];
    const kernels = await Promise.all(models.map((model) => device.compile(model)));
    const x = tensorOf(device, [2], [3, 4]), run = kernels[0]!.bind({ x }, { y: x });
    device.clear!();
    assert.equal(device.allocatedBytes, 0);
    assert.throws(() => device.zero(x), /freed/);
    await assert.rejects(run(), /freed/);
    const again = [await device.compile(square([3])), await device.compile(square([3]))];
    assert.equal(again[0], kernels[1]);
    assert.ok(!kernels.includes(again[1]!), "a kernel that is in use is not returned again");
    const y = tensorOf(device, [3], [1, 2, 3]);
    await again[0]!.bind({ x: y }, { y })();
    assert.deepEqual(await numbersOf(device, y), [1, 4, 9]);
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

  async "finishes compilations and runs that were started before close"(device) {
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
      for (const [sentence, check] of Object.entries({ ...CLEAR, ...CLOSE })) {
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
