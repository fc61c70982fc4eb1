import assert from "node:assert/strict";
import type { GradientArray } from "../../../../actors/commit/all_reduce/mod.ts";
import fc from "../../../fast_check.ts";
import { bytesOf, cases, copiesOf, type DType, leftToRight } from "./gradients.ts";
import { allReduce } from "./network.ts";

/** Half the distance from 1 to the next number: the largest relative error of one rounding. */
const ROUNDING = { f32: 2 ** -24, f16: 2 ** -11 } as const;

for (const isShared of [false, true]) {
  const where = isShared ? "in shared memory" : "in messages";
  Deno.test(`direct sums ${where} are the left-to-right sums, bit for bit, in every rank`, async () => {
    await fc.assert(
      fc.asyncProperty(cases, async (wanted) => {
        const { after, completed } = await allReduce({ ...wanted, algorithm: "direct", isShared });
        const expected = bytesOf(leftToRight(wanted.copies, wanted.dtype));
        for (const gradients of after) assert.deepEqual(bytesOf(gradients), expected);
        for (const chunks of completed) {
          assert.deepEqual(chunks.toSorted((a, b) => a - b), wanted.chunks.map((_, i) => i));
        }
      }),
      { numRuns: 300 },
    );
  });
}

for (const algorithm of ["ring", "rabenseifner", "fast"] as const) {
  Deno.test(`${algorithm} sums are close, and the same bits in every rank and order of messages`, async () => {
    await fc.assert(
      fc.asyncProperty(cases, async (wanted) => {
        const { copies, dtype } = wanted;
        const { after, completed } = await allReduce({ ...wanted, algorithm });
        const again = await allReduce({ ...wanted, algorithm });
        for (const gradients of [...after, ...again.after]) {
          assert.deepEqual(bytesOf(gradients), bytesOf(after[0]!));
        }
        for (const chunks of completed) assert.equal(new Set(chunks).size, wanted.chunks.length);
        after[0]!.forEach((sum, i) => {
          const terms = copies.map((copy) => copy[i]!);
          const exact = terms.reduce((a, b) => a + b, 0);
          const magnitude = terms.reduce((a, b) => a + Math.abs(b), 0);
          // (1 + u)^(p−1) − 1, without the rounding of 1 + u itself.
          const bound = Math.expm1((copies.length - 1) * Math.log1p(ROUNDING[dtype])) * magnitude;
          assert.ok(Math.abs(sum - exact) <= bound, `${sum} is not within ${bound} of ${exact}`);
        });
      }),
      { numRuns: 300 },
    );
  });
}

const permuted = (copies: readonly GradientArray[], order: readonly number[]) =>
  order.map((copy) => copies[copy]!);

Deno.test("the gradients of these tests tell another order of copies from the copy order", () => {
  for (const dtype of ["f32", "f16"] as const) {
    for (let size = 3; size <= 8; size++) {
      const copies = copiesOf({ size, length: 100, dtype, seed: 1 });
      const expected = bytesOf(leftToRight(copies, dtype));
      for (let last = 2; last < size; last++) {
        // As if copy 1 arrived later and were added when it comes.
        const order = [...copies.keys()].filter((copy) => copy !== 1).toSpliced(last, 0, 1);
        const sums = bytesOf(leftToRight(permuted(copies, order), dtype));
        assert.notDeepEqual(sums, expected, `${dtype}, order ${order}`);
      }
    }
  }
});

Deno.test("a ring and Rabenseifner add in other orders than direct", async () => {
  const copies = copiesOf({ size: 6, length: 100, dtype: "f32", seed: 1 });
  const chunks = [{ offset: 0, length: 100 }], expected = bytesOf(leftToRight(copies, "f32"));
  for (const algorithm of ["ring", "rabenseifner"] as const) {
    const { after } = await allReduce({ copies, chunks, algorithm, dtype: "f32" });
    assert.notDeepEqual(bytesOf(after[0]!), expected);
  }
});

Deno.test("f16 is added in f32 and rounded once", async () => {
  // 2048 + 1 is a tie between f16 numbers and rounds back to 2048, however often it is added.
  const copies = [2048, 1, 1].map((value) => new Float16Array([value]));
  const wanted = { copies, chunks: [{ offset: 0, length: 1 }], dtype: "f16" as DType };
  for (const isShared of [false, true]) {
    const { after } = await allReduce({ ...wanted, algorithm: "direct", isShared });
    assert.deepEqual(after.map(([sum]) => sum), [2050, 2050, 2050]);
  }
});

Deno.test("a chunk completes without waiting for the chunks before it", async () => {
  const copies = copiesOf({ size: 3, length: 9, dtype: "f32", seed: 1 });
  const chunks = [{ offset: 0, length: 4 }, { offset: 4, length: 5 }];
  const wanted = { copies, chunks, dtype: "f32", algorithm: "direct", started: [1] } as const;
  const { after, completed, reducers } = await allReduce(wanted);
  assert.deepEqual(completed, [[1], [1], [1]]);
  for (const [rank, reducer] of reducers.entries()) {
    assert.deepEqual([reducer.isComplete(0), reducer.isComplete(1)], [false, true]);
    assert.deepEqual(after[rank]!.subarray(0, 4), copies[rank]!.subarray(0, 4));
  }
});
