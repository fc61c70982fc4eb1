/** AxoNN's message-driven schedule: no order beforehand, a limit on what is in flight. */

import { type ClosedForm, perWorker, type UniformCosts } from "../definition/closed_form.ts";
import { defineSchedule } from "../definition/define_schedule.ts";
import type { ScheduleOptions } from "../definition/options.ts";
import { linear } from "../definition/placements.ts";
import { messageDrivenPolicy } from "../policies/message_driven_policy.ts";

/**
 * No order is faster than 1F1B's (D-1)(tF + tB) of idle time, and no worker holds more than the
 * limit; both whatever the durations. The peaks are exact, [L, …, L, 1], for `fifo` while the last
 * forward of the first L reaches the last but one worker before the first backward does:
 * (L - 3)tF < tB.
 */
export function messageDrivenForm(options: ScheduleOptions, costs: UniformCosts): ClosedForm {
  const { workers, microBatches, pipelineLimit = workers, order = "fifo" } = options;
  const { forward, backward } = costs;
  const limit = Math.min(pipelineLimit, microBatches);
  const isExact = order === "fifo" && (limit - 3) * forward < backward;
  const peakActivations = perWorker(workers, (s) => s === workers - 1 ? 1 : limit);
  return {
    idleAtLeast: (workers - 1) * (forward + backward),
    peakAtMost: limit,
    ...(isExact ? { peakActivations } : {}),
    weights: perWorker(workers, () => 1),
  };
}

/**
 * Message-driven scheduling (Singh and Bhatele 2022, "AxoNN: An asynchronous, message-driven parallel
 * framework for extreme-scale deep learning", section III-C, Algorithm 2): the supervisor injects the first
 * `pipelineLimit` micro-batches and one more for each that comes back; every worker handles
 * messages as they come.
 */
export const messageDriven = defineSchedule({
  name: "message-driven",
  reads: ["pipelineLimit", "order"],
  summary: "AxoNN: workers take messages as they come, at most a limit in flight",
  closedForm: messageDrivenForm,
  place(options) {
    const { order = "fifo" } = options;
    if (order === "fifo" || order === "backward-first") return linear(options);
    throw new RangeError(
      `Cannot make the schedule message-driven: order must be fifo or backward-first, ` +
        `received "${order}"`,
    );
  },
  injectionLimit: ({ workers, microBatches, pipelineLimit }) =>
    Math.min(pipelineLimit ?? workers, microBatches),
  policy(worker, { workers, microBatches, pipelineLimit = workers, order = "fifo" }) {
    const shared = { stages: workers, microBatches, limit: pipelineLimit, order };
    return messageDrivenPolicy({ stage: worker, ...shared });
  },
});
