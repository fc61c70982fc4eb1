/** Small trainings of a job, and their bits elsewhere. */

import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import type { TrainOptions } from "../../../../actors/mod.ts";
import { once, type Outcome, outcome, type Sizes } from "../../runs.ts";
import { type JobOutput, type Part, rowsOf } from "./launchers.ts";

const CLI = fileURLToPath(new URL("../../../../cli.ts", import.meta.url));

const ENTRY = fileURLToPath(new URL("./runs_entry.ts", import.meta.url));

/** A training. */
export interface TrainRun {
  readonly schedule: string;
  readonly workers: number;
  readonly replicas: number;
}

/** The model and the data of the runs of one job. */
export const SIZES: Sizes = {
  ...{ layers: 4, hidden: 16, heads: 2, seq: 8, vocab: 64 },
  ...{ microBatch: 2, microBatches: 4, steps: 3 },
};

/** Trainings of four workers in all. */
export const RUNS: readonly TrainRun[] = [
  { schedule: "message-driven", workers: 4, replicas: 1 },
  { schedule: "1f1b", workers: 4, replicas: 1 },
  { schedule: "chimera", workers: 2, replicas: 2 },
  { schedule: "zb-v", workers: 2, replicas: 2 },
  { schedule: "pipedream-2bw", workers: 4, replicas: 1 },
];

/** What Deno is told to train so by the command. */
export const trainArgs = ({ schedule, workers, replicas }: TrainRun): string[] => [
  ...["run", "-A", "--no-check", CLI, "train", "--json", "--schedule", schedule],
  ...["--workers", `${workers}`, "--replicas", `${replicas}`],
  ..."--layers 4 --hidden 16 --heads 2 --seq 8 --steps 3".split(" "),
];

/** A job that trains one run after the other. */
export const jobOf = (ranks: number, runs: readonly Partial<TrainOptions>[]): Part => [
  ...[ranks, "run", "-A", "--no-check", ENTRY] as const,
  JSON.stringify(runs),
];

/** The bits of each run of such a job. */
export const bitsOfJob = (output: JobOutput) => rowsOf(output) as unknown as Outcome["bits"][];

/** The bits of a run elsewhere; made once. */
const bitsBy = once(async (_: string, options: Partial<TrainOptions>) =>
  (await outcome(SIZES, options)).bits
);

/** The bits of a run on Deno workers, or in one isolate. */
export const bitsOn = (runtime: "workers" | "local", options: Partial<TrainOptions>) =>
  bitsBy(runtime + JSON.stringify(options), { ...options, runtime });

/** Makes sure that a job has the bits of Deno workers. */
export async function assertBitsOfWorkers(output: JobOutput): Promise<void> {
  const bits = bitsOfJob(output);
  for (const [i, run] of RUNS.entries()) {
    assert.deepEqual(bits[i], await bitsOn("workers", { ...run }), run.schedule);
  }
}
