/**
 * A traced run as events of Chrome's trace format.
 *
 * @module
 */

import type { Gap, Span, StepTimeline } from "../../actors/run/timeline/mod.ts";
import {
  type Args,
  type ChromeEvent,
  SUPERVISOR,
  TRACE_VERSION,
  type TraceFacts,
  TROUPE_EVENT,
} from "./chrome_event.ts";

/** Milliseconds as microseconds to a thousandth: no clock is finer. */
const micro = (ms: number) => Math.round(ms * 1e6) / 1e3;

/** A moment of the run, in microseconds since its trace began. */
export const momentOf = ({ began }: TraceFacts, time: number): number => micro(time - began);

const pidOf = ({ stagesOf }: TraceFacts, worker: number) =>
  1 + Math.floor(worker / stagesOf.length);

/** What comes first: what the trace is of, and the names of its processes and tracks. */
export function headEvents(facts: TraceFacts): ChromeEvent[] {
  const { model, schedule, runtime, replicas, stagesOf, began } = facts;
  const workers = stagesOf.length * replicas, run = { model, schedule, runtime, workers, replicas };
  const about = { version: TRACE_VERSION, ...run, began, ...facts.about };
  const named = (name: string, pid: number, tid: number, args: Args): ChromeEvent => ({
    ...{ ph: "M", name, pid, tid, args },
  });
  const { pid, tid } = SUPERVISOR;
  return [
    named(TROUPE_EVENT, pid, tid, about),
    named("process_name", pid, tid, { name: `${model}, ${schedule}` }),
    named("thread_name", pid, tid, { name: "supervisor" }),
    ...Array.from({ length: replicas }, (_, r) => {
      const name = replicas === 1 ? "workers" : `replica ${r}`;
      return named("process_name", r + 1, 0, { name });
    }),
    ...Array.from({ length: workers }, (_, worker) => {
      const stages = stagesOf[worker % stagesOf.length]!;
      const name = `worker ${worker} (stage ${stages.join(", ")})`;
      return [
        named("thread_name", pidOf(facts, worker), worker, { name }),
        named("thread_sort_index", pidOf(facts, worker), worker, { sort_index: worker }),
      ];
    }).flat(),
  ];
}

/** What the workers did in a step, what they sent each other, and what waited for them. */
export function stepEvents(
  facts: TraceFacts,
  step: number,
  { workers, flows }: StepTimeline,
  firstFlow: number,
): ChromeEvent[] {
  const track = (worker: number) => ({ pid: pidOf(facts, worker), tid: worker });
  const at = (time: number) => momentOf(facts, time);
  const piece = (name: string, cat: string, one: Span | Gap, args: Args): ChromeEvent => ({
    ...{ ph: "X", name, cat, ...track(one.worker) },
    ...{ ts: at(one.start), dur: micro(one.end - one.start), args },
  });
  return [
    ...workers.flatMap(({ spans, gaps }) => [
      ...spans.map((span) => piece(span.name, span.kind, span, argsOf(facts, step, span))),
      ...gaps.filter(({ kind }) => kind !== "pause")
        .map((gap) => piece(gap.cause, "wait", gap, { step, kind: gap.kind })),
      ...spans.flatMap(({ worker, start, waiting }) =>
        waiting === undefined ? [] : [
          workerCounter(facts, worker, at(start), "mailbox", { waiting }),
        ]
      ),
    ]),
    ...flows.flatMap(({ from, to }, i): ChromeEvent[] => {
      const name = to.kind === "F" ? "activation" : "gradient", id = firstFlow + i;
      const sent = Math.max(from.start, Math.min(from.sent ?? from.end, from.end));
      const flow = { name, cat: "flow", id } as const;
      return [
        { ph: "s", ...flow, ...track(from.worker), ts: at(sent) },
        { ph: "f", bp: "e", ...flow, ...track(to.worker), ts: at(to.start) },
      ];
    }),
  ];
}

/** All that is known of a piece of work, so that it can be read back. */
function argsOf(facts: TraceFacts, step: number, span: Span): Args {
  const { kind, stages, actions, arrived, sent, waiting, chunk, bucket } = span;
  const [stage] = stages;
  return {
    step,
    kind,
    ...stages.length > 1 ? { stages } : stage !== undefined ? { stage } : {},
    ...actions.length === 1 && { microBatch: actions[0]!.microBatch },
    ...actions.length > 1 && { microBatches: actions.map(({ microBatch }) => microBatch) },
    ...arrived !== undefined && { arrived: momentOf(facts, arrived) },
    ...sent !== undefined && { sent: momentOf(facts, sent) },
    ...waiting !== undefined && { waiting },
    ...chunk !== undefined && { chunk },
    ...bucket !== undefined && { bucket },
  };
}

/** A curve of the whole run. */
export const counter = (name: string, ts: number, args: Args): ChromeEvent => ({
  ph: "C",
  name,
  ...SUPERVISOR,
  ts,
  args,
});

/** A curve of a worker: bytes that it holds, messages in its mailbox, or activations, in micro-batches
 * of 1/P of the model. */
export const workerCounter = (
  facts: TraceFacts,
  worker: number,
  ts: number,
  name: "memory" | "mailbox" | "activations",
  args: Args,
): ChromeEvent => ({
  ...counter(`${name} of worker ${worker}`, ts, args),
  pid: pidOf(facts, worker),
  tid: worker,
});

/** What the supervisor was at for some time. */
export const supervised = (
  name: string,
  cat: string,
  ts: number,
  dur: number,
  args: Args,
): ChromeEvent => ({ ph: "X", name, cat, ...SUPERVISOR, ts, dur, args });

/** A moment of the run. */
export const moment = (name: string, cat: string, ts: number, args: Args): ChromeEvent => ({
  ph: "i",
  s: "g",
  name,
  cat,
  ...SUPERVISOR,
  ts,
  args,
});
