import assert from "node:assert/strict";
import fc from "../../fast_check.ts";
import { shuffledOrder } from "../../../kernels/data/order.ts";
import { batchRows } from "../../../kernels/data/rows.ts";
import { rowCount, splitTokens, tokenBatches } from "../../../kernels/data/token_batches.ts";

/** Tokens that are their own positions, so that a batch shows where it came from. */
const positions = (length: number) => Int32Array.from({ length }, (_, i) => i);

Deno.test("row r holds tokens r·seq … r·seq + seq − 1 and predicts the next of each", () => {
  fc.assert(
    fc.property(
      fc.record({
        length: fc.integer({ min: 50, max: 200 }),
        seq: fc.integer({ min: 1, max: 6 }),
        microBatch: fc.integer({ min: 1, max: 3 }),
        microBatches: fc.integer({ min: 1, max: 2 }),
        shuffled: fc.boolean(),
      }),
      ({ length, seq, microBatch, microBatches, shuffled }) => {
        const tokens = positions(length);
        const rows = rowCount(length, seq);
        const order = shuffled ? shuffledOrder(rows, 3) : undefined;
        const plan = { microBatch, microBatches, order, steps: shuffled ? 9 : undefined };
        const batches = [...tokenBatches({ tokens, seq, vocabularySize: length, ...plan })];
        const expected = [...batchRows(rows, plan)];
        assert.equal(batches.length, expected.length);
        batches.forEach(({ ids, targets }, g) => {
          assert.equal(ids.length, microBatch * seq);
          expected[g]!.forEach((row, j) => {
            for (let i = 0; i < seq; i++) {
              assert.equal(ids[j * seq + i], row * seq + i);
              assert.equal(targets[j * seq + i], row * seq + i + 1);
            }
          });
        });
      },
    ),
  );
});

Deno.test("a micro-batch can be transferred without taking another with it", () => {
  const plan = { microBatch: 1, microBatches: 2, steps: 1 };
  const batches = tokenBatches({ tokens: positions(9), seq: 4, vocabularySize: 9, ...plan });
  const [first, second] = [...batches];
  structuredClone(null, { transfer: [first!.ids.buffer, first!.targets.buffer] });
  assert.equal(first!.ids.length, 0);
  assert.deepEqual(second!.ids, Int32Array.of(4, 5, 6, 7));
});

Deno.test("too few tokens are told by how many are needed", () => {
  const options = { seq: 8, vocabularySize: 256, microBatch: 2, microBatches: 3, steps: 5 };
  tokenBatches({ tokens: new Uint8Array(241), ...options });
  assert.throws(
    () => tokenBatches({ tokens: new Uint8Array(240), ...options }),
    /^RangeError: .* at least 241 tokens, received 240$/,
  );
  assert.throws(
    () => tokenBatches({ tokens: new Uint8Array(8), ...options, order: shuffledOrder(1, 0) }),
    /^RangeError: .* at least 9 tokens, received 8$/,
  );
});

Deno.test("a token outside the vocabulary is told before the first micro-batch", () => {
  const tokens = Uint16Array.of(0, 1, 2, 96, 4, 97);
  const options = { seq: 1, microBatch: 1, microBatches: 1 };
  assert.throws(
    () => tokenBatches({ tokens, vocabularySize: 96, ...options }),
    /^RangeError: .* from 0 to 95 .*received 96 at position 3$/,
  );
  assert.throws(
    () => tokenBatches({ tokens: Int32Array.of(5, -1), vocabularySize: 96, ...options }),
    /received -1 at position 1$/,
  );
});

Deno.test("rows are counted with the token after them", () => {
  assert.deepEqual([0, 1, 4, 5, 8, 9].map((tokens) => rowCount(tokens, 4)), [0, 0, 0, 1, 1, 2]);
  for (const seq of [0, -1, 2.5, NaN]) {
    assert.throws(() => rowCount(10, seq), new RegExp(`^RangeError: .*received ${seq}$`));
  }
});

Deno.test("no held-out token is predicted in training, and no whole row is lost", () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 8 }),
      fc.integer({ min: 2, max: 60 }),
      fc.nat(7),
      fc.double({ min: 0.01, max: 0.99, noNaN: true }),
      (seq, rows, rest, share) => {
        const tokens = positions(rows * seq + 1 + rest % seq);
        const { train, heldOut } = splitTokens(tokens, seq, share);
        const trainRows = rowCount(train.length, seq);
        const heldOutRows = rowCount(heldOut.length, seq);
        assert.equal(trainRows + heldOutRows, rows);
        assert.ok(trainRows >= 1 && heldOutRows >= 1);
        assert.ok(Math.abs(heldOutRows - share * rows) <= 1);
        // What is predicted: all but the first token of each part.
        assert.equal(train.at(-1)! + 1, heldOut[1]);
        assert.equal(heldOut.at(-1), rows * seq);
      },
    ),
  );
});

Deno.test("a text that is too short to hold anything out is refused", () => {
  assert.throws(
    () => splitTokens(positions(8), 4),
    /^RangeError: .* at least 9 tokens .* received 8$/,
  );
  for (const share of [0, 1, -0.1, NaN]) {
    assert.throws(() => splitTokens(positions(9), 4, share), new RegExp(`received ${share}$`));
  }
});
