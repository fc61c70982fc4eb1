/**
 * What a worker does, one action after the other: for reports, traces and the faults that it is
 * asked to suffer.
 *
 * @module
 */

import type { WorkerMessage } from "../protocol.ts";
import type { TracedAction } from "../step.ts";
import type { Context } from "../../runtime/mod.ts";
import { openFault } from "./faults.ts";
import type { WorkerInit } from "./worker_init.ts";

/** What a worker does. */
export interface Activity {
  /** Runs an action: says so, for the report should it fail, and traces it. */
  run(name: string, action: () => void | Promise<void>): Promise<void>;
  /** What has run since it was asked last; nothing unless the run is traced. */
  takeTrace(): readonly TracedAction[];
}

/** Opens the activity of a worker. */
export function openActivity(
  ctx: Context<WorkerMessage>,
  { fault, worker, isTraced }: WorkerInit,
): Activity {
  const failWhenDue = openFault(fault, worker);
  let trace: TracedAction[] = [];
  return {
    async run(name, action) {
      ctx.doing(name);
      failWhenDue();
      const start = ctx.now();
      await ctx.busy(action);
      if (isTraced) trace.push({ name, start, end: ctx.now() });
    },
    takeTrace() {
      const taken = trace;
      trace = [];
      return taken;
    },
  };
}
