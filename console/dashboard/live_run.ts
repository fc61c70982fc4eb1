/**
 * The view of a run under way, event by event.
 *
 * @module
 */

import type { Metrics } from "../../actors/run/metrics/metrics.ts";
import type { TrainEvent } from "../../actors/run/train_event.ts";
import type { RunView } from "./run_view.ts";
import { type TraceContext, traceView } from "./trace_view.ts";

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
        case "failure": {
          const { step, time, actor, reason } = event;
          const worker = Number(/\d+/.exec(actor)?.[0] ?? NaN);
          const which = Number.isNaN(worker) ? {} : { worker };
          return view.addEvent({ kind: "failure", step, time, text: reason, ...which });
        }
        case "checkpoint": {
          const { step, path: text } = event;
          return view.addEvent({ kind: "checkpoint", step, time: Date.now(), text });
        }
        case "end":
          last?.();
          return view.stand({ status: event.isInterrupted ? "interrupted" : "finished" });
      }
    },
    fail(error) {
      last?.();
      const note = error instanceof Error ? error.message : String(error);
      view.stand({ status: "failed", note });
    },
  };
}
