/** Evaluations keep no more micro-batches in flight than they may, and none too few. */

import assert from "node:assert/strict";
import { openEvaluations } from "../../../actors/pipeline/supervisor/evaluation.ts";
import { openPipeline } from "../../../actors/run/engines/pipeline.ts";
import { prepareRehearsal } from "../../../actors/rehearsal/plan.ts";
import type { Batch } from "../../../kernels/mod.ts";
import { random, simulate } from "../../../testing.ts";

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

Deno.test("an evaluation in the pipeline has no more micro-batches in flight than a step", async () => {
  const { options, requests } = prepareRehearsal({
    schedule: "message-driven",
    workers: 2,
    replicas: 1,
  });
  const { microBatches } = requests[0]!, limit = options.schedule.injectionLimit;
  assert.ok(microBatches.length > limit + 1);
  let most = 0;
  for (let seed = 0; seed < 20; seed++) {
    const run = await simulate({ seed, strategy: random() }, async (world) => {
      const engine = await openPipeline({ ...options, system: world.system }, "local");
      let inFlight = 0;
      world.invariant("in flight", ({ actor, type }) => {
        if (actor === "worker-0" && type === "Inject") most = Math.max(most, ++inFlight);
        if (actor === "supervisor" && type === "Loss") inFlight--;
      });
      assert.equal((await engine.evaluate(microBatches)).length, microBatches.length);
    });
    assert.equal(run.failure, undefined, `seed ${seed}`);
  }
  assert.equal(most, limit);
});
