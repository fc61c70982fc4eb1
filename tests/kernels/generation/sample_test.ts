/** Sampling of tokens in transformers' order: temperature, then top-k, then top-p. */

import assert from "node:assert/strict";
import fc, { forAll } from "../../fast_check.ts";
import { sample, type SampleOptions } from "../../../kernels/mod.ts";

/** Probabilities by definition: sorted, cut, cut again. */
function probabilities(logits: readonly number[], options: Required<SampleOptions>): number[] {
  const { temperature, topK, topP } = options, highest = Math.max(...logits);
  const exp = logits.map((logit) => Math.exp((logit - highest) / temperature));
  const order = logits.map((_, id) => id).sort((a, b) => logits[b]! - logits[a]! || a - b);
  const sum = (ids: readonly number[]) => ids.reduce((total, id) => total + exp[id]!, 0);
  let kept = order.slice(0, topK);
  const all = sum(kept);
  kept = kept.filter((_, i) => i === 0 || sum(kept.slice(0, i)) < topP! * all);
  return logits.map((_, id) => kept.includes(id) ? exp[id]! / sum(kept) : 0);
}

Deno.test("a token is sampled from the most likely ones with its probability among them", () => {
  const logit = fc.integer({ min: -6, max: 6 }).map((value) => value / 2); // equals are frequent
  const options = fc.record({
    temperature: fc.constantFrom(0.3, 1, 2),
    topK: fc.integer({ min: 1, max: 14 }),
    topP: fc.double({ min: 0, max: 1, noNaN: true }),
  });
  const lists = fc.array(logit, { minLength: 1, maxLength: 12 });
  return forAll(100, [lists, options], (logits, options) => {
    const draws = 1000, counts = logits.map(() => 0), want = probabilities(logits, options);
    for (let i = 0; i < draws; i++) {
      counts[sample(Float32Array.from(logits), options, (i + 0.5) / draws)]!++;
    }
    counts.forEach((count, id) => {
      const isNear = Math.abs(count / draws - want[id]!) <= 1 / draws + 1e-9;
      assert.ok(isNear, `token ${id}: ${count} of ${draws}, not ${want[id]}`);
    });
  });
});

Deno.test("one token that is left is that of temperature 0: of equals the lower id", () => {
  const logits = Float32Array.of(0, 2, 1, 2);
  for (const uniform of [0, 0.5, 0.999]) {
    for (const options of [{ temperature: 0 }, { topK: 1 }, { topP: 0 }]) {
      assert.equal(sample(logits, options, uniform), 1);
    }
  }
  assert.equal(sample(logits, { topK: 2 }, 0.999), 3);
  assert.equal(sample(new Float32Array(4), { topP: 0.5 }, 0.999), 1, "two are half of four");
});

Deno.test("logits that are no numbers, and options out of their bounds, are refused", () => {
  for (const options of [{ temperature: -1 }, { topK: 0 }, { topP: NaN }]) {
    assert.throws(() => sample(Float32Array.of(1, 2), options, 0), RangeError);
  }
  for (const strange of [NaN, Infinity, -Infinity]) {
    assert.throws(() => sample(Float32Array.of(1, strange), { temperature: 0 }, 0), {
      message: `Cannot generate: logits must be finite, received ${strange} for token 1`,
    });
  }
});
