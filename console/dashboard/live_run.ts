/**
 * The view of a run under way, event by event.
 *
 * @module
 */

import type { Metrics } from "../../actors/run/metrics/metrics.ts";
import type { TrainEvent } from "../../actors/run/train_event.ts";
import { reasonOf } from "../run_files/write_run.ts";
import { endedStatus } from "./view/ended_status.ts";
import { eventView } from "./view/event_view.ts";
import type { RunView } from "./view/run_view.ts";
import { type TraceContext, traceView } from "./view/trace_view.ts";

/** Steps may be faster than anybody looks: traces are kept so far apart. */
const TRACE_EVERY_MS = 250;

/** Takes what a run tells into its view. */
export interface LiveRun {
  /** What was measured. */
  metrics(metrics: Metrics): void;
  /** What happened. */
  see(event: TrainEvent): void;
  /** It did not come to its end. */
  fail(error: unknown): void;
}

/** Opens one. */
export function openLiveRun(view: RunView, context: TraceContext): LiveRun {
  let takenAt = -Infinity, last: (() => void) | undefined;
  return {
    metrics: (metrics) => view.addMetrics(metrics),
    see(event) {
      switch (event.type) {
        case "plan":
          return view.stand({ status: "running" });
        case "step": {
          const { step, traces } = event;
          if (traces.length === 0) return;
          last = () => view.addTrace(step, () => traceView(step, traces, context));
          if (performance.now() - takenAt < TRACE_EVERY_MS) return;
          takenAt = performance.now();
          last();
          last = undefined;
          return;
        }
        case "failure":
          return view.addEvent(eventView(event));
        case "checkpoint":
          return view.addEvent(eventView({ ...event, time: Date.now() }, event.path));
        case "end":
          last?.();
          return view.stand(endedStatus(reasonOf(event)));
      }
    },
    fail(error) {
      last?.();
      const note = error instanceof Error ? error.message : String(error);
      view.stand({ status: "failed", note });
    },
  };
}
