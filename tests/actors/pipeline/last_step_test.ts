/** The last mini-batch may be smaller: it trains on the same placement, or is dropped. */

import assert from "node:assert/strict";
import { hashWeights, train, type TrainOptions } from "../../../actors/mod.ts";
import { gpt2 } from "../../../kernels/mod.ts";
import { createSchedule } from "../../../schedules/mod.ts";
import { batchesOf, groupingOf, once, type Sizes, SMALL } from "../runs.ts";

const DEEP: Sizes = { ...SMALL, layers: 6, microBatches: 4 };

/** Losses and weights of a run over `count` micro-batches. */
async function trained(count: number, options: Partial<TrainOptions>) {
  const { microBatch, microBatches } = DEEP, losses: number[] = [];
  for await (
    const event of train({
      model: gpt2(DEEP, microBatch),
      data: batchesOf(DEEP, count),
      steps: 2,
      microBatches,
      device: "native",
      ...options,
    })
  ) {
    if (event.type === "step") losses.push(event.loss);
    if (event.type === "end") {
      return { losses, steps: event.steps, hash: hashWeights(event.weights) };
    }
  }
  throw new Error("a run must end with an end event");
}

/** The serial run of a grouping, whatever the schedule. */
const serialOf = once((_grouping, count: number, options: Partial<TrainOptions>) =>
  trained(count, { ...options, runtime: "serial" })
);

Deno.test("a smaller last step runs on every kind of placement, with the bits of the serial run", async () => {
  for (const schedule of ["gpipe", "chimera", "hanayo", "zb-h1", "message-driven", "dualpipe-v"]) {
    for (const replicas of [1, 2]) {
      for (const more of [1, 3]) {
        const options = { schedule, replicas, workers: 2 }, count = 4 * replicas + more;
        const { microBatches } = DEEP,
          made = createSchedule(schedule, { workers: 2, microBatches });
        const serial = await serialOf(`${groupingOf(made, replicas)}, ${count}`, count, options);
        const run = await trained(count, { ...options, runtime: "local" });
        assert.deepEqual(run, serial, `${schedule} with ${count} micro-batches`);
        assert.equal(run.steps, 2);
      }
    }
  }
});

Deno.test("a smaller last step can be dropped", async () => {
  const options = { schedule: "gpipe", workers: 2, runtime: "local", dropLast: true } as const;
  const { steps, hash } = await trained(7, options);
  assert.equal(steps, 1);
  assert.equal(hash, (await trained(4, { ...options, steps: 1 })).hash);
});
