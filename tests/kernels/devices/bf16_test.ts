/** Products whose factors are rounded to BF16. */

import assert from "node:assert/strict";
import { findOneDnn } from "../../../kernels/devices/cpu/onednn.ts";
import { openNative } from "../../../kernels/devices/cpu/native.ts";
import { Graph, openReference, openWasm } from "../../../kernels/mod.ts";
import { elementCount } from "../../../kernels/graph/shapes.ts";
import { resolveDevices } from "../../../kernels/devices/table.ts";
import { BF16, testNeeding } from "../../needs.ts";
import { closing, modelOf, pseudoRandom, runModel, tensorOf } from "./models.ts";
import { assertRefused } from "../graph/refused.ts";

/** A product α·op(a)·op(b) + β·c of [m, n, k], and its results. */
interface Case {
  readonly sizes: readonly [number, number, number];
  readonly turned: "" | "a" | "b" | "ab";
  readonly c?: readonly number[];
  readonly alpha?: number;
  readonly beta?: number;
}

const CASES: readonly Case[] = [
  { sizes: [1, 1, 1], turned: "" },
  { sizes: [3, 5, 7], turned: "a", c: [5] },
  { sizes: [16, 16, 16], turned: "b", c: [1, 16], alpha: 0.5 },
  { sizes: [33, 100, 65], turned: "ab", c: [33, 100] },
  { sizes: [33, 100, 65], turned: "a", c: [33, 100], beta: 0.5 },
  { sizes: [128, 96, 512], turned: "", c: [128, 1] },
  { sizes: [512, 3000, 64], turned: "b", c: [3000] },
  { sizes: [1, 700, 257], turned: "", c: [], alpha: -2 },
];

/** Its model: y, and z = relu(y), which ONNX Runtime computes; x is a factor of two products. */
function caseModel({ sizes: [m, n, k], turned, c, alpha = 1, beta = 1 }: Case): Uint8Array {
  const transA = turned.includes("a"), transB = turned.includes("b"), g = new Graph();
  const a = g.input("a", transA ? [k, m] : [m, k]), b = g.input("b", transB ? [n, k] : [k, n]);
  const y = g.gemm(a, b, c && g.input("c", c), { transA, transB, alpha, beta });
  const square = g.gemm(a, a, undefined, { transB: true });
  return modelOf(g, { y, z: g.relu(y), square }, [], true);
}

/** The number with the seven bits of a BF16 significand nearest to it; of two the even one. */
function rounded(x: number): number {
  const [bits = 0] = new Uint32Array(Float32Array.of(x).buffer);
  const kept = Uint32Array.of(bits + 0x7fff + (bits >>> 16 & 1) & 0xffff0000);
  return new Float32Array(kept.buffer)[0]!;
}

Deno.test("the reference rounds the factors of a product to BF16, and sums as before", async () => {
  const g = new Graph(), x = g.input("x", [1, 3]), w = g.input("w", [3, 1]);
  const y = g.gemm(x, w, g.input("c", [1]));
  const model = modelOf(g, { y }, [], true);
  const values: Record<string, number[]> = {
    ...{ x: [1.0039, -3.1415927, 1e-3], w: [7.77, 1 / 3, 5e5], c: [0.1] },
  };
  const [x0, w0] = [values["x"]!, values["w"]!].map((all) => all.map(rounded));
  const expected = x0!.reduce((sum, one, i) => sum + one * w0![i]!, Math.fround(0.1));
  for (const open of [openReference, openWasm]) {
    using device = closing(await open());
    const found = await runModel(device, model, ({ name }) => values[name]!);
    assert.ok(Math.abs(found.get("y")![0]! / expected - 1) < 1e-6, device.name);
  }
});

const test = (name: string, fn: () => Promise<void>) => testNeeding(BF16, name, fn);

test("products in BF16 are those of the reference, on one thread and on two", async () => {
  const reference = await openReference(), matrix = findOneDnn();
  const devices = await Promise.all([
    openNative({ matrix, isBlocking: true }),
    openNative({ matrix, threads: 2 }),
    openNative(), // rounds in FP32
  ]);
  for (const one of CASES) {
    const model = caseModel(one);
    const run = (device: typeof reference) =>
      runModel(device, model, ({ shape }, i) => pseudoRandom(i + 1, elementCount(shape)));
    const expected = await run(reference), terms = one.sizes[2];
    for (const device of devices) {
      for (const [name, values] of await run(device)) {
        const isNear = (value: number, i: number) =>
          Math.abs(value - expected.get(name)![i]!) <= 1e-6 * terms;
        assert.ok(values.every(isNear), `${JSON.stringify(one)}: ${name}`);
      }
    }
  }
  devices.forEach((device) => device.close());
});

test("runs of models in parts that are not awaited have the results of awaited ones", async () => {
  using device = closing(await openNative({ matrix: findOneDnn() }));
  const bound = await Promise.all([3, 300].map(async (rows) => {
    const g = new Graph(), x = g.input("x", [rows, 64]), w = g.input("w", [64, 64]);
    const y = g.softmax(g.gemm(g.softmax(g.gemm(x, w)), w)), out = device.alloc("f32", [rows, 64]);
    const kernel = await device.compile(modelOf(g, { y }, [], true));
    const inputs = {
      x: tensorOf(device, [rows, 64], pseudoRandom(1, rows * 64)),
      w: tensorOf(device, [64, 64], pseudoRandom(2, 64 * 64)),
    };
    return { run: kernel.bind(inputs, { y: out }), read: () => device.read(out) };
  }));
  const results = async (isTogether: boolean) => {
    if (isTogether) await Promise.all([...bound, ...bound].map(({ run }) => run()));
    else for (const { run } of bound) await run();
    return await Promise.all(bound.map(({ read }) => read()));
  };
  assert.deepEqual(await results(true), await results(false));
});

Deno.test("bf16 without a library, or on a device without it, is refused with what to install", async () => {
  const bf16 = (name: string, onednn?: string) => () =>
    resolveDevices(name, { precision: "bf16", onednn });
  await assertRefused("bf16", [
    ["native, without the library", bf16("native", "/none/libdnnl.so.2")],
    ["wasm", bf16("wasm")],
    ["auto, without the library", bf16("auto", "/none/libdnnl.so.2")],
    ["a library for nothing", () => resolveDevices("reference", { onednn: "libdnnl.so.2" })],
  ]);
  assert.deepEqual(await bf16("reference")(), [{ name: "reference" }]);
});
