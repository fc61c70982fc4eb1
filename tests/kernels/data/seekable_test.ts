/** Data begun anywhere is the data that was iterated to there, whatever it is. */

import assert from "node:assert/strict";
import {
  type BatchPlan,
  batchRows,
  DIGIT_PIXELS,
  digitBatches,
  type Digits,
  rowsNeeded,
  type SeekableBatches,
  shuffledOrder,
  tokenBatches,
} from "../../../kernels/mod.ts";
import fc from "../../fast_check.ts";

const ROWS = 23, SEQ = 3;

/** 23 rows of tokens and 23 digits, each its own. */
const tokens = Uint16Array.from({ length: ROWS * SEQ + 1 }, (_, i) => i);
const digits: Digits = {
  images: Float32Array.from({ length: ROWS * DIGIT_PIXELS }, (_, i) => i),
  labels: Int32Array.from({ length: ROWS }, (_, i) => i % 10),
};

const SOURCES: Readonly<Record<string, (plan: BatchPlan) => SeekableBatches<unknown>>> = {
  rows: (plan) => batchRows(ROWS, plan),
  tokens: (plan) => tokenBatches({ tokens, seq: SEQ, vocabularySize: 128, ...plan }),
  digits: (plan) => digitBatches(digits, plan),
};

const plans = fc.record({
  microBatch: fc.integer({ min: 1, max: 4 }),
  microBatches: fc.integer({ min: 1, max: 3 }),
  replicas: fc.integer({ min: 1, max: 2 }),
  fromStep: fc.integer({ min: 1, max: 3 }),
  lastIsSmaller: fc.boolean(),
});

for (const [name, open] of Object.entries(SOURCES)) {
  Deno.test(`from(n) of ${name} is what iterating to n comes to, in order and shuffled`, () => {
    const property = (given: BatchPlan, skipped: number, seed: number, isShuffled: boolean) => {
      const plan = isShuffled ? { ...given, steps: 5, order: shuffledOrder(ROWS, seed) } : given;
      fc.pre(ROWS >= rowsNeeded(plan));
      assert.deepEqual([...open(plan).from(skipped)], [...open(plan)].slice(skipped));
    };
    fc.assert(
      fc.property(plans, fc.nat(30), fc.nat(99), fc.boolean(), property),
      { numRuns: 60 },
    );
  });
}

Deno.test("data is begun at micro-batch 4,000,000 without a row before it being looked at", () => {
  const shuffled = shuffledOrder(ROWS, 7);
  let looked = 0;
  const order = (row: number) => (looked++, shuffled(row));
  const plan = { microBatch: 2, microBatches: 4, order };
  const cut = { tokens, seq: SEQ, vocabularySize: 128 };
  const { value: batch } = tokenBatches({ ...cut, ...plan }).from(4e6).next();
  assert.equal(looked, 2);
  assert.equal(batch!.ids[0], shuffled(8e6) * SEQ);
});
