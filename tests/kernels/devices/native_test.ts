import assert from "node:assert/strict";
import { openNative } from "../../../kernels/devices/native/native.ts";
import { nativeLibraryPath } from "../../../kernels/devices/onnx_runtime/native_library.ts";
import { openOrt } from "../../../kernels/devices/native/ort_api.ts";
import { Graph } from "../../../kernels/graph/graph.ts";
import { TROUPE } from "../../../kernels/graph/value.ts";
import { testContract } from "./contract.ts";
import { modelOf, pseudoRandom, tensorOf } from "./models.ts";

testContract("native", () => openNative());

Deno.test("native memory starts at multiples of 64 bytes and is zero", async () => {
  const ort = openOrt(await nativeLibraryPath(), { threads: 1, isBlocking: false });
  for (let byteLength = 0; byteLength < 200; byteLength++) {
    const memory = ort.allocate(byteLength);
    assert.equal(memory.bytes.byteLength, byteLength);
    assert.equal(memory.address % 64n, 0n);
    assert.ok(memory.bytes.every((byte) => byte === 0));
    memory.bytes.fill(255);
    ort.free(memory);
  }
  ort.close();
});

Deno.test("the native device leaves the isolate free while it computes", async () => {
  const device = await openNative();
  try {
    const g = new Graph();
    const a = g.input("a", [1024, 1024]);
    const kernel = await device.compile(modelOf(g, { y: g.gemm(g.gemm(a, a), a) }));
    const run = kernel.bind({ a: device.alloc("f32", [1024, 1024]) }, {
      y: device.alloc("f32", [1024, 1024]),
    });
    let finished = false;
    const running = run().then(() => finished = true);
    // A task, not a microtask: a run that blocked would be finished by then.
    await new Promise((resolve) => setTimeout(resolve, 0));
    assert.equal(finished, false);
    await running;
  } finally {
    device.close();
  }
});

Deno.test("two native kernels run at the same time on memory of their own", async () => {
  const device = await openNative();
  try {
    const g = new Graph();
    const a = g.input("a", [128, 128]);
    const kernel = await device.compile(modelOf(g, { y: g.gemm(a, a) }));
    const runs = [1, 2, 3, 4].map((number) => {
      const input = device.alloc("f32", [128, 128]), y = device.alloc("f32", [128, 128]);
      device.write(input, new Float32Array(128 * 128).fill(number));
      return { run: kernel.bind({ a: input }, { y }), y, want: 128 * number * number };
    });
    for (let round = 0; round < 20; round++) await Promise.all(runs.map(({ run }) => run()));
    for (const { y, want } of runs) {
      assert.ok((await device.read<Float32Array>(y)).every((value) => value === want));
    }
  } finally {
    device.close();
  }
});

Deno.test("the native device refuses thread counts that are no positive whole number", async () => {
  await assert.rejects(openNative({ threads: 0 }), RangeError);
  await assert.rejects(openNative({ threads: 1.5 }), RangeError);
});

Deno.test("the native device says which library cannot be loaded", async () => {
  await assert.rejects(openNative({ library: "./no_such_library.so" }), /no_such_library/);
});

Deno.test("the process outlives a worker that is terminated in the middle of a run", async () => {
  const program = new URL("./terminate_workers.ts", import.meta.url);
  const { code, signal, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "--quiet", program.href, await nativeLibraryPath()],
  }).output();
  assert.deepEqual({ code, signal }, { code: 0, signal: null }, new TextDecoder().decode(stderr));
});

Deno.test("isolates that come and go share one arena, which keeps nothing when they have gone", async () => {
  const program = new URL("./share_arena.ts", import.meta.url);
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "--quiet", program.href, await nativeLibraryPath()],
  }).output();
  assert.equal(code, 0, new TextDecoder().decode(stderr));
  const { computed, joined, left } = JSON.parse(new TextDecoder().decode(stdout)) as Record<
    "computed" | "joined" | "left",
    number[]
  >;
  const matrix = (size: number) => 4 * size * size;
  // Eight compute at once, or after each other in what the one before has left.
  assert.deepEqual(computed, computed.map(() => computed[0]));
  assert.ok(computed[0]! >= matrix(256) && computed[0]! <= 8 * 2 * matrix(256), `${computed}`);
  assert.deepEqual(joined, [joined[0], joined[0]]);
  assert.ok(joined[0]! >= matrix(512) && joined[0]! < 2 * matrix(512), `${joined}`);
  assert.deepEqual(left, [0, 0]);
});

Deno.test("the native device computes the same product with two threads", async () => {
  const results: Float32Array[] = [];
  for (const threads of [1, 2]) {
    const device = await openNative({ threads });
    try {
      const g = new Graph();
      const a = g.input("a", [256, 256]);
      const kernel = await device.compile(modelOf(g, { y: g.gemm(a, a) }));
      const y = device.alloc("f32", [256, 256]);
      await kernel.bind({ a: tensorOf(device, [256, 256], pseudoRandom(1, 65536)) }, { y })();
      results.push(await device.read<Float32Array>(y));
    } finally {
      device.close();
    }
  }
  results[0]!.forEach((value, i) => assert.ok(Math.abs(value - results[1]![i]!) < 1e-4));
});

Deno.test("with several threads GELU's gradient is cut into other parts, and has the same bits", async () => {
  const shape = [96, 4096], results: Float32Array[] = [];
  for (const threads of [1, 3]) {
    const device = await openNative({ threads });
    try {
      const g = new Graph(), x = g.input("x", shape), dy = g.input("dy", shape);
      const [dx] = g.node("FastGeluGrad", [dy, x], [shape], {}, TROUPE);
      const kernel = await device.compile(modelOf(g, { dx: dx! }));
      const [values, given] = [1, 2].map((seed) =>
        tensorOf(device, shape, pseudoRandom(seed, 96 * 4096))
      );
      const into = device.alloc("f32", shape);
      await kernel.bind({ x: values!, dy: given! }, { dx: into })();
      results.push(await device.read<Float32Array>(into));
    } finally {
      device.close();
    }
  }
  assert.deepEqual(results[0], results[1]);
});
