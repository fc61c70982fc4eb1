/** The rows of micro-batches, shuffled or in order, and data that starts anywhere. */

import assert from "node:assert/strict";
import {
  batchRows,
  rowCount,
  rowsNeeded,
  splitTokens,
} from "../../../kernels/data/token_batches.ts";
import {
  type BatchPlan,
  digitBatches,
  type Digits,
  type SeekableBatches,
  shuffledOrder,
  tokenBatches,
} from "../../../kernels/mod.ts";
import { DIGIT_PIXELS } from "../../../kernels/data/digits.ts";
import fc, { forAll } from "../../fast_check.ts";
import { assertRefused } from "../graph/refused.ts";

const epochOf = (rows: number, seed: number, epoch: number) => {
  const order = shuffledOrder(rows, seed);
  return Array.from({ length: rows }, (_, i) => order(epoch * rows + i));
};

Deno.test("every epoch reads every row once, independent of earlier reads", () => {
  const rows = fc.integer({ min: 1, max: 50 }), asked = fc.array(fc.nat(500), { maxLength: 20 });
  return forAll(
    100,
    [rows, fc.maxSafeInteger(), fc.nat(1000), asked],
    (rows, seed, epoch, asked) => {
      const read = epochOf(rows, seed, epoch).sort((a, b) => a - b),
        order = shuffledOrder(rows, seed);
      assert.deepEqual(read, [...read.keys()]);
      for (const row of asked) assert.equal(order(row), shuffledOrder(rows, seed)(row));
    },
  );
});

Deno.test("seeds and epochs have different permutations, which do not change between versions", () => {
  const seeds = [0, 1, -1, 2, 2 ** 32, 2 ** 32 + 1, -(2 ** 40), Number.MAX_SAFE_INTEGER];
  const permutations = seeds.flatMap((seed) =>
    Array.from({ length: 10 }, (_, epoch) => epochOf(30, seed, epoch).join())
  );
  assert.equal(new Set(permutations).size, permutations.length);
  assert.deepEqual(epochOf(8, 1, 0), [2, 0, 6, 4, 1, 7, 5, 3]);
  assert.deepEqual(epochOf(8, 1, 1), [1, 4, 0, 5, 7, 3, 2, 6]);
  assert.deepEqual(epochOf(8, -(2 ** 40), 3), [2, 7, 5, 1, 3, 4, 0, 6]);
});

const upTo = (max: number, min = 1) => fc.integer({ min, max });
const PLANS = fc.record({
  ...{ microBatch: upTo(4), microBatches: upTo(5), replicas: upTo(3), steps: upTo(4, 0) },
});

Deno.test("sample j of micro-batch g in step t is row ((t − 1)·W·N + g)·B + j", () =>
  forAll(100, [PLANS, fc.nat(20)], (plan, spare) => {
    const { microBatch: B, microBatches: N, replicas: W, steps } = plan;
    const rows = [...batchRows(rowsNeeded(plan) + spare, plan)];
    assert.equal(rows.length, steps * W * N);
    rows.forEach((batch, g) =>
      assert.deepEqual([...batch], Array.from({ length: B }, (_, j) => g * B + j))
    );
  }));

Deno.test("a run resumed at any step reads what the uninterrupted run reads from there", () =>
  forAll(100, [PLANS, upTo(5), fc.boolean()], (plan, fromStep, shuffled) => {
    const order = shuffled ? shuffledOrder(7, 1) : undefined;
    const whole = { ...plan, steps: fromStep - 1 + plan.steps, order };
    const rows = Math.max(7, rowsNeeded(whole));
    const resumed = [...batchRows(rows, { ...plan, fromStep, order })];
    const skipped = (fromStep - 1) * plan.replicas * plan.microBatches;
    assert.deepEqual(resumed, [...batchRows(rows, whole)].slice(skipped));
  }));

Deno.test("without a number of steps, rows in order end with the last whole step, and shuffled ones do not end", () => {
  const plan = { microBatch: 2, microBatches: 2 };
  for (const [rows, batches] of [[11, 4], [8, 4], [7, 2], [4, 2]] as const) {
    assert.equal([...batchRows(rows, plan)].length, batches);
  }
  const rows = batchRows(3, { microBatch: 2, microBatches: 1, order: shuffledOrder(3, 0) });
  const epochs = [...rows.take(30)].flat();
  for (const row of [0, 1, 2]) assert.equal(epochs.filter((one) => one === row).length, 20);
});

Deno.test("a plan that cannot be read is refused before the first micro-batch", () => {
  const images = digits.images.subarray(1);
  const plan = { microBatch: 2, microBatches: 4 };
  const changes = [
    ...[{ steps: 11 }, { fromStep: 11 }, { steps: 6, fromStep: 6 }, { steps: -1 }],
    ...["microBatch", "microBatches", "replicas", "fromStep"].flatMap((name) =>
      [0, -1, 1.5, NaN, Infinity].map((value) => ({ [name]: value }))
    ),
  ];
  return assertRefused("batches", [
    ...changes.map((change) => [change, () => batchRows(80, { ...plan, ...change })] as const),
    ["no rows", () => batchRows(0, { ...plan, order: shuffledOrder(1, 0) })],
    ...[() => 3, () => -1, () => 0.5].map((order) =>
      [order, () => [...batchRows(3, { ...plan, steps: 1, order })]] as const
    ),
    ["two labels of one image", () => digitBatches({ ...digits, images }, plan)],
    ...[0, -1, 1.5, NaN, 2 ** 32].map((rows) => [{ rows }, () => shuffledOrder(rows, 0)] as const),
    ...[0.5, NaN, Infinity].map((seed) => [{ seed }, () => shuffledOrder(1, seed)] as const),
  ]);
});

const ROWS = 23, SEQ = 3;

/** 23 rows of tokens and 23 digits that all differ. */
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

const SEEKS = fc.record({
  ...{ microBatch: upTo(4), microBatches: upTo(3), replicas: upTo(2), fromStep: upTo(3) },
  lastIsSmaller: fc.boolean(),
});

for (const [name, open] of Object.entries(SOURCES)) {
  Deno.test(`from(n) of ${name} is what iterating to n comes to, in order and shuffled`, () =>
    forAll(
      60,
      [SEEKS, fc.nat(30), fc.nat(99), fc.boolean()],
      (given, skipped, seed, isShuffled) => {
        const plan = isShuffled ? { ...given, steps: 5, order: shuffledOrder(ROWS, seed) } : given;
        fc.pre(ROWS >= rowsNeeded(plan));
        assert.deepEqual([...open(plan).from(skipped)], [...open(plan)].slice(skipped));
      },
    ));
}

Deno.test("data starts at micro-batch 4,000,000 without a read of earlier rows", () => {
  const shuffled = shuffledOrder(ROWS, 7);
  let looked = 0;
  const order = (row: number) => (looked++, shuffled(row));
  const plan = { tokens, seq: SEQ, vocabularySize: 128, microBatch: 2, microBatches: 4, order };
  const { value: batch } = tokenBatches(plan).from(4e6).next();
  assert.equal(looked, 2);
  assert.equal(batch!.ids[0], shuffled(8e6) * SEQ);
});

/** Tokens that are their own positions, so that a batch shows where it came from. */
const positions = (length: number) => Int32Array.from({ length }, (_, i) => i);

Deno.test("row r holds tokens r·seq … r·seq + seq − 1 and predicts the next of each", () => {
  const length = upTo(200, 50), plans = fc.record({ microBatch: upTo(3), microBatches: upTo(2) });
  return forAll(100, [length, upTo(6), plans, fc.boolean()], (length, seq, given, isShuffled) => {
    const rows = rowCount(length, seq), order = isShuffled ? shuffledOrder(rows, 3) : undefined;
    const plan = { ...given, order, steps: isShuffled ? 9 : undefined };
    const cut = { tokens: positions(length), seq, vocabularySize: length };
    const ids = [...batchRows(rows, plan)].map((batch) =>
      Int32Array.from([...batch].flatMap((row) => [...positions(seq)].map((i) => row * seq + i)))
    );
    const wanted = ids.map((ids) => ({ ids, targets: ids.map((id) => id + 1) }));
    assert.deepEqual([...tokenBatches({ ...cut, ...plan })], wanted);
  });
});

Deno.test("a micro-batch can be transferred without taking another with it", () => {
  const plan = { microBatch: 1, microBatches: 2, steps: 1 };
  const batches = tokenBatches({ tokens: positions(9), seq: 4, vocabularySize: 9, ...plan });
  const [first, second] = [...batches];
  structuredClone(null, { transfer: [first!.ids.buffer, first!.targets.buffer] });
  assert.equal(first!.ids.length, 0);
  assert.deepEqual(second!.ids, Int32Array.of(4, 5, 6, 7));
});

Deno.test("tokens that are too few, or outside the vocabulary, are refused before the first micro-batch", () => {
  const plan = { seq: 8, vocabularySize: 256, microBatch: 2, microBatches: 3, steps: 5 };
  const cut = { seq: 1, microBatch: 1, microBatches: 1, steps: undefined, vocabularySize: 96 };
  tokenBatches({ ...plan, tokens: new Uint8Array(241) });
  const cases = {
    "too few": { tokens: new Uint8Array(240) },
    "too few for a row": { tokens: new Uint8Array(8), order: shuffledOrder(1, 0) },
    "too large": { ...cut, tokens: Uint16Array.of(0, 1, 95, 96, 4, 97) },
    "negative": { ...cut, tokens: Int32Array.of(5, -1) },
  };
  return assertRefused("tokens", [
    ...Object.entries(cases).map(([what, change]) =>
      [what, () => tokenBatches({ ...plan, ...change })] as const
    ),
    ...[0, -1, 2.5, NaN].map((seq) => [{ seq }, () => rowCount(10, seq)] as const),
    ["nothing to hold out", () => splitTokens(positions(8), 4)],
    ...["text", [1, 2], Float32Array.of(0.5), undefined].flatMap((tokens) => [
      [{ split: tokens }, () => splitTokens(tokens as never, 1)] as const,
      [{ tokens }, () => tokenBatches({ ...plan, tokens: tokens as never })] as const,
    ]),
    ...[0, 1, -0.1, NaN].map((share) =>
      [{ share }, () => splitTokens(positions(9), 4, share)] as const
    ),
  ]);
});

Deno.test("rows are counted with the token after them", () =>
  assert.deepEqual([0, 1, 4, 5, 8, 9].map((tokens) => rowCount(tokens, 4)), [0, 0, 0, 1, 1, 2]));

Deno.test("no held-out token is predicted in training, and no whole row is lost", () => {
  const share = fc.double({ min: 0.01, max: 0.99, noNaN: true });
  return forAll(100, [upTo(8), upTo(60, 2), fc.nat(7), share], (seq, rows, rest, share) => {
    const { train, heldOut } = splitTokens(positions(rows * seq + 1 + rest % seq), seq, share);
    const trainRows = rowCount(train.length, seq), heldOutRows = rowCount(heldOut.length, seq);
    assert.equal(trainRows + heldOutRows, rows);
    assert.ok(trainRows >= 1 && heldOutRows >= 1);
    assert.ok(Math.abs(heldOutRows - share * rows) <= 1);
    // Predicted tokens: all except the first one of each part.
    assert.equal(train.at(-1)! + 1, heldOut[1]);
    assert.equal(heldOut.at(-1), rows * seq);
  });
});
