/** Placements that several schedules share: which worker holds which stage. */

import type { ScheduleOptions } from "./options.ts";
import type { Place } from "./rule.ts";

/**
 * One stage for each worker: stage s on worker s.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { linear } from "@troupe/troupe/schedules";
 *
 * strictEqual(linear({ workers: 4, microBatches: 8 }).workerOf(3, 0), 3);
 * ```
 */
export function linear({ workers }: ScheduleOptions): Place {
  return { stages: workers, workerOf: (stage) => stage };
}

/**
 * `chunks` stages for each worker, dealt out like cards: stage s on worker s mod P.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { looped } from "@troupe/troupe/schedules";
 *
 * strictEqual(looped({ workers: 4, microBatches: 8, chunks: 2 }).workerOf(5, 0), 1);
 * ```
 */
export function looped({ workers, chunks = 2 }: ScheduleOptions): Place {
  return { stages: workers * chunks, workerOf: (stage) => stage % workers };
}

/**
 * Waves: the stages run down the workers and up again, `waves` times, so that the turning points
 * need no message. One wave is the V of ZB-V and DualPipeV.
 *
 * @example
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { wave } from "@troupe/troupe/schedules";
 *
 * const { workerOf } = wave({ workers: 3, microBatches: 3 });
 * deepStrictEqual([0, 1, 2, 3, 4, 5].map((stage) => workerOf(stage, 0)), [0, 1, 2, 2, 1, 0]);
 * ```
 */
export function wave({ workers, waves = 1 }: ScheduleOptions): Place {
  return {
    stages: 2 * workers * waves,
    workerOf(stage) {
      const position = stage % workers;
      return Math.floor(stage / workers) % 2 === 0 ? position : workers - 1 - position;
    },
  };
}

/**
 * Chimera's 2f pipes (section 3.6): down pipe i starts at worker i·D/f, and up pipe i runs the
 * same workers backwards. Unit u holds the micro-batches uD … uD+D-1, the down pipes first; what
 * is left after the last whole unit is shared as evenly as possible, the first pipes first.
 *
 * @example
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { bidirectional } from "@troupe/troupe/schedules";
 *
 * const { workerOf } = bidirectional({ workers: 4, microBatches: 4 });
 * deepStrictEqual([0, 1, 2, 3].map((stage) => workerOf(stage, 1)), [3, 2, 1, 0]);
 * ```
 */
export function bidirectional(
  { workers: depth, microBatches, pipelines = 1 }: ScheduleOptions,
): Required<Pick<Place, "stages" | "workerOf" | "replicas" | "replicaOf">> {
  const replicas = 2 * pipelines;
  const spacing = depth / pipelines;
  return {
    stages: depth,
    replicas,
    workerOf(stage, replica) {
      return replica < pipelines
        ? (replica * spacing + stage) % depth
        : ((replica - pipelines) * spacing + depth - 1 - stage) % depth;
    },
    replicaOf(microBatch) {
      const start = microBatch - microBatch % depth;
      let rank = microBatch - start;
      const unit = Math.min(depth, microBatches - start);
      for (let replica = 0;; replica++) {
        rank -= evenShare(unit, replicas, replica);
        if (rank < 0) return replica;
      }
    },
  };
}

/**
 * The part of `total` things that one of `count` gets when they are shared as evenly as possible.
 *
 * @example
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { evenShare } from "@troupe/troupe/schedules";
 *
 * deepStrictEqual([0, 1, 2].map((index) => evenShare(7, 3, index)), [3, 2, 2]);
 * ```
 */
export function evenShare(total: number, count: number, index: number): number {
  return Math.floor(total / count) + (index < total % count ? 1 : 0);
}
