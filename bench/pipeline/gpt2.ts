/**
 * GPT-2 small on two workers, with the schedule that is the fastest here, beside PyTorch with two
 * threads.
 *
 * @module
 */

import { raceTorch } from "../peers/race_torch.ts";
import { openBenchEngine } from "../support/engine.ts";
import type { Row } from "../support/row.ts";
import { interleave, type Round } from "../support/timing.ts";
import { GPT2_SMALL } from "../support/workload.ts";
import { measureLimits } from "./balance.ts";
import { fastestSchedule } from "./fastest_schedule.ts";
import { limitRows } from "./limit_rows.ts";

/** Micro-batches of a step, N. */
const MICRO_BATCHES = 8;
const WORKERS = 2;

/** Steps of each schedule that is tried, after one that does not count. */
const TRIED_STEPS = 2;

/** A step takes seconds. */
const ROUNDS = { rounds: 4, warmup: 1 } as const;

const run = { device: "native", microBatches: MICRO_BATCHES, workload: GPT2_SMALL } as const;

/** One worker, two that are independent, and two that share the model. */
async function timeLimits(schedule: string): Promise<Round<"one" | "two" | "twins">[]> {
  await using one = await openBenchEngine({ ...run, workers: 1 });
  await using twin = await openBenchEngine({ ...run, workers: 1 });
  await using two = await openBenchEngine({ ...run, workers: WORKERS, schedule });
  return await interleave({
    one: async () => void await one.step(),
    two: async () => void await two.step(),
    twins: async () => void await Promise.all([one.step(), twin.step()]),
  }, { rounds: 2, warmup: 1, isAlone: false });
}

/** Measures GPT-2 small, in some minutes and 15 GB. */
export async function gpt2Bench(): Promise<Row[]> {
  const { schedule, rows } = await fastestSchedule({ ...run, workers: WORKERS }, TRIED_STEPS);
  const rates = await raceTorch({
    workload: GPT2_SMALL,
    microBatches: MICRO_BATCHES,
    rounds: ROUNDS,
    contests: [{ workers: WORKERS, schedule, target: 1.2 }],
  }).catch((error: Error): Row[] => [{ name: "PyTorch", unit: "", note: error.message }]);
  const limits = await measureLimits({ ...run, schedule, workers: WORKERS, rounds: 3 });
  const rounds = await timeLimits(schedule);
  return [
    ...rows,
    ...rates,
    ...limitRows(rounds.map(({ ms }) => ms), limits, WORKERS),
  ];
}
