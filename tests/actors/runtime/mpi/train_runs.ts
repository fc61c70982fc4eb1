/** Small trainings of a job of four ranks, and their bits on Deno workers. */

import { fileURLToPath } from "node:url";
import { bitsOf, runCommand } from "./launchers.ts";

const CLI = fileURLToPath(new URL("../../../../cli.ts", import.meta.url));

/** A training. */
export interface TrainRun {
  readonly schedule: string;
  readonly workers: number;
  readonly replicas: number;
}

/** Trainings of four workers in all. */
export const RUNS: readonly TrainRun[] = [
  { schedule: "message-driven", workers: 4, replicas: 1 },
  { schedule: "1f1b", workers: 4, replicas: 1 },
  { schedule: "chimera", workers: 2, replicas: 2 },
  { schedule: "zb-v", workers: 2, replicas: 2 },
  { schedule: "pipedream-2bw", workers: 4, replicas: 1 },
];

/** What Deno is told to train so. */
export const trainArgs = ({ schedule, workers, replicas }: TrainRun): string[] => [
  ...["run", "-A", "--no-check", CLI, "train", "--json", "--schedule", schedule],
  ...["--workers", `${workers}`, "--replicas", `${replicas}`],
  ..."--layers 4 --hidden 16 --heads 2 --seq 8 --steps 3".split(" "),
];

const known = new Map<TrainRun, Promise<readonly unknown[]>>();

/** The bits of a training on Deno workers; made once. */
export function bitsOnWorkers(run: TrainRun): Promise<readonly unknown[]> {
  const bits = known.get(run) ?? runCommand([Deno.execPath(), ...trainArgs(run)]).then(bitsOf);
  known.set(run, bits);
  return bits;
}
