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

/** What a trace tells of an action beside its name and its times. */
export type About = Omit<TracedAction, "name" | "start" | "end" | "sent">;

/** What a worker does. */
export interface Activity {
  /**
   * Runs an action: says so, for the report should it fail, and traces it.
   *
   * @param about what a trace tells besides, asked for at its end.
   */
  run(name: string, action: () => void | Promise<void>, about?: () => About): Promise<void>;
  /** Now, when an input comes; undefined unless the run is traced. */
  arrival(): number | undefined;
  /** An output of the action under way is about to be sent. */
  sends(): void;
  /** What has run since it was asked last; nothing unless the run is traced. */
  takeTrace(): readonly TracedAction[];
}

/** Opens the activity of a worker. */
export function openActivity(
  ctx: Context<WorkerMessage>,
  { fault, worker, isTraced }: WorkerInit,
): Activity {
  const failWhenDue = openFault(fault, worker);
  const arrival = () => isTraced ? ctx.now() : undefined;
  let trace: TracedAction[] = [], sent: number | undefined;
  return {
    async run(name, action, about) {
      ctx.doing(name);
      sent = undefined;
      failWhenDue();
      const start = ctx.now();
      await ctx.busy(action);
      if (!isTraced) return;
      const times = { start, end: ctx.now(), ...sent !== undefined && { sent } };
      trace.push({ name, ...times, ...about?.() });
    },
    arrival,
    sends: () => void (sent = arrival()),
    takeTrace() {
      const taken = trace;
      trace = [];
      return taken;
    },
  };
}
