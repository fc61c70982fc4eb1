/** Models in parts: sessions of ONNX Runtime, and kernels of ours between. */

import assert from "node:assert/strict";
import { layoutValues } from "../../../../kernels/devices/cpu/parts.ts";
import { cutAtSimd, kernelsModule } from "../../../../kernels/devices/cpu/simd.ts";
import { type Device, Graph, openDevice, type Tensor } from "../../../../kernels/mod.ts";
import fc from "../../../fast_check.ts";
import { modelOf, numbersOf, pseudoRandom, square, tensorOf, withDevice } from "../models.ts";

Deno.test("the module has no memory, and writes none that it was not given", () => {
  const module = new WebAssembly.Module(kernelsModule());
  assert.deepEqual(WebAssembly.Module.imports(module).map(({ kind }) => kind), ["memory"]);
  assert.ok(WebAssembly.Module.exports(module).every(({ kind }) => kind === "function"));
  // With no data and none to be shared out, a module that is instantiated leaves memory as it was.
  const memory = new WebAssembly.Memory({ initial: 1, maximum: 65_536, shared: true });
  new WebAssembly.Instance(module, { env: { memory } });
  assert.ok(new Uint8Array(memory.buffer).every((byte) => byte === 0));
});

const SHAPE = [3, 5], X = pseudoRandom(1, 15);

/** y = gelu(x), z = x·softmax(2x) + 1: gelu could be computed before z reads x. */
function twoResults(): Uint8Array {
  const g = new Graph(), x = g.input("x", SHAPE);
  const weights = g.softmax(g.add(x, x));
  const z = g.add(g.mul(x, weights), g.scalar(1));
  return modelOf(g, { z, y: g.gelu(x) });
}

async function results(device: Device, isOver: boolean): Promise<number[][]> {
  const kernel = await device.compile(twoResults()), before = device.allocatedBytes;
  const x = tensorOf(device, SHAPE, X), z = device.alloc("f32", SHAPE);
  const y: Tensor = isOver ? x : device.alloc("f32", SHAPE);
  await kernel.bind({ x }, { y, z })();
  const found = [await numbersOf(device, y), await numbersOf(device, z)];
  assert.equal(device.allocatedBytes - before, 4 * 15 * 3, "values that are apart are counted");
  for (const tensor of new Set([x, y, z])) device.free(tensor);
  kernel.close();
  assert.equal(device.allocatedBytes, before);
  return found;
}

Deno.test("parts of the engine and of our kernels alternate, in the smallest number", () => {
  const kinds = cutAtSimd(twoResults())!.parts.map((part) => "call" in part ? "own" : "session");
  assert.deepEqual(kinds, ["session", "own", "own", "session"]);
  assert.equal(cutAtSimd(square([2])), undefined);
});

Deno.test("an output over an input that is still to be read is written after that", () =>
  withDevice(openDevice("wasm"), async (device) => {
    assert.deepEqual(await results(device, true), await results(device, false));
  }));

Deno.test("programs share the memory between their parts, also when another needs more of it", () =>
  withDevice(openDevice("wasm"), async (device) => {
    const bound = async (rows: number) => {
      const g = new Graph(), x = g.input("x", [rows, 64]);
      const kernel = await device.compile(modelOf(g, { y: g.softmax(g.add(g.softmax(x), x)) }));
      const input = tensorOf(device, [rows, 64], pseudoRandom(7, 64 * rows));
      const y = device.alloc("f32", [rows, 64]);
      return { run: kernel.bind({ x: input }, { y }), read: () => numbersOf(device, y) };
    };
    const small = await bound(3);
    await small.run();
    const before = await small.read(), large = await bound(5000);
    await large.run();
    const guards = Array.from({ length: 99 }, (_, i) => tensorOf(device, [64], Array(64).fill(i)));
    await small.run();
    for (const [i, guard] of guards.entries()) {
      assert.deepEqual(await numbersOf(device, guard), Array(64).fill(i), "memory of before");
    }
    await Promise.all([small.run(), large.run(), small.run()]);
    assert.deepEqual(await small.read(), before);
    assert.deepEqual((await large.read()).slice(0, before.length), before);
  }));

Deno.test("values that are needed at the same time are apart", () => {
  const lifetimes = fc.array(
    fc.tuple(fc.nat(20), fc.nat(6), fc.nat(1000)).map(([from, steps, byteLength]) => ({
      ...{ from, to: from + steps, byteLength },
    })),
  ).map((all) => all.map((one, i) => ({ ...one, name: `${i}` })));
  fc.assert(
    fc.property(lifetimes, (values) => {
      const { offsets, sharedBytes } = layoutValues(values);
      const place = (name: string) => offsets.get(name)!;
      for (const [i, a] of values.entries()) {
        assert.ok(place(a.name) % 64 === 0 && place(a.name) + a.byteLength <= sharedBytes);
        for (const b of values.slice(0, i)) {
          const meet = a.from <= b.to && b.from <= a.to;
          const apart = place(a.name) + a.byteLength <= place(b.name) ||
            place(b.name) + b.byteLength <= place(a.name);
          assert.ok(!meet || apart, `${a.name} and ${b.name}`);
        }
      }
    }),
  );
  const lifetime = (name: string, from: number, to: number) => ({ name, byteLength: 64, from, to });
  const short = layoutValues([lifetime("a", 0, 1), lifetime("b", 1, 2), lifetime("c", 2, 3)]);
  assert.equal(short.sharedBytes, 128, "the place of a value is reused after its last use");
});
