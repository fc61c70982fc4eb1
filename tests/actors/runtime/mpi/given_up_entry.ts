/** Two runs on four ranks whose gradients MPI adds: the second has a step that is given up and a
 * worker that fails. */

import assert from "node:assert/strict";
import { train, type TrainOptions } from "../../../../actors/mod.ts";
import { follow, isFollower, lead } from "../../../../actors/run/mpi_run.ts";
import { print } from "../../../../console/print.ts";
import type { Batch } from "../../../../kernels/mod.ts";
import { B, batch, RINGS } from "../../run/own_layers.ts";

/** Micro-batches of a step, of both replicas. */
const N = 8;

/** Micro-batches of good steps, and of others, whose gradients overflow. */
function* dataOf(steps: readonly ("good" | "bad")[]): Generator<Batch, void> {
  let good = 0;
  for (const kind of steps) {
    for (let m = 0; m < N; m++) {
      if (kind === "good") yield batch(good++);
      else yield { ...batch(m), points: new Float32Array(2 * B).fill(2000) } as Batch;
    }
  }
}

async function run(steps: readonly ("good" | "bad")[], faults: TrainOptions["faults"] = []) {
  const told: string[] = [];
  let weightsHash = "";
  for await (
    const event of train({
      model: RINGS,
      data: dataOf(steps),
      steps: steps.length,
      microBatches: N / 2,
      workers: 2,
      replicas: 2,
      schedule: "chimera",
      device: "native",
      precision: "fp16",
      lossScale: 256,
      learningRate: 0.01,
      runtime: "mpi",
      reduce: "mpi",
      sync: "eager",
      bucketSize: 8,
      coarsening: 1,
      faults,
      announce: (line) => told.push(line),
    })
  ) {
    told.push(event.type);
    if (event.type === "end") weightsHash = event.weightsHash;
  }
  return { told, weightsHash };
}

if (isFollower()) await follow({});
else {
  await using _job = await lead({});
  const plain = await run(["good", "good", "good"]);
  const hard = await run(["good", "bad", "good", "good"], [
    { worker: 1, afterActions: 21, kind: "throw" },
  ]);
  for (const what of [/^skip$/, /a fault was asked for/]) {
    assert.ok(hard.told.some((one) => what.test(one)), `${hard.told}`);
    assert.ok(!plain.told.some((one) => what.test(one)), `${plain.told}`);
  }
  assert.equal(hard.weightsHash, plain.weightsHash);
  print("the same weights");
}
Deno.exit(0);
