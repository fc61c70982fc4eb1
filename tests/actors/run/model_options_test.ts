/** Frozen parameters, and micro-batches of different lengths, in the pipeline. */

import assert from "node:assert/strict";
import { train, type TrainOptions } from "../../../actors/mod.ts";
import { gpt2, type TokenBatch } from "../../../kernels/mod.ts";
import { batchesOf, type Sizes, SMALL } from "../runs.ts";

const DEEP: Sizes = { ...SMALL, layers: 4, microBatches: 4, steps: 3 };

/** Losses and weights of a run. */
async function trained(options: Partial<TrainOptions>) {
  const { microBatch, microBatches, steps } = DEEP, { replicas = 1 } = options;
  const losses: number[] = [];
  for await (
    const event of train({
      model: gpt2(DEEP, microBatch),
      data: batchesOf(DEEP, replicas * microBatches * steps),
      steps,
      microBatches,
      device: "native",
      ...options,
    })
  ) {
    if (event.type === "step") losses.push(event.loss, event.gradNorm);
    if (event.type === "end") return { losses, weights: event.weights, hash: event.weightsHash };
  }
  throw new Error("a run must end with an end event");
}

Deno.test("frozen parameters stay as they were, whole stages of them too, and the others learn", async () => {
  // The embedding and the first two blocks: all of the first stage, and a part of the second.
  const frozen = (name: string) => /wte|wpe|h\.[01]\./.test(name);
  const { weights: before } = await trained({ runtime: "serial", steps: 1, learningRate: 0 });
  for (const schedule of ["1f1b", "chimera", "zb-h1"]) {
    const options = { schedule, workers: 4, frozen } as const;
    const serial = await trained({ ...options, runtime: "serial" });
    const run = await trained({ ...options, runtime: "local" });
    assert.deepEqual([run.losses, run.hash], [serial.losses, serial.hash], schedule);
    for (const [name, values] of run.weights) {
      const isSame = values.every((value, i) => value === before.get(name)![i]);
      assert.equal(isSame, frozen(name), name);
    }
  }
});

/** Micro-batches whose samples end early, each at another place: -1 is no target. */
function* uneven(count: number): Generator<TokenBatch> {
  for (const [m, { ids, targets }] of batchesOf(DEEP, count).entries()) {
    const { seq } = DEEP;
    yield { ids, targets: targets.map((target, i) => i % seq < seq - (m % 5) ? target : -1) };
  }
}

Deno.test("micro-batches of different lengths count by their tokens", async () => {
  const count = 2 * DEEP.microBatches * DEEP.steps;
  for (const schedule of ["1f1b", "chimera"]) {
    const options = { schedule, workers: 2, replicas: 2 } as const;
    const serial = await trained({ ...options, data: uneven(count), runtime: "serial" });
    const run = await trained({ ...options, data: uneven(count), runtime: "local" });
    assert.deepEqual(run.losses, serial.losses);
    // Another way to the first loss: each micro-batch alone, weighted by its targets.
    let sum = 0, predicted = 0;
    for (const batch of [...uneven(count)].slice(0, 2 * DEEP.microBatches)) {
      const alone = { data: [batch], microBatches: 1, steps: 1, runtime: "serial" } as const;
      const targets = batch.targets.filter((target) => target >= 0).length;
      sum += (await trained(alone)).losses[0]! * targets;
      predicted += targets;
    }
    assert.ok(Math.abs(run.losses[0]! / (sum / predicted) - 1) < 1e-6);
  }
});
