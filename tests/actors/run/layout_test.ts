/** A run with a layout of one's own: its stages are as said, its bits those of every other layout. */

import assert from "node:assert/strict";
import { train, type TrainOptions } from "../../../actors/mod.ts";
import { gpt2 } from "../../../kernels/mod.ts";
import { batchesOf, outcome, type Sizes, SMALL } from "../runs.ts";

const SIZES: Sizes = { ...SMALL, layers: 3, hidden: 16, seq: 8, microBatches: 4, steps: 3 };
const OPTIONS = { device: "native", workers: 2, schedule: "1f1b", runtime: "local" } as const;

/** The plan of a run. */
async function planOf(options: Partial<TrainOptions>) {
  const { microBatch, microBatches, steps } = SIZES;
  const model = gpt2(SIZES, microBatch), data = batchesOf(SIZES);
  for await (const event of train({ model, data, steps, microBatches, ...OPTIONS, ...options })) {
    if (event.type === "plan") return event.plan;
  }
  throw new Error("a run must begin with its plan");
}

Deno.test("stages are those of the layout, and the plan says it; without one they are of equal work", async () => {
  const plan = await planOf({ layout: "E,.5|2.5,H" });
  assert.equal(plan.layout, "E,0.5|2.5,H");
  assert.deepEqual(plan.stages.map(({ layers }) => layers), [
    ["embedding", "block 0 attention"],
    ["block 0 mlp", "block 1", "block 2", "head"],
  ]);
  const auto = await planOf({ layout: "auto" });
  assert.equal(auto.layout, (await planOf({})).layout);
});

Deno.test("weights have the same bits in every layout, on every runtime, and after a failure", async () => {
  const faults = [{ worker: 1, afterActions: 12, kind: "throw" }] as const;
  const runs: Partial<TrainOptions>[] = [
    { layout: "E|3,H" },
    { layout: "E,3|H", clip: 0.1 },
    { layout: "E|.5|2,.5|H", workers: 4, schedule: "zb-h1" },
    { layout: "E,1|1|.5|.5,H", schedule: "interleaved" },
    { layout: "E,1|1|.5|.5,H", workers: 4, schedule: "chimera" },
    { layout: "E,2|1,H", runtime: "workers", faults },
  ];
  for (const { layout, ...options } of runs) {
    const run = await outcome(SIZES, { ...OPTIONS, ...options, layout });
    const serial = await outcome(SIZES, { ...OPTIONS, ...options, faults: [], runtime: "serial" });
    assert.deepEqual(run.bits, serial.bits, layout);
  }
});

Deno.test("without flushes a layout decides how old weights are, in the pipeline and in the serial run", async () => {
  const options = { ...OPTIONS, schedule: "pipedream" } as const;
  const bits = [];
  for (const layout of ["E|3,H", "E,3|H"]) {
    const run = await outcome(SIZES, { ...options, layout });
    const serial = await outcome(SIZES, { ...options, layout, runtime: "serial" });
    assert.deepEqual(run.bits, serial.bits, layout);
    bits.push(JSON.stringify(run.bits));
  }
  assert.notEqual(bits[0], bits[1]);
});

Deno.test("a layout of another model or schedule is refused before anything runs", async () => {
  await assert.rejects(planOf({ layout: "E,2|2,H" }), {
    name: "RangeError",
    message:
      'Cannot use the layout "E,2|2,H": its stages must have all that the model has in order, E,3,H, received E,4,H',
  });
  await assert.rejects(planOf({ layout: "E,3,H" }), /as many as the schedule has, 2, received 1$/);
  await assert.rejects(planOf({ layout: 3 as never }), TypeError);
});
