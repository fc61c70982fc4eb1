/**
 * One traced step as the page draws it: what each worker did when, when it did nothing and why.
 *
 * @module
 */

import type { TracedAction } from "../../../actors/pipeline/step.ts";
import { readStep, type WorkerTimeline } from "../../../actors/run/timeline/mod.ts";
import type { Schedule } from "../../../schedules/mod.ts";
import { plannedSpans } from "./planned.ts";
import type { TraceView, WorkerStep } from "./view.ts";

/** A step with more than this is not drawn: it would take longer than until the next one. */
export const ACTIONS_MAX = 20_000;

/** What a traced step is looked at with. */
export interface TraceContext {
  /** What the workers of one data-parallel replica were to do; undefined where unknown. */
  readonly schedule: Schedule | undefined;
  /** Data-parallel replicas. */
  readonly replicas: number;
}

/** Makes the view of a traced step. */
export function traceView(
  step: number,
  traces: readonly (readonly TracedAction[])[],
  { schedule, replicas }: TraceContext,
): TraceView {
  if (traces.flat().length > ACTIONS_MAX) return { step, length: 0, workers: [], planned: [] };
  const { start, end, workers } = readStep(traces, replicas);
  const planned = schedule ? plannedSpans(schedule, traces) : [];
  return {
    step,
    length: microseconds(end - start),
    workers: workers.map((worker) => workerStep(worker, start)),
    planned: planned.map((spans) =>
      spans.map(([name, from, to]) => [name, microseconds(from), microseconds(to)])
    ),
  };
}

function workerStep(worker: WorkerTimeline, began: number): WorkerStep {
  const { spans, gaps, busyMs, reduceMs, optimizerMs } = worker;
  const sinceBegin = (time: number) => microseconds(time - began);
  const waiting = spans.flatMap(({ waiting }) => waiting ?? []);
  return {
    spans: spans.map((span) => [nameOf(span), sinceBegin(span.start), sinceBegin(span.end)]),
    gaps: gaps.map(({ start, end, cause }) => [sinceBegin(start), sinceBegin(end), cause]),
    busy: microseconds(busyMs),
    update: microseconds(reduceMs + optimizerMs),
    forwards: spans.flatMap(({ actions }) => actions).filter(({ kind }) => kind === "F").length,
    ...waiting.length > 0 && { mailbox: waiting.reduce((most, one) => Math.max(most, one)) },
  };
}

/** With the chunk of an all-reduce, and the bucket of the optimizer. */
function nameOf({ name, chunk, bucket }: TracedAction): string {
  if (chunk !== undefined) return `${name}, chunk ${chunk}`;
  return bucket === undefined ? name : `${name}, bucket ${bucket}`;
}

/** Milliseconds to a thousandth: no more is true, and more would be longer to send. */
const microseconds = (ms: number) => Math.round(ms * 1000) / 1000;
