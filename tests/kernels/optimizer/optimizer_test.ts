/** Learning rates, the vote before a step, and gradients that are added on a device. */

import assert from "node:assert/strict";
import { createParameters } from "../../../kernels/stage/parameters.ts";
import { F16_MAX } from "../../../kernels/precision.ts";
import { learningRateAt, openReference, PRECISIONS, SGD_DEFAULTS } from "../../../kernels/mod.ts";
import type { MessageArray } from "../../../kernels/devices/device.ts";
import { openGradientNorms } from "../../../kernels/stage/gradients.ts";
import { checkFinite } from "../../../actors/gradients/commit.ts";
import { readFlat, writeFlat } from "../../../kernels/stage/parameters.ts";
import { allocateSums, openGradientSums } from "../../../kernels/stage/gradients.ts";
import { bytesOf, copiesOf, leftToRight } from "../../actors/gradients/all_reduce/gradients.ts";
import { ownMemory } from "../own_memory.ts";
import { openNorms } from "../stage/suite.ts";

Deno.test("the learning rate warms up linearly and falls from the full rate, half of it half way", () => {
  for (const schedule of ["constant", "linear", "cosine"] as const) {
    const rate = { rate: 3, schedule, warmup: 4, minRate: 1, steps: 104 };
    const rates = Array.from({ length: 104 }, (_, i) => learningRateAt(rate, i + 1));
    assert.deepEqual(rates.slice(0, 5), [0.75, 1.5, 2.25, 3, 3]);
    if (schedule === "constant") assert.ok(rates.slice(5).every((value) => value === 3));
    else {
      assert.ok(Math.abs(rates[54]! - 2) < 1e-12);
      assert.ok(rates.slice(5).every((value, i) => value < rates[i + 4]!), schedule);
      assert.ok(rates[103]! > 1 && rates[103]! <= 1.0201, schedule);
      // A quarter of the way the cosine is still near the full rate.
      const quarter = schedule === "linear" ? 2.5 : 2 + Math.SQRT1_2;
      assert.ok(Math.abs(rates[29]! - quarter) < 1e-12, `${schedule}: ${rates[29]}`);
    }
  }
  const toZero = { rate: 2, schedule: "linear", warmup: 0, steps: 4 } as const;
  assert.deepEqual([1, 2, 3, 4].map((step) => learningRateAt(toZero, step)), [2, 1.5, 1, 0.5]);
});

Deno.test("weights and moments that are not finite are refused by name", () => {
  const fine = Float32Array.of(0, 1);
  for (const value of [NaN, Infinity, -Infinity]) {
    for (const name of ["a", "a.exp_avg", "a.exp_avg_sq"]) {
      const bad = new Map([["b", fine], [name, Float32Array.of(0, value)]]),
        good = new Map([["c", fine]]);
      const [weights, moments] = name === "a" ? [bad, good] : [good, bad];
      assert.throws(() => checkFinite({ weights, moments }, "go on"), {
        name: "RangeError",
        message: `Cannot go on: weights and moments must be finite, received ${value} in "${name}"`,
      });
    }
  }
  checkFinite({ weights: new Map([["a", fine]]), moments: new Map() }, "go on");
});

/** FP16 numbers around `value`, nearest multiples of its spacing. */
function neighbours(value: number, count: number): Float16Array {
  const [bits] = new Uint16Array(Float16Array.of(value).buffer);
  const all = Uint16Array.from({ length: count }, (_, i) => bits! + i - count / 2);
  return new Float16Array(all.buffer);
}

Deno.test("copies that pass the vote never overflow FP16 when they are added left to right", async () => {
  const { areSafe, set } = await openNorms(await openReference(), "fp16", [[2, 2], [5]]);
  let overflows = 0;
  for (let copies = 2; copies <= 64; copies++) {
    for (const gradient of [...neighbours(F16_MAX / copies, 12), 0.98 * F16_MAX / copies]) {
      set(1, 0, gradient);
      let sum = 0;
      for (let i = 0; i < copies; i++) sum = Math.f16round(sum + Math.f16round(gradient));
      const isSafe = await areSafe(copies), overflowed = !Number.isFinite(sum);
      assert.ok(!isSafe || !overflowed, `${copies} copies of ${gradient}`);
      if (gradient * copies <= 0.981 * F16_MAX) assert.ok(isSafe, `${copies} of ${gradient}`);
      if (overflowed && gradient * copies <= F16_MAX) overflows++;
    }
  }
  assert.ok(overflows > 0, "rounding alone must make some sums overflow");
});

Deno.test("a long gradient on a device with separate memory is reduced in rows, without missing any", async () => {
  for (const precision of PRECISIONS) {
    const device = ownMemory(await openReference()), length = 2 ** 18;
    const specs = [{ name: "long", shape: [2 ** 8, 2 ** 10] }, { name: "short", shape: [5] }];
    const store = createParameters(device, specs, { optimizer: SGD_DEFAULTS, precision });
    const { squares, areSafe } = await openGradientNorms(device, store);
    const isHalf = precision === "fp16";
    for (const at of [0, length / 256 - 1, length / 256, length - 1]) {
      const values = new (isHalf ? Float16Array : Float32Array)(length);
      values[at] = 3;
      device.write(store.parameters[0]!.gradient, values);
      assert.deepEqual(await squares(), new Map([["long", 9], ["short", 0]]));
      values[at] = isHalf ? F16_MAX : 2e19;
      device.write(store.parameters[0]!.gradient, values);
      assert.equal(await areSafe(2), false);
    }
  }
});

/** Two of one odd shape, padded to 16 elements, and two of another. */
const SPECS = Object.entries({ one: [3, 5], other: [3, 5], third: [15], rest: [16] })
  .map(([name, shape]) => ({ name, shape }));
const LENGTH = 64;

async function openSums(dtype: "f32" | "f16", collects: boolean) {
  const device = ownMemory(await openReference());
  const precision = dtype === "f16" ? "fp16" : "fp32";
  const store = createParameters(device, SPECS, { optimizer: SGD_DEFAULTS, precision });
  const memory = allocateSums(device, store, { addends: 8, collects })!;
  return {
    device,
    sums: openGradientSums(device, store, memory),
    write: (values: MessageArray, offset = 0) => writeFlat(device, store.gradients, offset, values),
    async read(offset = 0, length = LENGTH) {
      const values = new (dtype === "f16" ? Float16Array : Float32Array)(length);
      await readFlat(device, store.gradients, offset, values);
      return values;
    },
  };
}

for (const dtype of ["f32", "f16"] as const) {
  Deno.test(`${dtype} terms are added left to right, at any place of the stage's own`, async () => {
    const { sums, write, read } = await openSums(dtype, false);
    for (let size = 2; size <= 5; size++) {
      const copies = copiesOf({ size, length: LENGTH, dtype, seed: size });
      const expected = bytesOf(leftToRight(copies, dtype));
      for (let own = 0; own < size; own++) {
        write(copies[own]!);
        await sums.add(0, copies.map((copy, rank) => rank === own ? undefined : copy));
        assert.deepEqual(bytesOf(await read()), expected, `${own} of ${size}`);
      }
    }
  });

  Deno.test(`${dtype} copies that are computed one after the other are added left to right`, async () => {
    const { device, sums, write, read } = await openSums(dtype, true);
    const copies = copiesOf({ size: 4, length: LENGTH, dtype, seed: 1 });
    const before = device.copied.toDevice;
    for (const [rank, copy] of copies.entries()) {
      write(copy);
      await sums.collect(rank, copies.length);
    }
    assert.equal(device.copied.toDevice - before, 4 * copies[0]!.byteLength); // `write` alone
    assert.deepEqual(bytesOf(await read()), bytesOf(leftToRight(copies, dtype)));
  });

  Deno.test(`tied parameters get the sum of their ${dtype} gradients, left to right`, async () => {
    for (const names of [["one", "other"], ["one", "other", "third"]]) {
      for (const collects of [false, true]) {
        const { device, sums, write, read } = await openSums(dtype, collects);
        const ends = copiesOf({ size: names.length, length: 16, dtype, seed: 2 });
        for (const [i, end] of ends.entries()) write(end, 16 * i);
        const { copied } = device;
        await sums.tie(names);
        assert.deepEqual(device.copied, copied);
        for (const i of names.keys()) {
          assert.deepEqual(bytesOf(await read(16 * i, 16)), bytesOf(leftToRight(ends, dtype)));
        }
      }
    }
  });
}

Deno.test("one parameter is added without its padding, and ranges of no whole parameter are refused", async () => {
  const { sums, write, read } = await openSums("f32", false);
  write(new Float32Array(LENGTH).fill(1));
  await sums.add(16, [undefined, new Float32Array(15).fill(2)]);
  const expected = Float32Array.from({ length: LENGTH }, (_, i) => i >= 16 && i < 31 ? 3 : 1);
  assert.deepEqual(await read(), expected);
  const message =
    "Cannot add gradients: they must be those of whole parameters, received elements 16 to 30";
  const refused = { name: "RangeError", message };
  await assert.rejects(sums.add(16, [undefined, new Float32Array(14)]), refused);
  await assert.rejects(sums.add(1, [undefined, new Float32Array(15)]), RangeError);
});
