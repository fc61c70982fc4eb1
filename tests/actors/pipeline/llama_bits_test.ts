/** A Llama trains under every kind of schedule with the bits of the serial run. */

import assert from "node:assert/strict";
import type { TrainOptions } from "../../../actors/mod.ts";
import { llama } from "../../../kernels/mod.ts";
import { createSchedule } from "../../../schedules/mod.ts";
import { fewAtATime, groupingOf, once, outcome, type Sizes, SMALL } from "../runs.ts";

/** Eight layers, as many as hanayo and zb-v want of four workers. */
const SIZES: Sizes = { ...SMALL, layers: 3, microBatches: 4, dropout: 0.1 };

/** Messages that take from 50 µs to 1 ms: no two runs have the same timing. */
const DELAYS = { latencyUs: 50, gigabytesPerSecond: 1, jitterUs: 1000 };

const model = (keyValueHeads: number) =>
  llama({ ...SIZES, keyValueHeads, ropeTheta: 100 }, SIZES.microBatch);

const SCHEDULES = ["1f1b", "message-driven", "chimera", "hanayo", "zb-v", "seq1f1b"] as const;

for (const device of ["native", "wasm"] as const) {
  Deno.test(`a Llama on ${device} has the bits of its serial run under ${SCHEDULES.join(", ")}, in 1 and 2 replicas`, async () => {
    const serialOf = once((_grouping: string, options: Partial<TrainOptions>) =>
      outcome(SIZES, { ...options, runtime: "serial" })
    );
    const cases = SCHEDULES.flatMap((schedule) =>
      [1, 2].map((replicas) => ({ schedule, replicas }))
    );
    await fewAtATime(cases, async ({ schedule: name, replicas }) => {
      const workers = replicas === 1 ? 4 : 2, { microBatches } = SIZES;
      const scheduleOptions = name === "seq1f1b" ? { slices: 2 } : {};
      const schedule = createSchedule(name, { ...scheduleOptions, workers, microBatches });
      const grouping = `${groupingOf(schedule, replicas)}${
        name === "seq1f1b" ? ", in slices" : ""
      }`;
      const options = {
        model: model(1),
        device,
        workers,
        replicas,
        schedule: name,
        scheduleOptions,
      };
      const { bits: serial } = await serialOf(grouping, options);
      const run = await outcome(SIZES, { ...options, runtime: "local", link: DELAYS });
      assert.deepEqual(run.bits, serial, `${name}, ${replicas} replicas`);
    });
  });
}

Deno.test("a Llama in slices of its sequences has the losses of the whole within 1e-6, dropout included", async () => {
  const options = { model: model(2), device: "native", runtime: "serial" } as const;
  const whole = await outcome(SIZES, { ...options, workers: 2, schedule: "1f1b" });
  const sliced = await outcome(SIZES, {
    ...options,
    workers: 2,
    schedule: "seq1f1b",
    scheduleOptions: { slices: 4 },
  });
  for (const [i, loss] of sliced.bits.losses.entries()) {
    assert.ok(Math.abs(loss / whole.bits.losses[i]! - 1) <= 1e-6, `step ${i + 1}: ${loss}`);
  }
});
