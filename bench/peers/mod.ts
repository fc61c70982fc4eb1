/**
 * The same model in other libraries: jax-js, which trains in JavaScript, and PyTorch.
 *
 * @module
 */

import type { Row } from "../support/row.ts";
import { SMALL } from "../support/workload.ts";
import { fastestSchedule } from "../pipeline/fastest_schedule.ts";
import { raceJax } from "./race_jax.ts";
import { raceTorch } from "./race_torch.ts";
import { findTorch } from "./torch.ts";

/** Micro-batches of a step, N. */
const MICRO_BATCHES = 8;

/** Steps of each schedule that is tried. */
const TRIED_STEPS = 8;

/** Whole steps beside PyTorch: one worker, and two with the schedule that is the fastest here. */
async function torchRows(): Promise<Row[]> {
  try {
    await findTorch();
  } catch (error) {
    return [{ name: "PyTorch", unit: "", note: (error as Error).message }];
  }
  const run = { device: "native", microBatches: MICRO_BATCHES } as const;
  const { schedule, rows } = await fastestSchedule({ ...run, workers: 2 }, TRIED_STEPS);
  const race = await raceTorch({
    workload: SMALL,
    microBatches: MICRO_BATCHES,
    rounds: { rounds: 15 },
    contests: [
      { workers: 1, schedule: "1f1b", target: 1.22 },
      { workers: 2, schedule, target: 1.2 },
    ],
  });
  return [...rows, ...race];
}

/** Measures each beside Troupe; where one cannot be had, a row says why. */
export async function peersBench(): Promise<Row[]> {
  return [...await torchRows(), ...await raceJax()];
}
