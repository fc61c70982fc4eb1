import assert from "node:assert/strict";
import fc from "../../fast_check.ts";
import { shuffledOrder } from "../../../kernels/data/order.ts";
import { batchRows, rowsNeeded } from "../../../kernels/data/rows.ts";

const plan = fc.record({
  microBatch: fc.integer({ min: 1, max: 4 }),
  microBatches: fc.integer({ min: 1, max: 5 }),
  replicas: fc.integer({ min: 1, max: 3 }),
  steps: fc.integer({ min: 0, max: 4 }),
});

Deno.test("sample j of micro-batch g in step t is row ((t − 1)·W·N + g)·B + j", () => {
  fc.assert(
    fc.property(plan, fc.nat(20), (plan, spare) => {
      const { microBatch: B, microBatches: N, replicas: W, steps } = plan;
      const rows = [...batchRows(rowsNeeded(plan) + spare, plan)];
      assert.equal(rows.length, steps * W * N);
      for (let t = 1; t <= steps; t++) {
        for (let g = 0; g < W * N; g++) {
          for (let j = 0; j < B; j++) {
            assert.equal(rows[(t - 1) * W * N + g]![j], ((t - 1) * W * N + g) * B + j);
          }
        }
      }
    }),
  );
});

Deno.test("a run resumed at any step reads what the uninterrupted run reads from there", () => {
  fc.assert(
    fc.property(plan, fc.integer({ min: 1, max: 5 }), fc.boolean(), (plan, fromStep, shuffled) => {
      const order = shuffled ? shuffledOrder(7, 1) : undefined;
      const whole = { ...plan, steps: fromStep - 1 + plan.steps, order };
      const rows = rowsNeeded(whole);
      const resumed = [...batchRows(rows, { ...plan, fromStep, order })];
      const skipped = (fromStep - 1) * plan.replicas * plan.microBatches;
      assert.deepEqual(resumed, [...batchRows(rows, whole)].slice(skipped));
    }),
  );
});

Deno.test("without a number of steps, rows in order end with the last whole step", () => {
  const plan = { microBatch: 2, microBatches: 2 };
  assert.equal([...batchRows(11, plan)].length, 4);
  assert.equal([...batchRows(4, plan)].length, 2);
});

Deno.test("without a number of steps, shuffled rows do not end", () => {
  const rows = batchRows(3, { microBatch: 2, microBatches: 1, order: shuffledOrder(3, 0) });
  const firstEpochs = [...rows.take(30)].flat();
  for (let row = 0; row < 3; row++) {
    assert.equal(firstEpochs.filter((r) => r === row).length, 20);
  }
});

Deno.test("a plan that cannot be read is refused before the first micro-batch", () => {
  const plan = { microBatch: 2, microBatches: 4 };
  const refuses = (rows: number, change: object, message: RegExp) =>
    assert.throws(() => batchRows(rows, { ...plan, ...change }), message);
  refuses(80, { steps: 11 }, /^RangeError: .* at least 88 rows, received 80$/);
  refuses(80, { fromStep: 11 }, /^RangeError: .* at least 88 rows, received 80$/);
  refuses(80, { steps: 6, fromStep: 6 }, /^RangeError: .* at least 88 rows, received 80$/);
  refuses(0, { order: shuffledOrder(1, 0) }, /^RangeError: .* at least 1 rows, received 0$/);
  for (const name of ["microBatch", "microBatches", "replicas", "fromStep"]) {
    for (const value of [0, -1, 1.5, NaN, Infinity]) {
      refuses(
        80,
        { [name]: value },
        new RegExp(`^RangeError: .*${name} must .* from 1, .*${value}`),
      );
    }
  }
  refuses(80, { steps: -1 }, /steps must be a whole number from 0, received -1$/);
});
