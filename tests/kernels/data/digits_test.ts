import assert from "node:assert/strict";
import { DIGIT_PIXELS, digitBatches, loadDigits } from "../../../kernels/data/digits.ts";
import { shuffledOrder } from "../../../kernels/data/order.ts";
import { batchRows } from "../../../kernels/data/rows.ts";

Deno.test("digits come in the same mixed order every time, in two parts", async () => {
  const [first, second] = await Promise.all([loadDigits(), loadDigits()]);
  assert.deepEqual(first.train.labels, second.train.labels);
  assert.deepEqual(first.heldOut.images, second.heldOut.images);
  assert.deepEqual([...first.train.labels.slice(0, 10)], [8, 8, 3, 9, 1, 3, 4, 5, 6, 4]);
  for (const [{ images, labels }, count] of [[first.train, 9000], [first.heldOut, 1000]] as const) {
    assert.equal(labels.length, count);
    assert.equal(images.length, count * DIGIT_PIXELS);
    assert.ok(images.every((ink) => ink >= 0 && ink <= 1));
    for (let digit = 0; digit < 10; digit++) {
      const share = labels.filter((label) => label === digit).length / count;
      assert.ok(share > 0.07 && share < 0.13, `${share} of digit ${digit}`);
    }
  }
});

Deno.test("an image keeps its label", async () => {
  // Ones are thin and noughts are not: labels that had come apart from images would even it out.
  const { train: { images, labels } } = await loadDigits();
  const ink = (digit: number) => {
    let [sum, count] = [0, 0];
    labels.forEach((label, i) => {
      if (label !== digit) return;
      sum += images.subarray(i * DIGIT_PIXELS, (i + 1) * DIGIT_PIXELS).reduce((a, b) => a + b);
      count++;
    });
    return sum / count;
  };
  assert.ok(ink(0) > 2 * ink(1), `${ink(0)} and ${ink(1)}`);
});

Deno.test("micro-batches of digits are rows of the data, numbered as all rows are", () => {
  const count = 7;
  const digits = {
    images: Float32Array.from({ length: count * DIGIT_PIXELS }, (_, i) => i),
    labels: Int32Array.from({ length: count }, (_, i) => i),
  };
  const plan = { microBatch: 2, microBatches: 2, steps: 3, order: shuffledOrder(count, 1) };
  const rows = [...batchRows(count, plan)];
  const batches = [...digitBatches(digits, plan)];
  assert.deepEqual(batches.map(({ labels }) => [...labels]), rows);
  batches.forEach(({ features }, g) => {
    assert.equal(features.length, 2 * DIGIT_PIXELS);
    features.forEach((value, i) => {
      const row = rows[g]![Math.floor(i / DIGIT_PIXELS)]!;
      assert.equal(value, row * DIGIT_PIXELS + i % DIGIT_PIXELS);
    });
  });
  assert.throws(() => digitBatches(digits, { microBatch: 8, microBatches: 1 }), RangeError);
});
