/** Micro-batches of documents: as they are, grouped, in pairs, or padded. */

import assert from "node:assert/strict";
import fc, { forAll } from "../../fast_check.ts";
import { groupedOrder, tokenBatches, type TokenBatchOptions } from "../../../kernels/mod.ts";
import { type Documents, tokensIn } from "../../../kernels/data/token_batches.ts";
import { assertRefused } from "../graph/refused.ts";

const PLAN = { seq: 16, vocabularySize: 256, microBatch: 2, microBatches: 1 };

const batchesOf = (
  documents: readonly number[],
  how: Partial<Documents> = {},
  more: Partial<TokenBatchOptions> = {},
) => {
  const lengths = Uint32Array.from(documents);
  const tokens = Uint8Array.from({ length: tokensIn(lengths) }, (_, i) => 1 + i);
  const plan = { ...PLAN, tokens, documents: { lengths, ...how }, steps: 1 };
  return [...tokenBatches({ ...plan, ...more })];
};

Deno.test("each document is a sample, in the least eighth that holds the longest of its micro-batch", () => {
  const [first, second] = batchesOf([3, 1, 4, 5], { inEighths: true }, { steps: 2 });
  assert.deepEqual(first!.ids, Int32Array.of(1, 2, 3, 0, 4, 0, 0, 0));
  assert.deepEqual(first!.targets, Int32Array.of(2, 3, -1, -1, -1, -1, -1, -1));
  assert.deepEqual(second!.ids, Int32Array.of(5, 6, 7, 8, 0, 0, 9, 10, 11, 12, 13, 0));
  const [padded] = batchesOf([3, 1]);
  assert.equal(padded!.ids.length, 2 * 16);
});

Deno.test("the source of a pair is read, and its target is written", () => {
  const [batch] = batchesOf([2, 1, 1, 3], { inEighths: true, arePairs: true });
  assert.deepEqual(batch!.ids, Int32Array.of(1, 2, 0, 0, 4, 0, 0, 0));
  assert.deepEqual(batch!.targets, Int32Array.of(3, -1, -1, -1, 5, 6, 7, -1));
});

Deno.test("a grouped epoch has every sample once, and micro-batches of near lengths, whatever is asked first", () => {
  const lengths = fc.array(fc.integer({ min: 1, max: 100 }), { minLength: 1, maxLength: 40 });
  return forAll(100, [lengths, fc.integer({ min: 1, max: 7 })], (all, microBatch) => {
    const own = Uint32Array.from(all), n = all.length, rows = [...Array(3 * n).keys()];
    const order = groupedOrder(own, microBatch, 5), taken = rows.map(order);
    for (let epoch = 0; epoch < 3; epoch++) {
      const some = taken.slice(epoch * n, (epoch + 1) * n);
      assert.deepEqual(some.toSorted((a, b) => a - b), [...all.keys()]);
    }
    const late = groupedOrder(own, microBatch, 5);
    assert.deepEqual(rows.toReversed().map(late), taken.toReversed());
    // In the first epoch the spans of whole micro-batches do not overlap.
    const spans = Array.from({ length: Math.floor(n / microBatch) }, (_, b) => {
      const some = taken.slice(b * microBatch, (b + 1) * microBatch).map((row) => all[row]!);
      return [Math.min(...some), Math.max(...some)] as const;
    }).sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    for (const [i, [least]] of spans.entries()) if (i > 0) assert.ok(spans[i - 1]![1] <= least);
  });
});

Deno.test("lengths of no documents are refused, with their position", () => {
  const refused: Parameters<typeof batchesOf>[] = [
    ...[[[3, 0]], [[17]], [[3, 2, 1], { arePairs: true }], [[3]]] as [number[], object?][],
    [[3, 2], {}, { tokens: new Uint8Array(4) }],
    [[3, 9], {}, { vocabularySize: 9 }],
  ];
  return assertRefused("documents", refused.map((one) => [one, () => batchesOf(...one)]));
});
