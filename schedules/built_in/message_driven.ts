/** AxoNN's message-driven schedule: no order beforehand, a limit on what is in flight. */

import {
  type ClosedForm,
  defineSchedule,
  linear,
  perWorker,
  type ScheduleOptions,
  type UniformCosts,
} from "../define.ts";
import { messageDrivenPolicy } from "../policies.ts";

/**
 * No order is faster than 1F1B's (D-1)(tF + tB) of idle time, and no worker holds more than the
 * limit; both whatever the durations. The peaks are exact, [L, …, L, 1], for `fifo` while the last
 * forward of the first L reaches the last but one worker before the first backward does:
 * (L - 3)tF < tB.
 */
function messageDrivenForm(options: ScheduleOptions, costs: UniformCosts): ClosedForm {
  const { workers, order = "fifo" } = options, limit = limitOf(options);
  const { forward, backward } = costs;
  const isExact = order === "fifo" && (limit - 3) * forward < backward;
  const peakActivations = perWorker(workers, (s) => s === workers - 1 ? 1 : limit);
  return {
    idleAtLeast: (workers - 1) * (forward + backward),
    peakAtMost: limit,
    ...(isExact ? { peakActivations } : {}),
    weights: perWorker(workers, () => 1),
  };
}

/** Micro-batches in flight: each of them may be live on any worker. */
const limitOf = (
  { workers, microBatches, pipelineLimit = workers, activationLimit = Infinity }: ScheduleOptions,
): number => Math.min(pipelineLimit, microBatches, Math.floor(activationLimit));

/**
 * Message-driven scheduling (Singh and Bhatele 2022, "AxoNN: An asynchronous, message-driven parallel
 * framework for extreme-scale deep learning", section III-C, Algorithm 2): the supervisor injects the first
 * `pipelineLimit` micro-batches and one more for each that comes back; every worker handles
 * messages as they come.
 */
export const messageDriven = defineSchedule({
  name: "message-driven",
  reads: ["pipelineLimit", "order", "activationLimit"],
  summary: "AxoNN: workers take messages as they come, at most a limit in flight",
  closedForm: messageDrivenForm,
  place(options) {
    const { order = "fifo", activationLimit = 1 } = options;
    if (!(activationLimit >= 1)) {
      throw new RangeError(
        `Cannot make the schedule message-driven: activationLimit must be at least 1, ` +
          `received ${activationLimit}`,
      );
    }
    if (order === "fifo" || order === "backward-first") return linear(options);
    throw new RangeError(
      `Cannot make the schedule message-driven: order must be fifo or backward-first, ` +
        `received "${order}"`,
    );
  },
  injectionLimit: limitOf,
  // The last worker follows each forward with its backward. The first begins with as many forwards as
  // there may be in flight. Between them all of these may have passed before the first backward comes
  // back, or each may be back before the next one comes.
  peak(worker, options) {
    const most = worker === options.workers - 1 ? 1 : limitOf(options);
    return { least: worker === 0 ? most : 1, most };
  },
  policy(worker, options) {
    const { workers, microBatches, order = "fifo" } = options;
    const shared = { stages: workers, microBatches, limit: limitOf(options), order };
    return messageDrivenPolicy({ stage: worker, ...shared });
  },
});
