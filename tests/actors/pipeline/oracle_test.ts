/**
 * The oracle: whatever the schedule, the number of workers and the runtime, losses and weights have
 * the same bits as those of the serial loop on the same device.
 */

import assert from "node:assert/strict";
import { type TrainOptions } from "../../../actors/mod.ts";
import { type DeviceName } from "../../../kernels/mod.ts";
import { fewAtATime, LARGE, once, outcome, SMALL } from "../runs.ts";

/** Every policy with every limit and order, for D workers. */
function policies(workers: number): Pick<TrainOptions, "schedule" | "scheduleOptions">[] {
  const limits = [...new Set([1, workers, 2 * workers])];
  return [
    { schedule: "gpipe" },
    { schedule: "1f1b" },
    ...limits.flatMap((pipelineLimit) =>
      (["fifo", "backward-first"] as const).map((order) => ({
        schedule: "message-driven",
        scheduleOptions: { pipelineLimit, order },
      }))
    ),
  ];
}

/** What reference/schedules.md says of the live activations of each worker. */
function assertPeaks(
  { schedule, scheduleOptions }: Pick<TrainOptions, "schedule" | "scheduleOptions">,
  workers: number,
  microBatches: number,
  peaks: readonly number[],
): void {
  const expected = peaks.map((_, s) => {
    if (schedule === "gpipe") return microBatches;
    if (schedule === "1f1b") return Math.min(microBatches, workers - s);
    return Math.min(scheduleOptions!.pipelineLimit!, microBatches);
  });
  if (schedule !== "message-driven") return assert.deepEqual(peaks, expected);
  assert.ok(peaks.every((peak, s) => peak <= expected[s]!), `${peaks} must be within ${expected}`);
  assert.equal(peaks[0], workers === 1 ? 1 : expected[0]);
  assert.equal(peaks.at(-1), 1);
}

const serialOf = once((device) =>
  outcome(SMALL, { device: device as DeviceName, runtime: "serial" })
);

for (const device of ["native", "wasm"] satisfies DeviceName[]) {
  for (const runtime of ["local", "workers"] as const) {
    Deno.test(`every policy with 1 to 4 workers (${runtime}) has the serial bits and the peaks of its schedule on ${device}`, async () => {
      const serial = await serialOf(device);
      const cases = [1, 2, 3, 4].flatMap((workers) =>
        policies(workers).map((policy) => ({ workers, policy }))
      );
      await fewAtATime(cases, async ({ workers, policy }) => {
        const run = await outcome(SMALL, { device, runtime, workers, ...policy });
        const what = `${workers} workers, ${JSON.stringify(policy)}`;
        assert.deepEqual(run.bits, serial.bits, what);
        assertPeaks(policy, workers, SMALL.microBatches, run.peakActivations);
      });
    });
  }

  Deno.test(`512 rows a micro-batch in workers have the serial bits on ${device}`, async () => {
    const serial = await outcome(LARGE, { device, runtime: "serial" });
    for (const policy of [{ schedule: "1f1b" }, { schedule: "message-driven" }]) {
      const run = await outcome(LARGE, { device, runtime: "workers", workers: 2, ...policy });
      assert.deepEqual(run.bits, serial.bits, policy.schedule);
    }
  });
}
