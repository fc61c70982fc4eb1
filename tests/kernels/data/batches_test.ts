/** Which rows a micro-batch is of, shuffled or in order, and data that is begun anywhere. */

import assert from "node:assert/strict";
import { rowCount, splitTokens } from "../../../kernels/data/token_batches.ts";
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

const epochOf = (rows: number, seed: number, epoch: number) => {
  const order = shuffledOrder(rows, seed);
  return Array.from({ length: rows }, (_, i) => order(epoch * rows + i));
};

Deno.test("every epoch reads every row once, and a row's place depends on nothing asked before", () => {
  const rows = fc.integer({ min: 1, max: 50 }), asked = fc.array(fc.nat(500), { maxLength: 20 });
  fc.assert(
    fc.property(rows, fc.maxSafeInteger(), fc.nat(1000), asked, (rows, seed, epoch, asked) => {
      const read = epochOf(rows, seed, epoch).sort((a, b) => a - b);
      assert.deepEqual(read, [...read.keys()]);
      const order = shuffledOrder(rows, seed);
      for (const row of asked) assert.equal(order(row), shuffledOrder(rows, seed)(row));
    }),
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
});

Deno.test("neighbouring epochs and seeds are not correlated", () => {
  const [n, draws] = [4, 8000];
  for (const next of [(i: number) => [1, i], (i: number) => [i, 0]]) {
    // How often row b comes last after row a came last in the epoch, or seed, before.
    const counts = new Array<number>(n * n).fill(0);
    let last = 0;
    for (let i = 0; i < draws; i++) {
      const [seed, epoch] = next(i) as [number, number];
      const row = shuffledOrder(n, seed)(epoch * n + n - 1);
      counts[last * n + row]!++;
      last = row;
    }
    const expected = draws / counts.length;
    const chiSquare = counts.reduce((sum, count) => sum + (count - expected) ** 2 / expected, 0);
    // 15 degrees of freedom: 37.7 is exceeded once in a thousand.
    assert.ok(chiSquare < 37.7, `chi-square ${chiSquare}`);
  }
});

Deno.test("only whole numbers of rows and seeds are shuffled", () => {
  for (const rows of [0, -1, 1.5, NaN, 2 ** 32]) {
    assert.throws(() => shuffledOrder(rows, 0), new RegExp(`^RangeError: .*received ${rows}$`));
  }
  for (const seed of [0.5, NaN, Infinity]) {
    assert.throws(() => shuffledOrder(1, seed), new RegExp(`^RangeError: .*received ${seed}$`));
  }
});

const PLANS = fc.record({
  microBatch: fc.integer({ min: 1, max: 4 }),
  microBatches: fc.integer({ min: 1, max: 5 }),
  replicas: fc.integer({ min: 1, max: 3 }),
  steps: fc.integer({ min: 0, max: 4 }),
});

Deno.test("sample j of micro-batch g in step t is row ((t − 1)·W·N + g)·B + j", () => {
  fc.assert(fc.property(PLANS, fc.nat(20), (plan, spare) => {
    const { microBatch: B, microBatches: N, replicas: W, steps } = plan;
    const rows = [...batchRows(rowsNeeded(plan) + spare, plan)];
    assert.equal(rows.length, steps * W * N);
    rows.forEach((batch, g) =>
      assert.deepEqual([...batch], Array.from({ length: B }, (_, j) => g * B + j))
    );
  }));
});

Deno.test("a run resumed at any step reads what the uninterrupted run reads from there", () => {
  fc.assert(
    fc.property(PLANS, fc.integer({ min: 1, max: 5 }), fc.boolean(), (plan, fromStep, shuffled) => {
      const order = shuffled ? shuffledOrder(7, 1) : undefined;
      const whole = { ...plan, steps: fromStep - 1 + plan.steps, order };
      const rows = rowsNeeded(whole);
      const resumed = [...batchRows(rows, { ...plan, fromStep, order })];
      const skipped = (fromStep - 1) * plan.replicas * plan.microBatches;
      assert.deepEqual(resumed, [...batchRows(rows, whole)].slice(skipped));
    }),
  );
});

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
  const plan = { microBatch: 2, microBatches: 4 };
  const refuses = (rows: number, change: object, message: RegExp) =>
    assert.throws(() => batchRows(rows, { ...plan, ...change }), message);
  for (const change of [{ steps: 11 }, { fromStep: 11 }, { steps: 6, fromStep: 6 }]) {
    refuses(80, change, /^RangeError: .* at least 88 rows, received 80$/);
  }
  refuses(0, { order: shuffledOrder(1, 0) }, /^RangeError: .* at least 1 rows, received 0$/);
  for (const name of ["microBatch", "microBatches", "replicas", "fromStep"]) {
    for (const value of [0, -1, 1.5, NaN, Infinity]) {
      const message = `^RangeError: .*${name} must .* from 1, .*${value}`;
      refuses(80, { [name]: value }, new RegExp(message));
    }
  }
  refuses(80, { steps: -1 }, /steps must be a whole number from 0, received -1$/);
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
    fc.assert(fc.property(SEEKS, fc.nat(30), fc.nat(99), fc.boolean(), property), { numRuns: 60 });
  });
}

Deno.test("data is begun at micro-batch 4,000,000 without a row before it being looked at", () => {
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
  const cut = fc.record({
    length: fc.integer({ min: 50, max: 200 }),
    seq: fc.integer({ min: 1, max: 6 }),
    microBatch: fc.integer({ min: 1, max: 3 }),
    microBatches: fc.integer({ min: 1, max: 2 }),
    shuffled: fc.boolean(),
  });
  fc.assert(fc.property(cut, ({ length, seq, shuffled, ...cut }) => {
    const rows = rowCount(length, seq), order = shuffled ? shuffledOrder(rows, 3) : undefined;
    const plan = { ...cut, order, steps: shuffled ? 9 : undefined };
    const batches = tokenBatches({
      tokens: positions(length),
      seq,
      vocabularySize: length,
      ...plan,
    });
    const ids = [...batchRows(rows, plan)].map((batch) =>
      Int32Array.from([...batch].flatMap((row) => [...positions(seq)].map((i) => row * seq + i)))
    );
    assert.deepEqual([...batches], ids.map((ids) => ({ ids, targets: ids.map((id) => id + 1) })));
  }));
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
  const cases = [
    [{ tokens: new Uint8Array(240) }, /^RangeError: .* at least 241 tokens, received 240$/],
    [
      { tokens: new Uint8Array(8), order: shuffledOrder(1, 0) },
      /^RangeError: .* at least 9 tokens, received 8$/,
    ],
    [
      { ...cut, tokens: Uint16Array.of(0, 1, 95, 96, 4, 97) },
      /^RangeError: .* from 0 to 95 .*received 96 at position 3$/,
    ],
    [{ ...cut, tokens: Int32Array.of(5, -1) }, /received -1 at position 1$/],
  ] as const;
  for (const [change, message] of cases) {
    assert.throws(() => tokenBatches({ ...plan, ...change }), message);
  }
});

Deno.test("rows are counted with the token after them", () => {
  assert.deepEqual([0, 1, 4, 5, 8, 9].map((tokens) => rowCount(tokens, 4)), [0, 0, 0, 1, 1, 2]);
  for (const seq of [0, -1, 2.5, NaN]) {
    assert.throws(() => rowCount(10, seq), new RegExp(`^RangeError: .*received ${seq}$`));
  }
});

Deno.test("no held-out token is predicted in training, and no whole row is lost", () => {
  const share = fc.double({ min: 0.01, max: 0.99, noNaN: true });
  const sizes = [fc.integer({ min: 1, max: 8 }), fc.integer({ min: 2, max: 60 })] as const;
  fc.assert(fc.property(...sizes, fc.nat(7), share, (seq, rows, rest, share) => {
    const { train, heldOut } = splitTokens(positions(rows * seq + 1 + rest % seq), seq, share);
    const trainRows = rowCount(train.length, seq), heldOutRows = rowCount(heldOut.length, seq);
    assert.equal(trainRows + heldOutRows, rows);
    assert.ok(trainRows >= 1 && heldOutRows >= 1);
    assert.ok(Math.abs(heldOutRows - share * rows) <= 1);
    // What is predicted: all but the first token of each part.
    assert.equal(train.at(-1)! + 1, heldOut[1]);
    assert.equal(heldOut.at(-1), rows * seq);
  }));
});

Deno.test("a text that is too short to hold anything out is refused", () => {
  const message = /^RangeError: .* at least 9 tokens .* received 8$/;
  assert.throws(() => splitTokens(positions(8), 4), message);
  for (const share of [0, 1, -0.1, NaN]) {
    assert.throws(() => splitTokens(positions(9), 4, share), new RegExp(`received ${share}$`));
  }
});
