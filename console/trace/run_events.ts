/**
 * A run as events of Chrome's trace format, as it goes on.
 *
 * @module
 */

import type { Metrics } from "../../actors/run/metrics/metrics.ts";
import type { Plan } from "../../actors/run/plan.ts";
import { readStep } from "../../actors/run/timeline/mod.ts";
import type { TrainEvent } from "../../actors/run/train_event.ts";
import { realClock } from "../../actors/runtime/world/clock.ts";
import type { ChromeEvent, TracedStages, TraceFacts } from "./chrome_event.ts";
import {
  counter,
  headEvents,
  moment,
  momentOf,
  stepEvents,
  supervised,
  workerCounter,
} from "./chrome_events.ts";

/** The steps that a trace has, both ends included. */
export interface StepRange {
  readonly first: number;
  readonly last: number;
}

type StepEvent = Extract<TrainEvent, { type: "step" | "skip" }>;

/**
 * Turns what happens in a run into events; what it knows does not grow with the run.
 *
 * @param steps those whose actions are told.
 * @param microBatch samples of a micro-batch of the run.
 */
export function openRunEvents({ first, last }: StepRange, microBatch?: number) {
  const clock = realClock();
  let facts: TraceFacts, memory: readonly number[] = [];
  /** When the supervisor's last work ended, in microseconds of the trace. */
  let free = 0, flows = 0;
  const now = () => momentOf(facts, clock.now());
  const stepTaken = (event: StepEvent): ChromeEvent[] => {
    const { step, traces } = event, timeline = readStep(traces, facts.replicas);
    const ts = Math.max(free, momentOf(facts, timeline.start));
    free = Math.max(ts, momentOf(facts, timeline.end));
    if (step < first || step > last) return [];
    const events = stepEvents(facts, step, timeline, flows);
    flows += timeline.flows.length;
    return [
      ...events,
      ...supervisedStep(event, ts, free),
      ...memory.map((bytes, worker) => workerCounter(facts, worker, free, "memory", { bytes })),
    ];
  };
  return {
    /** What was measured in the step that comes next. */
    measured: (metrics: Metrics) => void (memory = metrics.memory ?? memory),
    /** The events of something that has happened: none before the plan. */
    see(event: TrainEvent): ChromeEvent[] {
      switch (event.type) {
        case "plan":
          facts = factsOf(event.plan, clock.now(), microBatch);
          return headEvents(facts);
        case "step":
        case "skip":
          return stepTaken(event);
        case "evaluation": {
          const { step, loss } = event, ts = free;
          free = Math.max(ts, now());
          return [
            supervised("evaluation", "evaluation", ts, free - ts, { step, loss }),
            counter("held-out loss", free, { loss }),
          ];
        }
        case "checkpoint":
          return [moment("checkpoint", event.type, now(), { step: event.step, path: event.path })];
        case "failure": {
          const { step, actor, reason, time } = event;
          const args = { step, actor, reason };
          return [moment(`${actor} lost`, event.type, momentOf(facts, time), args)];
        }
        case "wait":
          return [];
        case "end":
          return [moment("end", event.type, now(), { steps: event.steps, seconds: event.seconds })];
      }
    },
  };
}

function factsOf(
  { model, schedule, runtime, device, replicas, stages }: Plan,
  began: number,
  microBatch: number | undefined,
): TraceFacts {
  const about: TracedStages = {
    device,
    parameters: stages.map(({ parameters }) => parameters),
    shares: stages.map(({ costShare }) => costShare),
    activationBytes: stages.map(({ activationBytes }) => activationBytes),
    ...microBatch !== undefined && { microBatch },
  };
  const facts = { model, schedule, runtime, began, about };
  // One track takes all that would be that of many.
  if (runtime === "serial") {
    return { ...facts, replicas: 1, stagesOf: [stages.map(({ stage }) => stage)] };
  }
  const count = 1 + Math.max(...stages.flatMap(({ workers }) => workers));
  const held = (worker: number) => stages.filter(({ workers }) => workers.includes(worker));
  const stagesOf = Array.from(
    { length: count },
    (_, worker) => held(worker).map(({ stage }) => stage),
  );
  return { ...facts, replicas, stagesOf };
}

/** A step on the track of the supervisor, with its curves. */
function supervisedStep(event: StepEvent, ts: number, end: number): ChromeEvent[] {
  const { type, step, loss, learningRate, lossScale, predictions, seconds } = event;
  const norm = type === "step" ? { gradNorm: event.gradNorm } : {};
  // JSON has no number for the loss of a step that overflowed.
  const finite = Number.isFinite(loss) ? { loss } : {};
  const args = { step, ...finite, ...norm, learningRate, lossScale };
  const name = type === "skip" ? `step ${step} skipped` : `step ${step}`;
  return [
    supervised(name, type, ts, end - ts, args),
    ...Number.isFinite(loss) ? [counter("loss", end, finite)] : [],
    counter("tokens/s", end, { "tokens/s": predictions / seconds }),
  ];
}
