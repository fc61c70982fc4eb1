/** Which schedule a run has: a name, a definition of one's own, or a schedule that is made. */

import assert from "node:assert/strict";
import { train, type TrainOptions } from "../../../actors/mod.ts";
import { createSchedule, type ScheduleDefinition } from "../../../schedules/mod.ts";
import { eager } from "../../../examples/custom_schedule.ts";
import { batch, RINGS } from "./own_layers.ts";

const RUN = { model: RINGS, steps: 2, microBatches: 4, device: "reference" } as const;

async function bitsOf(options: Partial<TrainOptions>, count = 8) {
  const losses: number[] = [];
  for await (
    const event of train({
      ...RUN,
      data: Array.from({ length: count }, (_, i) => batch(i)),
      ...options,
    })
  ) {
    if (event.type === "step") losses.push(event.loss);
    if (event.type === "end") return { losses, hash: event.weightsHash };
  }
  throw new Error("a run must end with an end event");
}

Deno.test("a definition of one's own trains as it is, a short last step included", async () => {
  const made: number[] = [];
  const watched: ScheduleDefinition = {
    ...eager,
    create(options) {
      made.push(options.microBatches);
      return eager.create(options);
    },
  };
  const run = await bitsOf({ schedule: watched, workers: 3, runtime: "local" }, 7);
  assert.deepEqual(run, await bitsOf({ schedule: "gpipe", runtime: "serial" }, 7));
  assert.deepEqual([...new Set(made)], [4, 3]);
});

Deno.test("an alias trains as the schedule that it names", async () => {
  const [alias, named] = await Promise.all(
    ["dapple", "1f1b"].map((schedule) => bitsOf({ schedule, workers: 2, runtime: "local" })),
  );
  assert.deepEqual(alias, named);
});

const SIZE = { workers: 2, microBatches: 4 } as const;

Deno.test("an option that the schedule of a run does not read is refused by name", async () => {
  const refused: readonly [Partial<TrainOptions>, RegExp][] = [
    [{ scheduleOptions: { waves: 3 } }, /the schedule 1f1b: it does not read waves; .*hanayo/],
    [
      { schedule: "dapple", scheduleOptions: { chunks: 2 } },
      /the schedule dapple: it does not read chunks; .*interleaved, looped-bfs, interleaved-zb, search$/,
    ],
    [{ schedule: eager, scheduleOptions: { waves: 3 } }, /eager-1f1b: it does not read waves/],
    [
      { schedule: createSchedule("hanayo", SIZE), scheduleOptions: { chunks: 2 } },
      /the schedule hanayo: it does not read chunks/,
    ],
    [
      { policy: "list", scheduleOptions: { activationLimit: 4 } },
      /the schedule 1f1b: it does not read activationLimit; schedules that do: message-driven, search$/,
    ],
    [
      { scheduleOptions: { microBatches: 8 } },
      /scheduleOptions.microBatches must be 4, as microBatches of the run, or left out, received 8/,
    ],
    [{ scheduleOptions: { workers: 4 } }, /scheduleOptions.workers must be 2, .* received 4/],
  ];
  for (const [options, message] of refused) {
    const run = bitsOf({ workers: 2, runtime: "local", ...options });
    await assert.rejects(run, { name: "RangeError", message });
  }
  const scheduleOptions = { ...SIZE, activationLimit: 4, waves: undefined };
  await bitsOf({ workers: 2, runtime: "local", policy: "elastic", scheduleOptions });
});
