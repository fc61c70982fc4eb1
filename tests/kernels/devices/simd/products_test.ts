/** Products beyond the sizes of a block, and which bits they have. */

import assert from "node:assert/strict";
import fc from "../../../fast_check.ts";
import { type Device, Graph, openDevice } from "../../../../kernels/mod.ts";
import { modelOf, pseudoRandom, tensorOf } from "../models.ts";

/** a·b + c, where a is [m, k] and b is [k, n]. */
async function product(device: Device, [m, n, k]: readonly [number, number, number]) {
  const g = new Graph(), a = g.input("a", [m, k]), b = g.input("b", [k, n]), c = g.input("c", [n]);
  const kernel = await device.compile(modelOf(g, { y: g.gemm(a, b, c) }));
  const tensors = {
    a: tensorOf(device, [m, k], pseudoRandom(1, m * k)),
    b: tensorOf(device, [k, n], pseudoRandom(2, k * n)),
    c: tensorOf(device, [n], pseudoRandom(3, n)),
  };
  const y = device.alloc("f32", [m, n]);
  await kernel.bind(tensors, { y })();
  const result = await device.read<Float32Array>(y);
  kernel.close();
  for (const tensor of [...Object.values(tensors), y]) device.free(tensor);
  return result;
}

/** An element of the product, in f64. */
function element(row: number, column: number, n: number, k: number): number {
  const a = pseudoRandom(1 + row * k, k), c = pseudoRandom(3 + column, 1)[0]!;
  return a.reduce((sum, x, p) => sum + x * pseudoRandom(2 + p * n + column, 1)[0]!, c);
}

Deno.test("products on wasm are right on both sides of the borders of their blocks", async () => {
  const device = await openDevice("wasm");
  try {
    const near = (border: number) => fc.integer({ min: border - 3, max: border + 13 });
    const sizes = fc.oneof(
      fc.tuple(near(128), near(504), near(256)),
      fc.tuple(fc.integer({ min: 1, max: 9 }), near(504), near(512)),
      fc.tuple(near(256), fc.integer({ min: 1, max: 30 }), near(256)),
    );
    await fc.assert(
      fc.asyncProperty(sizes, fc.nat(), async (sizes, seed) => {
        const [m, n, k] = sizes, got = await product(device, sizes);
        for (let i = 0; i < 40; i++) {
          const at = i < 2 ? [0, m * n - 1][i]! : (seed + i * 7919) % (m * n);
          const want = element(Math.floor(at / n), at % n, n, k);
          assert.ok(Math.abs(got[at]! - want) <= 1e-4, `[${at}] is ${got[at]}, must be ${want}`);
        }
      }),
      { numRuns: 12 },
    );
  } finally {
    device.close();
  }
});

Deno.test("an element of a product has the same bits, however many rows and columns there are", async () => {
  const device = await openDevice("wasm");
  try {
    const rows = await product(device, [300, 40, 300]);
    for (const m of [1, 3, 130]) {
      assert.deepEqual(await product(device, [m, 40, 300]), rows.slice(0, m * 40));
    }
  } finally {
    device.close();
  }
});
