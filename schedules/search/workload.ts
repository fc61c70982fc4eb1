/** The workload: what a schedule does, without its order. */

import type { SkipEdge } from "../edges/skip_edge.ts";
import type { Costs } from "../execution/costs.ts";
import { type StageTimes, stageTimes } from "../execution/stage_times.ts";
import type { Schedule } from "../schedule.ts";
import { hostTable } from "../stages.ts";

/** What is to be scheduled. */
export interface Workload {
  /** The number of workers. */
  readonly workers: number;
  /** The number of stages of one copy of the model. */
  readonly stages: number;
  /** The micro-batches of the step. */
  readonly microBatches: number;
  /** The worker of each stage of each replica, at index `replica * stages + stage`. */
  readonly hosts: Int32Array;
  /** For each micro-batch, the replica that computes it. */
  readonly replicaOf: readonly number[];
  /** The skip edges; none unless given. */
  readonly edges?: readonly SkipEdge[] | undefined;
  /** What the stages cost. */
  readonly times: StageTimes;
}

/** What a schedule does, without its order. */
export function workloadOf(schedule: Schedule, costs: Costs = {}): Workload {
  const { workers, stages, microBatches, replicaOf, edges } = schedule;
  const times = stageTimes(schedule, costs);
  return { workers, stages, microBatches, replicaOf, hosts: hostTable(schedule), edges, times };
}
