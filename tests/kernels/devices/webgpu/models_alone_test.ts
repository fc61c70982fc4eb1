/** Models on the GPU: all operations of a training are there, sums have one order, outputs may be over inputs. */

import assert from "node:assert/strict";
import { chooseAdapters, webgpuAdapters } from "../../../../kernels/devices/webgpu/adapters.ts";
import { enterGpu, leaveGpu } from "../../../../kernels/devices/webgpu/gpu_memory.ts";
import { IN_PLACE, prepareModel } from "../../../../kernels/devices/webgpu/prepare.ts";
import { openWebgpu } from "../../../../kernels/devices/webgpu/webgpu.ts";
import type { Value } from "../../../../kernels/graph/value.ts";
import {
  ADAMW_DEFAULTS,
  compileModel,
  type Device,
  gpt2,
  Graph,
  nativeLibraryPath,
  openDevice,
  openReference,
  PRECISIONS,
} from "../../../../kernels/mod.ts";
import { openGradientNorms } from "../../../../kernels/stage/gradients.ts";
import { openOptimizer } from "../../../../kernels/stage/optimizer.ts";
import { createParameters } from "../../../../kernels/stage/parameters.ts";
import { atDepth } from "../../../depth.ts";
import { gpuTest, keepGpuOpen } from "../../../gpu.ts";
import { closing, modelOf, pseudoRandom, runModel, tensorOf, withDevice } from "../models.ts";
import { numbersFor, trainedModels } from "./preparing.ts";
import { farthest } from "../../../onnx.ts";

keepGpuOpen();

const onGpu = (use: (device: Device) => Promise<void>) => withDevice(openDevice("webgpu"), use);

/** Registers a test of the device. */
const deviceTest = (name: string, use: (device: Device) => Promise<void>) =>
  gpuTest(name, () => onGpu(use));

// A session is made strictly: a node without a kernel on the GPU, shapes not excepted, is an error.
gpuTest("no node that training a GPT-2, a Llama or an MLP makes is left to the CPU", async () => {
  const models = await trainedModels();
  for (const precision of PRECISIONS) {
    for (const vocab of [20, 2000]) {
      // With this many rows products and the sums of equal tokens are written in parts.
      const large = gpt2({ layers: 1, hidden: 8, heads: 1, seq: 1300, vocab }, 1);
      const { programs } = compileModel(large, "none", { precision });
      const some = programs.flatMap(({ models }) => Object.entries(models));
      for (const [i, [what, model]] of some.entries()) {
        models.set(`${precision} ${what} of many rows and ${vocab} tokens, model ${i}`, model);
      }
    }
  }
  assert.ok(models.size > 80, `${models.size} models`);
  const [adapter] = chooseAdapters(await webgpuAdapters());
  const gpu = await enterGpu(await nativeLibraryPath(), adapter);
  try {
    for (const [what, model] of models) {
      const { bytes } = prepareModel(model);
      assert.doesNotThrow(() => gpu.releaseSession(gpu.createSession(bytes)), what);
    }
  } finally {
    leaveGpu();
  }
});

const REFUSED: readonly (readonly [(g: Graph, x: Value) => Value, RegExp])[] = [
  [
    (g, x) => g.add(g.node("Mod", [g.exp(x), x], [x.shape], { fmod: 1 })[0]!, x),
    /^Error: Cannot compile the model for webgpu: .* received Mod \(node "Mod_1"\) without one; use .*[^.]$/,
  ],
  [
    (g, x) => g.cast(g.cast(x, "f16"), "f32"),
    /^Error: Cannot compile the model for webgpu: .*FP16 \(shader-f16\), received SwiftShader.*; use precision fp32, or other adapters$/,
  ],
];

deviceTest("an operation without a kernel, and missing FP16, are refused", async (device) => {
  for (const [build, message] of REFUSED) {
    const g = new Graph(), y = build(g, g.input("x", [4]));
    await assert.rejects(device.compile(modelOf(g, { y })), message);
    // The device is as good as before.
    (await device.compile(modelOf(g, { y: g.neg(g.inputs[0]!) }))).close();
  }
});

/** Rows of a square: its elements fill thousands of workgroups, and its rows many tiles of a product. */
const N = 160;

/** Builds y, whose memory should be that of the input x. */
type Build = (g: Graph, x: Value) => Value;

const other = (g: Graph) => g.input("other", [N, N]);
const rows = (g: Graph) => g.input("rows", [N], "i32");
const isMasked = (g: Graph) => g.greater(g.input("mask", [N, N]), g.scalar(0));

/** The operations of the list, at each place of it. */
const LISTED: Readonly<Record<string, Build>> = {
  "Add 0": (g, x) => g.add(x, other(g)),
  "Add 1": (g, x) => g.add(other(g), x),
  "Sub 0": (g, x) => g.sub(x, other(g)),
  "Sub 1": (g, x) => g.sub(other(g), x),
  "Mul 0": (g, x) => g.mul(x, other(g)),
  "Mul 1": (g, x) => g.mul(other(g), x),
  "Cast 0": (g, x) => g.node("Cast", [x], [x.shape], { to: 1 })[0]!,
  "Where 1": (g, x) => g.where(isMasked(g), x, other(g)),
  "Where 2": (g, x) => g.where(isMasked(g), other(g), x),
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
  "a chain of element-wise operations": (g, x) =>
    g.sub(g.mul(x, g.scalar(0.9)), g.mul(g.add(x, other(g)), g.scalar(0.1))),
};

/** Operations that would be wrong in place; some only after the library has made one node of two. */
const COPIED: Readonly<Record<string, Build>> = {
  "Softmax of columns": (g, x) => g.softmax(x, 0),
  "a product and the sum with its operand": (g, x) => g.add(g.matmul(x, other(g)), x),
  "a mean of columns, repeated": (g, x) => g.expand(g.mean(x, [0], true), [N, N]),
  Gather: (g, x) => g.gather(x, rows(g)),
  "rows in another order": (g, x) => g.concat(g.split(x, 0, 2).toReversed(), 0),
  "a normal form, written out": (g, x) => {
    const centred = g.sub(x, g.mean(x, [1], true));
    return g.div(centred, g.sqrt(g.mean(g.mul(centred, centred), [1], true)));
  },
};

Deno.test("every place of the list is tried, and nothing else is computed in place", () => {
  const all = Object.entries(IN_PLACE).flatMap(([op, at]) => at.map((place) => `${op} ${place}`));
  assert.deepEqual(all.sort(), Object.keys(LISTED).sort());
  for (const [what, build] of Object.entries({ ...LISTED, ...FREE, ...COPIED })) {
    const g = new Graph(), y = build(g, g.input("x", [N, N])), isCopied = what in COPIED;
    assert.equal(prepareModel(modelOf(g, { y })).inPlace.get("y")!.has("x"), !isCopied, what);
  }
});

const bitsOf = ({ buffer }: Float32Array<ArrayBuffer>) => new Uint32Array(buffer);

gpuTest("an output over an input has the bits that it has apart", (t) =>
  onGpu(async (device) => {
    const copied = Object.fromEntries(Object.entries(COPIED).slice(0, atDepth(2, 10)));
    for (const [what, build] of Object.entries({ ...LISTED, ...FREE, ...copied })) {
      await t.step(what, async () => {
        const g = new Graph(), y = build(g, g.input("x", [N, N]));
        using kernel = closing(await device.compile(modelOf(g, { y })));
        const tensors = Object.fromEntries(g.inputs.map((input, i) => [
          input.name,
          tensorOf(device, input.shape, numbersFor(input, i * 1e6, N), input.dtype),
        ]));
        const apart = device.alloc("f32", [N, N]), results: Uint32Array[] = [];
        for (const y of [apart, tensors.x!]) {
          await kernel.bind(tensors, { y })();
          results.push(bitsOf(await device.read<Float32Array<ArrayBuffer>>(y)));
        }
        assert.deepEqual(results[0], results[1]);
        for (const tensor of [apart, ...Object.values(tensors)]) device.free(tensor);
      });
    }
  }));

const ROWS = 300, WIDTH = 24;

const UPDATES = pseudoRandom(1, ROWS * WIDTH);

deviceTest("updates of a row are added with the same bits, whatever else is", async (device) => {
  // Fewer rows than are added to the table, and more.
  for (const table of [16, 400]) {
    const g = new Graph(), base = g.input("base", [table, WIDTH]);
    const ids = g.input("ids", [ROWS], "i32"), updates = g.input("updates", [ROWS, WIDTH]);
    const model = modelOf(g, { y: g.scatterAdd(base, ids, updates) });
    /** Adds the updates to rows of a table of ones; the numbers of one row. */
    const add = async (ids: readonly number[], row: number) => {
      const given: Record<string, number[]> = { base: Array(table * WIDTH).fill(1), ids: [...ids] };
      const results = await runModel(device, model, ({ name }) => given[name] ?? UPDATES);
      return results.get("y")!.slice(row * WIDTH, (row + 1) * WIDTH);
    };
    const all = (row: number) => Array<number>(ROWS).fill(row), first = await add(all(5), 5);
    first.forEach((got, column) => {
      const own = UPDATES.filter((_, i) => i % WIDTH === column);
      const want = own.reduce((sum, x) => sum + Math.fround(x), 1);
      assert.ok(Math.abs(got - want) < 1e-4, `column ${column}: ${got}, not ${want}`);
    });
    assert.deepEqual(await add(all(5), 4), Array(WIDTH).fill(1));
    for (let round = 0; round < atDepth(2, 12); round++) {
      // Another row is only another place.
      assert.deepEqual(await add(all(round), round), first);
    }
    // Rows in between do not matter: those of a row are added in the order of the batch.
    const spread = all(5).map((row, i) => i % 3 === 0 ? row : 6 + i % 7);
    const others = spread.map((row) => row === 5 ? row : 15);
    assert.deepEqual(await add(others, 5), await add(spread, 5));
  }
});

/** A layer with every kind of sum: products, reductions, a norm, softmax, a loss's rows. */
const everySum = (g: Graph, x: Value): Record<string, Value> => {
  const weight = g.input("weight", [WIDTH, WIDTH]), targets = g.input("targets", [ROWS], "i32");
  const product = g.gemm(x, weight), seed = g.input("seed", [ROWS, 1]);
  const scale = g.input("scale", [WIDTH]), shift = g.input("shift", [WIDTH]);
  return {
    ...{ product, square: g.matmul(x, x, { transA: true, alpha: 0.5 }), sum: g.sum(product, [0]) },
    ...{ squares: g.sumOfSquares(product), norm: g.layerNorm(product, scale, shift) },
    ...{ softmax: g.softmax(product), loss: g.crossEntropy(product, targets) },
    gradient: g.scatterAddColumns(g.exp(product), targets, seed),
    long: g.gemm(g.input("a", [4, 1024]), g.input("b", [1024, 8])),
  };
};

deviceTest("every kind of sum has the same bits each time that it is made", async (device) => {
  const g = new Graph(), model = modelOf(g, everySum(g, g.input("x", [ROWS, WIDTH])));
  const run = () => runModel(device, model, (input) => numbersFor(input, 1, WIDTH));
  const first = await run();
  for (let round = 0; round < atDepth(1, 10); round++) assert.deepEqual(await run(), first);
});

/** The norms of the first of some vectors in each of 24 steps with random gradients, and its weights. */
async function firstOf(device: Device, count: number, bucketSize: number) {
  const specs = Array.from({ length: count }, (_, i) => ({ name: `${i}`, shape: [768] }));
  const store = createParameters(device, specs, { optimizer: ADAMW_DEFAULTS, bucketSize });
  const optimizer = await openOptimizer(device, store, ADAMW_DEFAULTS);
  const { squares } = await openGradientNorms(device, store), norms: number[] = [];
  for (let step = 1; step <= 24; step++) {
    store.parameters.forEach(({ gradient }, i) =>
      device.write(gradient, Float32Array.from(pseudoRandom(step + 100 * i, 768)))
    );
    norms.push((await squares()).get("0")!);
    optimizer.begin(step, 0.1, 0.5);
    for (const bucket of store.buckets.keys()) await optimizer.stepBucket(bucket);
  }
  return { norms, weights: await device.read<Float32Array>(store.parameters[0]!.weights[0]!) };
}

deviceTest("a vector has the same norms and steps whatever is beside it", async (device) => {
  const alone = await firstOf(device, 1, 768);
  for (const [count, bucketSize] of [[2, 768], [2, 2 ** 16], [60, 2 ** 16]] as const) {
    const received = await firstOf(device, count, bucketSize);
    assert.deepEqual(received, alone, `${count} in ${bucketSize}`);
  }
});

deviceTest("convolutions compute the same for any number of inputs", async (device) => {
  for (const [inputs, outputs] of [[6, 4], [9, 8], [15, 4]] as const) {
    const g = new Graph(), w = g.input("w", [outputs, inputs, 3, 3]);
    const model = modelOf(g, { y: g.conv(g.input("x", [2, inputs, 4, 5]), w) });
    const [received, expected] = await Promise.all(
      [device, openReference()].map(async (one) =>
        (await runModel(await one, model, (port, i) => numbersFor(port, i))).get("y")!
      ),
    );
    assert.ok(farthest(received!, expected!) < 1e-5, `${inputs} to ${outputs}`);
  }
});

/** Operations that may copy a buffer, of which no capture knows. */
const COPIES: Readonly<Record<string, (g: Graph, x: Value) => Value>> = {
  Reshape: (g, x) => g.reshape(g.neg(x), [16, 4]),
  "Max of one operand": (g, x) => g.node("Max", [x], [x.shape])[0]!,
  "Transpose of an axis of one": (g, x) => g.transpose(x, [0, 2, 1, 3]),
  "Expand to its own shape": (g, x) => g.node("Expand", [x, g.int64(x.shape)], [x.shape])[0]!,
};

gpuTest("a captured run reads its inputs and writes its outputs each time", async () => {
  using device = closing(await openWebgpu({ capture: true }));
  const shape = [2, 8, 1, 4];
  for (const [what, build] of Object.entries(COPIES)) {
    const g = new Graph(), y = build(g, g.input("x", shape));
    const kernel = await device.compile(modelOf(g, { y }));
    const [x, received] = [device.alloc("f32", shape), device.alloc("f32", y.shape)];
    const run = kernel.bind({ x }, { y: received });
    for (const number of [0, 1, 2]) {
      device.write(x, new Float32Array(64).fill(number));
      await run();
      const [first] = await device.read<Float32Array>(received);
      assert.equal(first, what === "Reshape" ? -number : number, what);
    }
  }
});
