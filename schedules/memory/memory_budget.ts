/** A limit in bytes: which schedules keep it, and how many activations it leaves room for. */

import type { ListedSchedule } from "../schedule.ts";
import { fullestWorker, scheduleMemory, type WorkerBytes } from "./schedule_memory.ts";
import { type MemoryCosts, stageMemories } from "./stage_memory.ts";

/** What a model holds, and what a worker may. */
export interface MemoryBudget {
  /** Bytes of the model, as stages share them. */
  readonly bytes: MemoryCosts;
  /** The most that a worker may hold at a time; any number unless given. */
  readonly limitBytes?: number | undefined;
}

/** Bytes as people read them. */
export const inMiB = (bytes: number): string => `${(bytes / 2 ** 20).toFixed(1)} MiB`;

/**
 * What each worker of a schedule holds, if none holds more than it may.
 *
 * @throws {RangeError} if a number is not usable, or a worker needs more than the limit; it says
 * which, how much, and what of it no order of actions would save.
 *
 * @example
 * ```ts
 * import { throws } from "node:assert/strict";
 * import { createSchedule, memoryWithin, withLists } from "@troupe/troupe/schedules";
 *
 * const bytes = { weights: 2 ** 20, activations: 2 ** 20 };
 * const gpipe = withLists(createSchedule("gpipe", { workers: 2, microBatches: 8 }));
 * throws(() => memoryWithin(gpipe, { bytes, limitBytes: 10 * 2 ** 20 }), {
 *   message: "Cannot make the schedule gpipe: each worker must need at most 10.0 MiB, received " +
 *     "12.0 MiB on worker 0, 4.0 MiB of it for weights, gradients and optimizer",
 * });
 * ```
 */
export function memoryWithin(
  schedule: ListedSchedule,
  { bytes, limitBytes = Infinity }: MemoryBudget,
): WorkerBytes[] {
  const workers = scheduleMemory(schedule, stageMemories(schedule, bytes));
  const { worker, bytes: most } = fullestWorker(workers.map(({ peak }) => peak));
  if (most <= limitBytes) return workers;
  const { peak, activations } = workers[worker]!;
  throw new RangeError(
    `Cannot make the schedule ${schedule.name}: each worker must need at most ` +
      `${inMiB(limitBytes)}, received ${inMiB(most)} on worker ${worker}, ` +
      `${inMiB(peak - activations)} of it for weights, gradients and optimizer`,
  );
}

/**
 * The activations, in micro-batches of 1/P of the model, for which a limit leaves room beside 1/P of
 * the weights: what a schedule may be made for that reads an `activationLimit`. Undefined without a
 * limit, and where the model is given in slices, as stages then differ.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { activationLimitOf } from "@troupe/troupe/schedules";
 *
 * const bytes = { weights: 10, optimizer: 0, activations: 8 };
 * strictEqual(activationLimitOf({ bytes, limitBytes: 60 }), 5);
 * ```
 */
export function activationLimitOf({ bytes, limitBytes }: MemoryBudget): number | undefined {
  const { weights = 0, gradients = weights, activations = 0 } = bytes;
  const optimizer = bytes.optimizer ?? (typeof weights === "number" ? 2 * weights : weights);
  if (limitBytes === undefined) return undefined;
  if (typeof weights !== "number" || typeof gradients !== "number") return undefined;
  if (typeof optimizer !== "number" || typeof activations !== "number") return undefined;
  const room = limitBytes - weights - gradients - optimizer;
  return activations > 0 && room > 0 ? room / activations : undefined;
}
