/**
 * The runs by which predictions are checked: schedules, workers, sizes of a micro-batch,
 * recomputation and uneven stages.
 *
 * @module
 */

import type { TrainOptions } from "../../run/options/train_options.ts";

/** A run whose step is predicted and measured. */
export interface Configuration {
  /** Samples of a micro-batch, B. */
  readonly microBatch: number;
  /** What `train` is asked to do beside the model. */
  readonly options:
    & Required<Pick<TrainOptions, "schedule" | "workers">>
    & Pick<
      TrainOptions,
      "scheduleOptions" | "replicas" | "recomputeInterval" | "recompute" | "layout" | "sync"
    >;
}

/** Micro-batches of a step. */
export const MICRO_BATCHES = 8;

const run = (
  schedule: string,
  workers: number,
  microBatch: number,
  more: Omit<Configuration["options"], "schedule" | "workers"> = {},
): Configuration => ({ microBatch, options: { schedule, workers, ...more } });

const ON_TWO: readonly Configuration[] = [
  run("1f1b", 1, 4),
  run("1f1b", 2, 4),
  run("gpipe", 2, 4),
  run("zb-h1", 2, 4),
  run("interleaved", 2, 4),
  run("1f1b", 2, 2),
  run("gpipe", 2, 2, { recomputeInterval: 1 }),
  run("chimera", 2, 2),
  run("message-driven", 2, 2, { scheduleOptions: { pipelineLimit: 3 } }),
  run("hanayo", 2, 2),
  run("1f1b", 2, 4, { layout: "E,3|1,H" }),
  run("gpipe", 2, 4, { layout: "E,1|3,H" }),
  run("zb-v", 2, 4, { recomputeInterval: 2 }),
  run("1f1b", 1, 4, { replicas: 2 }),
];

const ON_FOUR: readonly Configuration[] = [
  run("1f1b", 4, 4),
  run("gpipe", 4, 2, { recomputeInterval: 1 }),
  run("chimera", 4, 4),
  run("message-driven", 4, 2),
  run("zb-h1", 4, 2),
  run("1f1b", 4, 4, { layout: "E,2|1|1|H" }),
  run("interleaved", 4, 4),
  run("1f1b", 2, 2, { replicas: 2 }),
];

/** The runs for a machine with so many cores: never more workers than cores. */
export const configurationsFor = (cores: number): readonly Configuration[] =>
  (cores < 4 ? ON_TWO : [...ON_TWO, ...ON_FOUR]).filter(({ options }) =>
    workersOf(options) <= cores
  );

/** Workers of all replicas. */
export const workersOf = ({ workers, replicas = 1 }: Configuration["options"]): number =>
  workers * replicas;

/** A configuration in words: `1f1b D=2 B=4 layout E,3|1,H`. */
export function nameOf({ microBatch, options }: Configuration): string {
  const { schedule, workers, replicas, recomputeInterval, recompute, layout } = options;
  const { pipelineLimit } = options.scheduleOptions ?? {};
  return [
    `${schedule} D=${workers} B=${microBatch}`,
    ...replicas === undefined ? [] : [`W=${replicas}`],
    ...pipelineLimit === undefined ? [] : [`limit ${pipelineLimit}`],
    ...recompute === undefined ? [] : [`recompute ${recompute}`],
    ...recomputeInterval === undefined ? [] : [`recompute-interval ${recomputeInterval}`],
    ...layout === undefined ? [] : [`layout ${layout}`],
  ].join(" ");
}
