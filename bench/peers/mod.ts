/**
 * The same model in other libraries: jax-js, which trains in JavaScript, and PyTorch.
 *
 * @module
 */

import type { Row } from "../support/row.ts";
import { SMALL } from "../support/workload.ts";
import { raceJax } from "./race_jax.ts";
import { raceTorch } from "./race_torch.ts";

/** Micro-batches of a step, N. */
const MICRO_BATCHES = 8;

/** Measures each beside Troupe; where one cannot be had, a row says why. */
export async function peersBench(): Promise<Row[]> {
  const torch = await raceTorch({
    workload: SMALL,
    microBatches: MICRO_BATCHES,
    rounds: { rounds: 15 },
    contests: [
      { workers: 1, schedule: "1f1b", target: 1.22 },
      { workers: 2, schedule: "1f1b", target: 1.2 },
    ],
  }).catch((error: Error): Row[] => [{ name: "PyTorch", unit: "", note: error.message }]);
  return [...torch, ...await raceJax()];
}
