/** AxoNN's message-driven schedule: no fixed order, and a limit of micro-batches in flight. */

import { defineSchedule, formOf, linear, type ScheduleOptions } from "../define.ts";
import { messageDrivenPolicy } from "../policies.ts";

/** Micro-batches in flight; each of them may be live on any worker. */
const limitOf = (
  { workers, microBatches, pipelineLimit = workers, activationLimit = Infinity }: ScheduleOptions,
): number => Math.min(pipelineLimit, microBatches, Math.floor(activationLimit));

/**
 * Message-driven scheduling (Singh and Bhatele 2022, "AxoNN: An asynchronous, message-driven parallel
 * framework for extreme-scale deep learning", section III-C, Algorithm 2): the supervisor injects the
 * first `pipelineLimit` micro-batches and one more for each that comes back; every worker handles
 * messages in the order of their arrival.
 */
export const messageDriven = defineSchedule({
  name: "message-driven",
  reads: ["pipelineLimit", "order", "activationLimit"],
  summary: "AxoNN: workers take messages as they come, at most a limit in flight",
  // For any durations, no order has less idle time than 1F1B, (D-1)(tF + tB), and no worker holds
  // more than the limit. The peaks are exact, [L, ..., L, 1], for `fifo` if the last of the first L
  // forwards reaches the last worker but one before the first backward does: (L - 3)tF < tB.
  closedForm(options, { forward, backward }) {
    const { workers, order = "fifo" } = options, limit = limitOf(options);
    const isExact = order === "fifo" && (limit - 3) * forward < backward;
    return formOf(workers, {
      idleAtLeast: (workers - 1) * (forward + backward),
      peakAtMost: limit,
      ...isExact && { peak: (s: number) => s === workers - 1 ? 1 : limit },
    });
  },
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
  // The last worker follows each forward with its backward. The first worker starts with a forward of
  // every micro-batch that may be in flight. On the workers between them, all of these may pass
  // before the first backward comes back, or each may be back before the next one comes.
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
