/** Gradients that are added on a device with memory of its own. */

import assert from "node:assert/strict";
import { createParameters, type MessageArray, openReference } from "../../../kernels/mod.ts";
import { allocateSums, openGradientSums } from "../../../kernels/optimizer/gradient_sums.ts";
import { readFlat, writeFlat } from "../../../kernels/optimizer/flat_tensor.ts";
import { bytesOf, copiesOf, leftToRight } from "../../actors/commit/all_reduce/gradients.ts";
import { ownMemory } from "../own_memory.ts";

/** Two of one odd shape, padded to 16 elements, and two of another. */
const SPECS = [
  { name: "one", shape: [3, 5] },
  { name: "other", shape: [3, 5] },
  { name: "third", shape: [15] },
  { name: "rest", shape: [16] },
];
const LENGTH = 64;

async function open(dtype: "f32" | "f16", collects: boolean) {
  const device = ownMemory(await openReference());
  const store = createParameters(device, SPECS, {
    moments: 0,
    precision: dtype === "f16" ? "fp16" : "fp32",
  });
  const memory = allocateSums(device, store, { addends: 8, collects })!;
  return {
    device,
    sums: openGradientSums(device, store, memory),
    write: (values: MessageArray, offset = 0) => writeFlat(device, store.gradients, offset, values),
    read: (offset = 0, length = LENGTH) => readFlat(device, store.gradients, { offset, length }),
  };
}

for (const dtype of ["f32", "f16"] as const) {
  Deno.test(`${dtype} terms are added left to right, wherever the own ones stand`, async () => {
    const { device, sums, write, read } = await open(dtype, false);
    for (let size = 2; size <= 5; size++) {
      const copies = copiesOf({ size, length: LENGTH, dtype, seed: size });
      for (let own = 0; own < size; own++) {
        write(copies[own]!);
        await sums.add(0, copies.map((copy, rank) => rank === own ? undefined : copy));
        assert.deepEqual(
          bytesOf(await read()),
          bytesOf(leftToRight(copies, dtype)),
          `${own} of ${size}`,
        );
      }
    }
    device.close();
  });

  Deno.test(`${dtype} copies that are computed one after the other are added left to right`, async () => {
    const { device, sums, write, read } = await open(dtype, true);
    const copies = copiesOf({ size: 4, length: LENGTH, dtype, seed: 1 });
    const before = device.copied.toDevice;
    for (const [rank, copy] of copies.entries()) {
      write(copy);
      await sums.collect(rank, copies.length);
    }
    assert.equal(device.copied.toDevice - before, 4 * copies[0]!.byteLength); // `write` alone
    assert.deepEqual(bytesOf(await read()), bytesOf(leftToRight(copies, dtype)));
    device.close();
  });

  for (const names of [["one", "other"], ["one", "other", "third"]]) {
    Deno.test(`${names.length} that are tied get the sum of their ${dtype} gradients, left to right`, async () => {
      for (const collects of [false, true]) {
        const { device, sums, write, read } = await open(dtype, collects);
        const ends = copiesOf({ size: names.length, length: 16, dtype, seed: 2 });
        for (const [i, end] of ends.entries()) write(end, 16 * i);
        const { copied } = device;
        await sums.tie(names);
        assert.deepEqual(device.copied, copied);
        for (const i of names.keys()) {
          assert.deepEqual(bytesOf(await read(16 * i, 16)), bytesOf(leftToRight(ends, dtype)));
        }
        device.close();
      }
    });
  }
}

Deno.test("one parameter is added without its padding; what is cut elsewhere is refused", async () => {
  const { device, sums, write, read } = await open("f32", false);
  write(new Float32Array(LENGTH).fill(1));
  await sums.add(16, [undefined, new Float32Array(15).fill(2)]);
  const expected = Float32Array.from({ length: LENGTH }, (_, i) => i >= 16 && i < 31 ? 3 : 1);
  assert.deepEqual(await read(), expected);
  await assert.rejects(sums.add(16, [undefined, new Float32Array(14)]), {
    name: "RangeError",
    message:
      "Cannot add gradients: they must be those of whole parameters, received elements 16 to 30",
  });
  await assert.rejects(sums.add(1, [undefined, new Float32Array(15)]), RangeError);
  device.close();
});
