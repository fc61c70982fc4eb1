/** Models in parts: sessions of ONNX Runtime, and kernels of ours between. */

import assert from "node:assert/strict";
import { cutModel } from "../../../../kernels/devices/simd/cut_model.ts";
import { placeValues } from "../../../../kernels/devices/simd/place_values.ts";
import { type Device, Graph, openDevice, type Tensor } from "../../../../kernels/mod.ts";
import fc from "../../../fast_check.ts";
import { modelOf, numbersOf, pseudoRandom, square, tensorOf } from "../models.ts";

const SHAPE = [3, 5];

/** y = gelu(x), z = x·softmax(2x) + 1: gelu could be computed before z reads x. */
function twoResults(): Uint8Array {
  const g = new Graph(), x = g.input("x", SHAPE);
  const weights = g.softmax(g.add(x, x));
  const z = g.add(g.mul(x, weights), g.scalar(1));
  return modelOf(g, { z, y: g.gelu(x) });
}

const X = pseudoRandom(1, 15);

async function results(device: Device, isOver: boolean): Promise<number[][]> {
  const kernel = await device.compile(twoResults());
  const x = tensorOf(device, SHAPE, X);
  const y: Tensor = isOver ? x : device.alloc("f32", SHAPE), z = device.alloc("f32", SHAPE);
  await kernel.bind({ x }, { y, z })();
  return [await numbersOf(device, y), await numbersOf(device, z)];
}

Deno.test("parts follow each other in turns, as few as can be", () => {
  const kinds = cutModel(twoResults())!.parts.map((part) => "call" in part ? "own" : "session");
  assert.deepEqual(kinds, ["session", "own", "own", "session"]);
  assert.equal(cutModel(square([2])), undefined);
});

Deno.test("an output over an input that is still to be read is written after that", async () => {
  const device = await openDevice("wasm");
  try {
    const held = device.allocatedBytes;
    assert.deepEqual(await results(device, true), await results(device, false));
    assert.ok(device.allocatedBytes - held > 4 * 15 * 5, "what lies apart is counted");
  } finally {
    device.close();
  }
});

Deno.test("programs share the memory between their parts, also when another needs more of it", async () => {
  const device = await openDevice("wasm");
  try {
    const run = async (rows: number) => {
      const g = new Graph(), x = g.input("x", [rows, 64]);
      const kernel = await device.compile(modelOf(g, { y: g.softmax(g.add(g.softmax(x), x)) }));
      const input = tensorOf(device, [rows, 64], pseudoRandom(7, 64 * rows));
      const y = device.alloc("f32", [rows, 64]);
      return { run: kernel.bind({ x: input }, { y }), read: () => numbersOf(device, y) };
    };
    const small = await run(3);
    await small.run();
    const before = await small.read(), large = await run(5000);
    await Promise.all([small.run(), large.run(), small.run()]);
    assert.deepEqual(await small.read(), before);
    assert.deepEqual((await large.read()).slice(0, before.length), before);
  } finally {
    device.close();
  }
});

Deno.test("values that are needed at the same time lie apart", () => {
  const lifetimes = fc.array(
    fc.tuple(fc.nat(20), fc.nat(6), fc.nat(1000)).map(([from, steps, byteLength]) => ({
      ...{ from, to: from + steps, byteLength },
    })),
  ).map((all) => all.map((one, i) => ({ ...one, name: `${i}` })));
  fc.assert(
    fc.property(lifetimes, (values) => {
      const { offsets, sharedBytes } = placeValues(values);
      const place = (name: string) => offsets.get(name)!;
      for (const [i, a] of values.entries()) {
        assert.ok(place(a.name) + a.byteLength <= sharedBytes);
        for (const b of values.slice(0, i)) {
          const meet = a.from <= b.to && b.from <= a.to;
          const apart = place(a.name) + a.byteLength <= place(b.name) ||
            place(b.name) + b.byteLength <= place(a.name);
          assert.ok(!meet || apart, `${a.name} and ${b.name}`);
        }
      }
    }),
  );
});
