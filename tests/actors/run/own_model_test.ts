/** A model and data of one's own train under every policy, with the bits of the serial loop. */

import assert from "node:assert/strict";
import { train, type TrainOptions } from "../../../actors/mod.ts";
import { batches, RINGS } from "./own_layers.ts";

/** Losses and the hash of the weights; `data` tells whether its iterator was closed. */
async function outcome(options: Partial<TrainOptions>) {
  const losses: number[] = [];
  for await (
    const event of train({
      model: RINGS,
      data: batches(),
      steps: 2,
      microBatches: 4,
      device: "reference",
      learningRate: 0.01,
      ...options,
    })
  ) {
    if (event.type === "step") losses.push(event.loss);
    if (event.type === "end") return { losses, weightsHash: event.weightsHash };
  }
  throw new Error("a run must end with an end event");
}

const POLICIES: readonly Pick<TrainOptions, "schedule" | "scheduleOptions">[] = [
  { schedule: "gpipe" },
  { schedule: "1f1b" },
  ...[1, 2, 4].flatMap((pipelineLimit) =>
    (["fifo", "backward-first"] as const).map((order) => ({
      schedule: "message-driven",
      scheduleOptions: { pipelineLimit, order },
    }))
  ),
];

for (const runtime of ["local", "workers"] as const) {
  Deno.test(`own layers and an own async iterator have the serial bits under every policy (${runtime})`, async () => {
    const serial = await outcome({ runtime: "serial" });
    assert.ok(serial.losses.every(Number.isFinite));
    for (const policy of POLICIES) {
      for (const workers of [2, 3]) {
        const what = `${workers} workers, ${JSON.stringify(policy)}`;
        assert.deepEqual(await outcome({ runtime, workers, ...policy }), serial, what);
      }
    }
  });
}

Deno.test("the loss of an own model falls", async () => {
  const { losses } = await outcome({ runtime: "local", workers: 2, steps: 60 });
  const mean = (part: number[]) => part.reduce((a, b) => a + b) / part.length;
  assert.ok(mean(losses.slice(-10)) < 0.8 * mean(losses.slice(0, 10)), `${losses}`);
});

Deno.test("a run takes no more micro-batches than it needs, and closes the iterator", async () => {
  let taken = 0, isClosed = false;
  async function* counted() {
    try {
      for await (const batch of batches()) {
        taken++;
        yield batch;
      }
    } finally {
      isClosed = true;
    }
  }
  await outcome({ runtime: "local", workers: 2, data: counted() });
  assert.deepEqual([taken, isClosed], [8, true]);
});

Deno.test("leaving the loop early ends the run and closes the iterator", async () => {
  let isClosed = false;
  function* endless() {
    try {
      for (let i = 0;; i++) yield { points: new Float32Array(8), labels: new Int32Array(4), i };
    } finally {
      isClosed = true;
    }
  }
  const events = train({
    model: RINGS,
    data: endless() as never,
    steps: 1000,
    workers: 2,
    device: "reference",
  });
  for await (const event of events) if (event.type === "step") break;
  assert.ok(isClosed); // the test runner's sanitizers see that no worker is left
});
