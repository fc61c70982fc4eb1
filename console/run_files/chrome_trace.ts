/**
 * Traces in Chrome's format, of runs (`--trace FILE`) and of schedules.
 *
 * [Note: killed runs] The format is a JSON array, whose end is optional for viewers. Each step is
 * written in one call, so a killed program leaves complete events; the end of the run closes the
 * array. Only one step is kept in memory.
 *
 * [Note: size] Viewers read a trace into memory. The first step that exceeds the maximum size is left
 * out with all later ones, which is announced and noted in the file.
 *
 * @module
 */

import type { Plan, TrainEvent } from "../../actors/options/train_events.ts";
import type { TracedAction } from "../../actors/pipeline/step.ts";
import type { Metrics } from "../../actors/options/train_options.ts";
import { type Gap, readStep, type Span, type StepTimeline } from "../../actors/run/timeline.ts";
import type { RunRecord } from "../../actors/run_folder/metrics_file.ts";
import type { TracedRun } from "../../actors/planner/predict.ts";
import type { readStepRange } from "../../actors/options/limits.ts";
import { assertInput } from "../../kernels/internal.ts";
import { realClock } from "../../actors/runtime/world.ts";
import { type Analysis, formatAction, liveActivations } from "../../schedules/mod.ts";
import { BoundedFile, type BoundedFileOptions } from "./timeline_file.ts";

/** Values of an event, shown by viewers. Undefined values are not written. */
type Args = Readonly<Record<string, string | number | readonly number[] | undefined>>;

/** An event of a track. Times are in microseconds since the start of the trace. */
export interface ChromeEvent {
  /** Kind: `M` names a process, a track or the trace; `X` is work, or idle time (`cat` is `wait`); `s` and
   * `f` are the start and end of a flow; `C` are values of a curve; `i` is an instant. */
  readonly ph: "M" | "X" | "s" | "f" | "C" | "i";
  /** Name shown by viewers. */
  readonly name: string;
  /** Process: 0 for the supervisor, r + 1 for data-parallel replica r. */
  readonly pid: number;
  /** Track: the worker, counted over all replicas. */
  readonly tid: number;
  readonly cat?: string;
  readonly ts?: number;
  readonly dur?: number;
  readonly args?: Args;
  /** Connects the ends of a flow. */
  readonly id?: number;
  /** An arrival belongs to the enclosing work. */
  readonly bp?: "e";
  /** Scope of an instant: the trace or its track. */
  readonly s?: "g" | "t";
}

/** Name of the first event of a trace of Troupe, which describes the run. */
export const TROUPE_EVENT = "troupe_trace";

/** Version of the events of Troupe. */
export const TRACE_VERSION = 1;

/** The track of the supervisor. */
const SUPERVISOR = { pid: 0, tid: 0 } as const;

/** Description of a traced run. */
export interface TraceFacts {
  /** Name of the model. */
  readonly model: string;
  /** Name of the schedule. */
  readonly schedule: string;
  /** Runtime of the actors. */
  readonly runtime: string;
  /** Data-parallel replicas. */
  readonly replicas: number;
  /** Stages of each worker of one replica. */
  readonly stagesOf: readonly (readonly number[])[];
  /** Start of the trace in milliseconds since the epoch. */
  readonly began: number;
  /** Device and stages; absent for schedules. */
  readonly about?: TracedStages | undefined;
}

/** Device and stages of a traced run. */
export interface TracedStages
  extends Pick<TracedRun, "device" | "parameters" | "shares" | "activationBytes"> {
  /** Samples of a micro-batch; absent in older traces. */
  readonly microBatch?: number;
}

/** Converts milliseconds to microseconds, rounded to the resolution of clocks. */
const micro = (ms: number) => Math.round(ms * 1e6) / 1e3;

/** Converts a time to microseconds since the start of the trace. */
const momentOf = ({ began }: TraceFacts, time: number): number => micro(time - began);

const pidOf = ({ stagesOf }: TraceFacts, worker: number) =>
  1 + Math.floor(worker / stagesOf.length);

/** Returns the first events: a description of the run, and names of processes and tracks. */
function headEvents(facts: TraceFacts): ChromeEvent[] {
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

/** Returns the actions, messages and mailbox sizes of a step. */
function stepEvents(
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

/** Returns all fields of an action, so that it can be read again. */
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
    ...{ waiting, chunk, bucket },
  };
}

/** Returns a value of a curve of the run. */
export const counter = (name: string, ts: number, args: Args): ChromeEvent => (
  { ph: "C", name, ...SUPERVISOR, ts, args }
);

/** Returns a value of a worker's curve: bytes of memory, messages in its mailbox, or activations in
 * micro-batches of 1/P of the model. */
const workerCounter = (
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

/** Returns work of the supervisor. */
const supervised = (
  name: string,
  cat: string,
  ts: number,
  dur: number,
  args: Args,
): ChromeEvent => ({ ph: "X", name, cat, ...SUPERVISOR, ts, dur, args });

/** Returns an instant of the run. */
const moment = (name: string, cat: string, ts: number, args: Args): ChromeEvent => (
  { ph: "i", s: "g", name, cat, ...SUPERVISOR, ts, args }
);

/** Limit of actions in a trace, which browsers read into memory. */
const ACTIONS_MAX = 2 ** 18;

/**
 * Formats the timeline of a schedule as JSON: workers are tracks with actions and bubbles, flows
 * connect actions to the actions that need their outputs, and the activations of each worker are a curve. A
 * unit of time is a millisecond.
 *
 * @throws {RangeError} when it has more actions than viewers can show.
 */
export function formatTrace(analysis: Analysis): string {
  const { schedule, makespan, bubbleRatio } = analysis;
  const actions = schedule.lists.reduce((sum, { length }) => sum + length, 0);
  const cannot = `write ${schedule.name} as a trace`, isShort = actions <= ACTIONS_MAX;
  assertInput(isShort, cannot, `it must have at most ${ACTIONS_MAX} actions`, actions);
  const facts: TraceFacts = {
    model: "on paper",
    schedule: schedule.name,
    runtime: "plan",
    replicas: 1,
    stagesOf: schedule.placement.map((held) => held.map(({ stage }) => stage)),
    began: 0,
  };
  const end = momentOf(facts, makespan);
  const events = [
    ...headEvents(facts),
    supervised("step 1", "step", 0, end, { step: 1, bubbleRatio }),
    ...stepEvents(facts, 1, readStep(tracesOf(analysis)), 0),
    ...curvesOf(facts, analysis),
  ];
  return `[\n${events.map((event) => JSON.stringify(event)).join(",\n")}\n]\n`;
}

/** Returns the actions of each worker as a traced step. */
function tracesOf({ schedule, execution }: Analysis): TracedAction[][] {
  const { timeline: { starts, ends }, lastInput } = execution;
  return schedule.lists.map((list, worker) =>
    Array.from(list, (action, index): TracedAction => {
      const input = lastInput(worker, index);
      return {
        name: formatAction(action),
        start: tidy(starts[worker]![index]!),
        end: tidy(ends[worker]![index]!),
        ...input && { arrived: tidy(input.time) },
      };
    })
  );
}

/** Rounds times, as rounding errors of sums would show as bubbles of no length. */
const tidy = (time: number) => Math.round(time * 1e6) / 1e6;

function curvesOf(facts: TraceFacts, analysis: Analysis): ChromeEvent[] {
  return analysis.schedule.lists.flatMap((_, worker) =>
    Array.from(liveActivations(analysis, worker), ({ time, live }) => {
      const activations = Number(live.toPrecision(12));
      return workerCounter(facts, worker, momentOf(facts, time), "activations", { activations });
    })
  );
}

type StepEvent = Extract<TrainEvent, { type: "step" | "skip" }>;

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
  // A serial run has a single track.
  if (runtime === "serial") {
    return { ...facts, replicas: 1, stagesOf: [stages.map(({ stage }) => stage)] };
  }
  return { ...facts, replicas, stagesOf: heldStages(stages) };
}

/** Returns the stages of each worker of one replica. */
export function heldStages(stages: RunRecord["plan"]["stages"]): readonly (readonly number[])[] {
  const held: number[][] = [];
  for (const { stage, workers } of stages) {
    for (const worker of workers) (held[worker] ??= []).push(stage);
  }
  return Array.from(held, (stages = []) => stages);
}

/** Returns a step on the track of the supervisor, with its curves. */
function supervisedStep(event: StepEvent, ts: number, end: number): ChromeEvent[] {
  const { type, step, loss, learningRate, lossScale, predictions, seconds } = event;
  const norm = type === "step" ? { gradNorm: event.gradNorm } : {};
  // JSON cannot represent the loss of a step with an overflow.
  const finite = Number.isFinite(loss) ? { loss } : {};
  const args = { step, ...finite, ...norm, learningRate, lossScale };
  const name = type === "skip" ? `step ${step} skipped` : `step ${step}`;
  return [
    supervised(name, type, ts, end - ts, args),
    ...Number.isFinite(loss) ? [counter("loss", end, finite)] : [],
    counter("tokens/s", end, { "tokens/s": predictions / seconds }),
  ];
}

/** Options of a trace. */
export interface TraceFileOptions extends Pick<BoundedFileOptions, "path" | "announce"> {
  /** Range of traced steps, inclusive. Default: all, up to the maximum size. */
  readonly steps?: ReturnType<typeof readStepRange>;
  /** Samples of a micro-batch. */
  readonly microBatch?: number | undefined;
  /** Maximum bytes of the file. Default {@linkcode TRACE_BYTES}. */
  readonly bytesMax?: number | undefined;
}

/** Default maximum of a trace, which browsers can still open. */
const TRACE_BYTES = 256 * 2 ** 20;

/** Bytes reserved for the end of the run. */
const END_BYTES = 4096;

/** The trace of a run, with bounded state; the file is created with the first event. */
export class TraceFile implements Disposable {
  readonly #clock = realClock();
  #file: BoundedFile | undefined;
  #isFull = false;
  #facts!: TraceFacts;
  #memory: readonly number[] = [];
  /** End of the supervisor's last work, in microseconds of the trace. */
  #free = 0;
  #flows = 0;

  /** Nothing is written before the first event. */
  constructor(private readonly options: TraceFileOptions) {}

  /** Takes the metrics of the next step. */
  measured({ memory = this.#memory }: Metrics): void {
    this.#memory = memory;
  }

  /** Adds an event. @throws {RangeError} when the file cannot be written. */
  see(event: TrainEvent): void {
    const { path, bytesMax = TRACE_BYTES, announce } = this.options;
    this.#file ??= new BoundedFile({ path, what: "the trace", bytesMax, announce });
    const events = this.#eventsOf(event);
    if (event.type === "end") this.#write(events, 0);
    else if (!this.#isFull && !this.#write(events, END_BYTES)) this.#stop(events, event);
  }

  [Symbol.dispose](): void {
    this.#file?.add("\n]\n");
    this.#file?.[Symbol.dispose]();
  }

  #write(events: readonly ChromeEvent[], leaving: number): boolean {
    const lines = events.map((event) => JSON.stringify(event)).join(",\n"), file = this.#file!;
    return lines === "" || file.add((file.size === 0 ? "[\n" : ",\n") + lines, leaving);
  }

  /** Ends the trace before the events, unless writing has failed. */
  #stop(events: readonly ChromeEvent[], event: TrainEvent): void {
    this.#isFull = true;
    if (this.#file!.hasFailed) return;
    const { bytesMax = TRACE_BYTES, announce } = this.options;
    const before = "step" in event ? `before step ${event.step}` : "here";
    const why = `the trace ends ${before}: it has at most ${bytesMax} bytes`;
    announce(`${why}; --trace-steps A-B selects the steps`);
    this.#write([moment(why, "full", events.at(-1)!.ts ?? 0, {})], 0);
  }

  /** Returns the trace events of an event. */
  #eventsOf(event: TrainEvent): ChromeEvent[] {
    const now = () => momentOf(this.#facts, this.#clock.now());
    switch (event.type) {
      case "plan":
        this.#facts = factsOf(event.plan, this.#clock.now(), this.options.microBatch);
        return headEvents(this.#facts);
      case "step":
      case "skip":
        return this.#stepEvents(event);
      case "evaluation": {
        const { step, loss } = event, ts = this.#free;
        this.#free = Math.max(ts, now());
        return [
          supervised("evaluation", "evaluation", ts, this.#free - ts, { step, loss }),
          counter("held-out loss", this.#free, { loss }),
        ];
      }
      case "checkpoint":
        return [moment("checkpoint", event.type, now(), { step: event.step, path: event.path })];
      case "failure": {
        const { step, actor, reason, time } = event, at = momentOf(this.#facts, time);
        return [moment(`${actor} lost`, event.type, at, { step, actor, reason })];
      }
      case "resize": {
        const { type, step, actor, from, time, to: { pipelines, depth } } = event;
        const how = { step, from, pipelines, depth }, what = actor ? `${actor} lost` : "joined";
        return [moment(what, type, momentOf(this.#facts, time), how)];
      }
      case "wait":
        return [];
      case "job":
        return [moment(`${event.job} ended`, event.type, now(), { step: event.step })];
      case "end":
        return [moment("end", event.type, now(), { steps: event.steps, seconds: event.seconds })];
    }
  }

  #stepEvents(event: StepEvent): ChromeEvent[] {
    const facts = this.#facts, { step, traces } = event;
    const { first, last } = this.options.steps ?? { first: 0, last: Infinity };
    const timeline = readStep(traces, facts.replicas);
    const ts = Math.max(this.#free, momentOf(facts, timeline.start));
    const end = this.#free = Math.max(ts, momentOf(facts, timeline.end));
    if (step < first || step > last) return [];
    const events = stepEvents(facts, step, timeline, this.#flows);
    this.#flows += timeline.flows.length;
    return [
      ...events,
      ...supervisedStep(event, ts, end),
      ...this.#memory.map((bytes, worker) =>
        workerCounter(facts, worker, end, "memory", { bytes })
      ),
    ];
  }
}
