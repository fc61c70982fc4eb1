/**
 * Hosted copies: the logical copies of a run on workers other than the initial ones.
 *
 * [Note: sums belong to copies] A gradient is the sum of a logical copy over its micro-batches, in
 * ascending order, and of all copies in copy order. Neither names a worker. So if a worker is lost,
 * the copies move to pipelines of another depth, in which each worker holds the same stage of several
 * copies, as Chimera's workers do, and the run keeps every bit.
 *
 * @module
 */

import { type ListedSchedule, withOrders } from "./schedule.ts";
import { oneFOneBOrder } from "./built_in/one_f_one_b.ts";
import { listPolicies } from "./policies.ts";

/** Pipelines that host the logical copies of a run. */
export interface HostLayout {
  /** Data-parallel pipelines, P. */
  readonly pipelines: number;
  /** Workers of each, one stage on each, E. */
  readonly depth: number;
}

/** The run whose copies are hosted, and the workers that remain. */
interface HostNeeds {
  /** Data-parallel replicas of the run, W. */
  readonly replicas: number;
  /** Micro-batches of each replica in a step, N. */
  readonly microBatches: number;
  /** Layers of the model: the most stages that it can be cut into. */
  readonly layers: number;
  /** Workers that remain. */
  readonly workers: number;
}

/** Returns the time of a step, in that of a forward and a backward of the whole model. */
const hostedTime = (
  { replicas, microBatches }: HostNeeds,
  { pipelines, depth }: HostLayout,
): number => (replicas * microBatches / pipelines + depth - 1) / depth;

/**
 * Returns the fastest layout: P divides the replicas, P·E is at most the number of workers, and
 * (W·N/P + E − 1)/E is least. Of equal ones, the fewest pipelines, which share the most memory.
 *
 * @example Three of four workers remain
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 *
 * const run = { replicas: 2, microBatches: 8, layers: 12 };
 * deepStrictEqual(chooseLayout({ ...run, workers: 3 }), { pipelines: 1, depth: 3 });
 * ```
 */
export function chooseLayout(needs: HostNeeds): HostLayout {
  const { replicas, layers, workers } = needs;
  const layouts = Array.from({ length: Math.min(replicas, workers) }, (_, i) => i + 1)
    .filter((pipelines) => replicas % pipelines === 0)
    .map((pipelines) => ({ pipelines, depth: Math.min(layers, Math.floor(workers / pipelines)) }));
  return layouts.reduce((best, one) =>
    hostedTime(needs, one) < hostedTime(needs, best) ? one : best
  );
}

/**
 * Makes the schedule of one pipeline that hosts some replicas: 1F1B over all their micro-batches.
 *
 * @param shares For each replica, the pipeline of each of its micro-batches.
 * @param pipes Pipelines within a replica.
 * @param depth Workers, one stage on each.
 *
 * @example Two replicas of two micro-batches
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 *
 * const { pipelineOf, placement, lists } = hostedSchedule([[0, 0], [0, 0]], 1, 2);
 * deepStrictEqual(pipelineOf, [0, 0, 1, 1]);
 * deepStrictEqual(placement[1], [{ stage: 1, pipeline: 0 }, { stage: 1, pipeline: 1 }]);
 * deepStrictEqual(String(lists[1]), "1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3");
 * ```
 */
export function hostedSchedule(
  shares: readonly (readonly number[])[],
  pipes: number,
  depth: number,
): ListedSchedule {
  const pipelineOf = shares.flatMap((of, r) => of.map((pipe) => r * pipes + pipe));
  const microBatches = pipelineOf.length, workers = Array.from({ length: depth }, (_, w) => w);
  const copies = Array.from({ length: shares.length * pipes }, (_, pipeline) => pipeline);
  const base = {
    name: "hosted",
    ...{ workers: depth, stages: depth, microBatches, pipelineOf },
    placement: workers.map((stage) => copies.map((pipeline) => ({ stage, pipeline }))),
    injectionLimit: Math.max(1, microBatches),
    updates: "flush" as const,
    weightVersions: workers.map(() => 1),
    policy: listPolicies([]),
  };
  const orders = workers.map((worker) => oneFOneBOrder(worker, { workers: depth, microBatches }));
  return withOrders(base, base.name, orders);
}
