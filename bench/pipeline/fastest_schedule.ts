/**
 * Which schedule is the fastest here: some are tried.
 *
 * @module
 */

import { type BenchRun, openBenchEngine } from "../support/engine.ts";
import type { Row } from "../support/row.ts";
import { interleave, spread } from "../support/timing.ts";

/** Synchronous schedules that have each weight once. */
const SCHEDULES = ["1f1b", "interleaved", "zb-h1", "zb-v"] as const;

/** Milliseconds of the fastest of some steps, after one that does not count. */
async function fastestStep(run: BenchRun, steps: number): Promise<number> {
  await using engine = await openBenchEngine(run);
  const rounds = await interleave({ step: async () => void await engine.step() }, {
    rounds: steps,
    warmup: 1,
    isAlone: false,
  });
  return Math.min(...rounds.map(({ ms }) => ms.step));
}

/** Tries the schedules one after the other, so that one model is held at a time. */
export async function fastestSchedule(
  run: Omit<BenchRun, "schedule">,
  steps: number,
): Promise<{ schedule: string; rows: Row[] }> {
  const tried: { schedule: string; ms: number }[] = [];
  for (const schedule of SCHEDULES) {
    tried.push({ schedule, ms: await fastestStep({ ...run, schedule }, steps) });
  }
  const { schedule } = tried.reduce((best, one) => one.ms < best.ms ? one : best);
  const rows = tried.map((one): Row => ({
    name: `${run.device}, ${run.workers} workers, ${one.schedule}: fastest step of ${steps}`,
    unit: "ms",
    measured: spread([one.ms]),
    ...one.schedule === schedule && { note: "taken" },
  }));
  return { schedule, rows };
}
