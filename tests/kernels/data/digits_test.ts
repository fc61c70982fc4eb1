import assert from "node:assert/strict";
import { DIGIT_PIXELS, digitBatches, loadDigits } from "../../../kernels/data/digits.ts";
import { noisyDigitBatches } from "../../../kernels/data/noisy_digits.ts";
import { shuffledOrder } from "../../../kernels/data/order.ts";
import { batchRows } from "../../../kernels/data/rows.ts";
import { splitBatch } from "../../../kernels/layers/batch.ts";

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

Deno.test("noise follows from the seed and a row's place in the run, not from how rows are cut", () => {
  const count = 7, images = new Float32Array(count * DIGIT_PIXELS).fill(0.25);
  const digits = { images, labels: new Int32Array(count) };
  const run = { microBatches: 2, steps: 3, order: shuffledOrder(count, 1) };
  const noise = { deviation: 0.5, seed: 1 };
  const rowsOf = (microBatch: number, fromStep: number, seed: number) => {
    const plan = { ...run, microBatch, fromStep };
    const batches = [...noisyDigitBatches(digits, plan, { ...noise, seed })];
    return batches.flatMap(({ features, targets }) => {
      assert.ok(targets.every((ink) => ink === 0.25));
      return splitBatch({ features }, microBatch).map(({ features }) => [...features!]);
    });
  };
  const single = rowsOf(1, 1, 1), pairs = rowsOf(2, 1, 1);
  assert.deepEqual(pairs.slice(0, 6), single);
  assert.deepEqual(rowsOf(1, 3, 1).slice(0, 2), single.slice(4, 6));
  assert.equal(new Set(pairs.map(String)).size, 12); // A digit that comes again has other noise.
  assert.notDeepEqual(rowsOf(1, 1, 2), single);
  const plan = { ...run, microBatch: 2 };
  const [third] = [...noisyDigitBatches(digits, plan, noise).from(3)];
  assert.deepEqual([...third!.features], pairs.slice(6, 8).flat());
});
