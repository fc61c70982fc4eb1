/** Evaluations keep no more micro-batches in flight than they may, and none too few. */

import assert from "node:assert/strict";
import { openEvaluations } from "../../actors/evaluation.ts";
import type { Batch } from "../../mod.ts";

Deno.test("an evaluation has exactly its limit in flight, and answers in the order of its micro-batches", () => {
  for (const limit of [1, 2, 3, 9]) {
    const inFlight: number[] = [], answers: unknown[] = [];
    const evaluations = openEvaluations(limit, (microBatch) => void inFlight.push(microBatch));
    const microBatches = Array.from({ length: 5 }, (): Batch => ({}));
    evaluations.begin(microBatches, (losses) => void answers.push(losses));
    for (let done = 0; done < 5; done++) {
      assert.equal(inFlight.length, Math.min(5 - done, limit), `limit ${limit}, ${done} done`);
      assert.deepEqual(answers, []);
      // The newest that is in flight comes first.
      const next = inFlight.pop()!;
      evaluations.add(next, Float32Array.of(next));
    }
    assert.deepEqual(answers, [[0, 1, 2, 3, 4].map((m) => Float32Array.of(m))]);
    assert.equal(evaluations.isRunning, false);
  }
});
