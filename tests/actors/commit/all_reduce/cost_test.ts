import assert from "node:assert/strict";
import { LATENCY_BYTES } from "../../../../actors/commit/all_reduce/fast.ts";
import type { ReduceAlgorithm } from "../../../../actors/commit/all_reduce/mod.ts";
import { sliceBorder } from "../../../../actors/commit/all_reduce/slice_border.ts";
import { allReduce } from "./network.ts";

const SIZES = [1, 2, 3, 4, 5, 6, 7, 8];
/** A multiple of every size: all slices are equal. */
const LENGTH = 840;

/** For each rank the messages and values that it sends for one chunk. */
async function sentBy(
  algorithm: ReduceAlgorithm | "fast",
  size: number,
  { length = LENGTH, isShared = false } = {},
) {
  const copies = Array.from({ length: size }, () => new Float32Array(length));
  const chunks = [{ offset: 0, length }];
  const { sent } = await allReduce({ copies, chunks, algorithm, dtype: "f32", isShared });
  return copies.map((_, rank) => {
    const own = sent.filter(({ from }) => from === rank);
    assert.ok(own.every(({ to, message }) => to !== rank && message.from === rank));
    return { messages: own.length, volume: own.reduce((sum, { volume }) => sum + volume, 0) };
  });
}

for (const algorithm of ["direct", "ring"] as const) {
  Deno.test(`${algorithm}: every rank sends 2(p−1) messages with 2(p−1)/p of the chunk`, async () => {
    for (const size of SIZES) {
      const expected = { messages: 2 * (size - 1), volume: 2 * (size - 1) / size * LENGTH };
      assert.deepEqual(await sentBy(algorithm, size), Array(size).fill(expected));
    }
  });
}

Deno.test("Rabenseifner: 2 log₂ p messages with 2(p−1)/p of the chunk, where p is a power of two", async () => {
  for (const size of [1, 2, 4, 8]) {
    const expected = { messages: 2 * Math.log2(size), volume: 2 * (size - 1) / size * LENGTH };
    assert.deepEqual(await sentBy("rabenseifner", size), Array(size).fill(expected));
  }
});

Deno.test("Rabenseifner: a rank beyond the power of two sends its chunk, and is sent the sums", async () => {
  for (const [size, core] of [[3, 2], [5, 4], [6, 4], [7, 4]] as const) {
    const sent = await sentBy("rabenseifner", size);
    const messages = 2 * Math.log2(core), volume = 2 * (core - 1) / core * LENGTH;
    for (const [rank, one] of sent.entries()) {
      const hasExtra = rank + core < size;
      const expected = rank >= core
        ? { messages: 1, volume: LENGTH }
        : hasExtra
        ? { messages: messages + 1, volume: volume + LENGTH }
        : { messages, volume };
      assert.deepEqual(one, expected, `rank ${rank} of ${size}`);
    }
  }
});

Deno.test("through shared memory the same messages go, without values", async () => {
  for (const size of SIZES) {
    const expected = { messages: 2 * (size - 1), volume: 0 };
    assert.deepEqual(await sentBy("direct", size, { isShared: true }), Array(size).fill(expected));
  }
});

Deno.test("fast is Rabenseifner for powers of two, elsewhere the ring from a size on", async () => {
  const large = 4 * LATENCY_BYTES;
  const isSame = async (size: number, length: number, algorithm: ReduceAlgorithm) =>
    assert.deepEqual(
      await sentBy("fast", size, { length }),
      await sentBy(algorithm, size, { length }),
      `${size} ranks, ${length} elements`,
    );
  for (const length of [8, large]) {
    for (const size of [4, 8]) await isSame(size, length, "rabenseifner");
  }
  for (const size of [5, 6, 7]) {
    await isSame(size, 8, "rabenseifner");
    await isSame(size, large, "ring");
  }
  // Five ranks: 8α + 1.6nβ and 6α + 3.5nβ are equal at n = 2/1.9 of α/β.
  const even = Math.floor(2 / 1.9 * LATENCY_BYTES / Float32Array.BYTES_PER_ELEMENT);
  await isSame(5, even - 1, "rabenseifner");
  await isSame(5, even + 1, "ring");
});

Deno.test("where only whole parameters are added, ranks take turns in adding chunks of one parameter", () => {
  for (const size of SIZES) {
    const borders = [0, 16, 48, 848], owners: number[] = [];
    for (let chunk = 0; chunk < size; chunk++) {
      const cuts = Array.from(
        { length: size + 1 },
        (_, slice) => sliceBorder(slice, size, { offset: 48, length: 800 }, chunk, borders),
      );
      owners.push(
        ...Array.from({ length: size }, (_, i) => i).filter((i) => cuts[i + 1]! > cuts[i]!),
      );
    }
    assert.deepEqual(owners.sort(), Array.from({ length: size }, (_, i) => i));
  }
});

Deno.test("slices of whole parameters follow each other, and cover the chunk", () => {
  const borders = [0, 16, 32, 48, 848, 864];
  for (const size of SIZES) {
    for (let chunk = 0; chunk < 9; chunk++) {
      const cuts = Array.from(
        { length: size + 1 },
        (_, slice) => sliceBorder(slice, size, { offset: 16, length: 848 }, chunk, borders),
      );
      assert.deepEqual([cuts[0], cuts.at(-1)], [0, 848]);
      assert.deepEqual(cuts, cuts.toSorted((a, b) => a - b));
      assert.ok(cuts.every((cut) => borders.includes(cut + 16)));
    }
  }
});
