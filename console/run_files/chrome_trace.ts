/**
 * `--trace FILE`: a trace of a run in Chrome's format, written as the run goes on.
 *
 * [Note: a trace that is killed] The format is a JSON array, whose end viewers do not ask for. Each
 * step is given to the system in one call, so a program that is killed leaves whole events; the end
 * of the run closes the array. What is in memory is one step.
 *
 * [Note: a bound] Viewers read a trace into memory. The step that would make the file larger than
 * its bound is left out, and all after it, which is announced and said in the file.
 *
 * @module
 */

import type { TracedAction } from "../../actors/mod.ts";
import type { Metrics } from "../../actors/options/train_options.ts";
import type { TrainEvent } from "../../actors/run/events.ts";
import type { Plan } from "../../actors/run/plan.ts";
import { type Gap, readStep, type Span, type StepTimeline } from "../../actors/run/timeline.ts";
import { realClock } from "../../actors/runtime/world.ts";
import { type Analysis, formatAction, liveActivations } from "../../schedules/mod.ts";
import { BoundedFile } from "./timeline_file.ts";

/** Values of an event, as a viewer shows them. */
type Args = Readonly<Record<string, string | number | readonly number[]>>;

/** Something on a track, or about it. Times are in microseconds since the trace began. */
interface ChromeEvent {
  /** Its kind. `M` names a process, a track or the whole trace; `X` is a piece of work, or time without
   * any (`cat` is `wait`); an output leaves one (`s`) and arrives at another (`f`); `C` are values that a
   * viewer draws as a curve; `i` is a moment. */
  readonly ph: "M" | "X" | "s" | "f" | "C" | "i";
  /** The name that a viewer shows. */
  readonly name: string;
  /** The process: 0 the supervisor, r + 1 the data-parallel replica r. */
  readonly pid: number;
  /** The track in it: the worker, counted over all replicas. */
  readonly tid: number;
  readonly cat?: string;
  readonly ts?: number;
  readonly dur?: number;
  readonly args?: Args;
  /** Joins the ends of a flow. */
  readonly id?: number;
  /** An arrival belongs to the work around it. */
  readonly bp?: "e";
  /** A moment of the whole trace, or of its track. */
  readonly s?: "g" | "t";
}

/** Name of the first event of a trace of Troupe, which says what it is of. */
export const TROUPE_EVENT = "troupe_trace";

/** Version of what the events of Troupe say. */
export const TRACE_VERSION = 1;

/** The track of the supervisor. */
const SUPERVISOR = { pid: 0, tid: 0 } as const;

/** What a trace is of. */
export interface TraceFacts {
  /** The model's name. */
  readonly model: string;
  /** The schedule's name. */
  readonly schedule: string;
  /** Where actors ran. */
  readonly runtime: string;
  /** Data-parallel replicas. */
  readonly replicas: number;
  /** For each worker of one replica the stages that it holds. */
  readonly stagesOf: readonly (readonly number[])[];
  /** When the trace began, in milliseconds since the epoch. */
  readonly began: number;
  /** What computes, and the stages; absent where nothing computed. */
  readonly about?: TracedStages | undefined;
}

/** What computes in a traced run, and for each of its stages what costs are costs of. */
export interface TracedStages {
  /** What computes. */
  readonly device: string;
  /** Trained numbers. */
  readonly parameters: readonly number[];
  /** Share of the model's estimated work, 0 to 1. */
  readonly shares: readonly number[];
  /** Bytes that a micro-batch keeps from F to B. */
  readonly activationBytes: readonly number[];
  /** Samples of a micro-batch; absent in older traces. */
  readonly microBatch?: number;
}

/** Milliseconds as microseconds to a thousandth: no clock is finer. */
const micro = (ms: number) => Math.round(ms * 1e6) / 1e3;

/** A moment of the run, in microseconds since its trace began. */
const momentOf = ({ began }: TraceFacts, time: number): number => micro(time - began);

const pidOf = ({ stagesOf }: TraceFacts, worker: number) =>
  1 + Math.floor(worker / stagesOf.length);

/** What comes first: what the trace is of, and the names of its processes and tracks. */
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

/** What the workers did in a step, what they sent each other, and what waited for them. */
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

/** What the supervisor was at for some time. */
const supervised = (
  name: string,
  cat: string,
  ts: number,
  dur: number,
  args: Args,
): ChromeEvent => ({ ph: "X", name, cat, ...SUPERVISOR, ts, dur, args });

/** A moment of the run. */
const moment = (name: string, cat: string, ts: number, args: Args): ChromeEvent => ({
  ph: "i",
  s: "g",
  name,
  cat,
  ...SUPERVISOR,
  ts,
  args,
});

/** The most actions of a trace: viewers in a browser read all of it into memory. */
const ACTIONS_MAX = 2 ** 18;

/** The only step that there is. */
const STEP = 1;

/**
 * The planned timeline as JSON: workers are tracks, actions what lies on them, with the bubbles
 * between them and why, flows from who computes an input to who needs it, and the activations of each
 * worker as a curve. A unit of time is a millisecond.
 *
 * @throws {RangeError} if it has more actions than a viewer could show.
 */
export function formatTrace(analysis: Analysis): string {
  const { schedule, makespan, bubbleRatio } = analysis;
  const actions = schedule.lists.reduce((sum, { length }) => sum + length, 0);
  if (actions > ACTIONS_MAX) {
    throw new RangeError(
      `Cannot write ${schedule.name} as a trace: it must have at most ${ACTIONS_MAX} actions, ` +
        `received ${actions}`,
    );
  }
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
    supervised(`step ${STEP}`, "step", 0, end, { step: STEP, bubbleRatio }),
    ...stepEvents(facts, STEP, readStep(tracesOf(analysis)), 0),
    ...curvesOf(facts, analysis),
  ];
  return `[\n${events.map((event) => JSON.stringify(event)).join(",\n")}\n]\n`;
}

/** For each worker what it does, as its trace would have it. */
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

/** Sums of thirds differ in their last bits, which would be bubbles of no length. */
const tidy = (time: number) => Math.round(time * 1e6) / 1e6;

function curvesOf(facts: TraceFacts, analysis: Analysis): ChromeEvent[] {
  return analysis.schedule.lists.flatMap((_, worker) =>
    Array.from(liveActivations(analysis, worker), ({ time, live }) => {
      const activations = Number(live.toPrecision(12));
      return workerCounter(facts, worker, momentOf(facts, time), "activations", { activations });
    })
  );
}

/** The steps that a trace has, both ends included. */
interface StepRange {
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
function openRunEvents({ first, last }: StepRange, microBatch?: number) {
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

/** How a trace is written. */
export interface TraceFileOptions {
  /** The file; what it holds is replaced. */
  readonly path: string;
  /** Which steps it has. Default: all, as far as the bound lets them in. */
  readonly steps?: StepRange | undefined;
  /** Samples of a micro-batch of the run. */
  readonly microBatch?: number | undefined;
  /** The most bytes of the file. Default {@linkcode TRACE_BYTES}. */
  readonly bytesMax?: number | undefined;
  /** Told why nothing more is written; the run goes on. */
  readonly announce: (line: string) => void;
}

/** Default bound of a trace: what viewers in a browser still open. */
const TRACE_BYTES = 256 * 2 ** 20;

/** Room that is kept for what is said of the end. */
const END_BYTES = 4096;

/** Opens the trace of a run, whose plan makes the file. */
export function openTraceFile(
  { path, steps, microBatch, bytesMax = TRACE_BYTES, announce }: TraceFileOptions,
) {
  const events = openRunEvents(steps ?? { first: 0, last: Infinity }, microBatch);
  let file: BoundedFile | undefined, isFull = false;
  const write = (some: readonly ChromeEvent[], leaving: number) => {
    const lines = some.map((event) => JSON.stringify(event)).join(",\n");
    return lines === "" || file!.add((file!.size === 0 ? "[\n" : ",\n") + lines, leaving);
  };
  const fill = (some: readonly ChromeEvent[], event: TrainEvent) => {
    isFull = true;
    if (file!.hasFailed) return;
    const before = "step" in event ? `before step ${event.step}` : "here";
    const why = `the trace ends ${before}: it has at most ${bytesMax} bytes`;
    announce(`${why}; --trace-steps A-B says which steps it is to have`);
    const last = some.at(-1)!;
    write([moment(why, "full", last.ts ?? 0, {})], 0);
  };
  return {
    /** What was measured in the step that comes next. */
    measured: (metrics: Metrics) => events.measured(metrics),
    /** Something has happened. @throws {RangeError} when the file cannot be written. */
    see(event: TrainEvent): void {
      file ??= new BoundedFile({ path, what: "the trace", bytesMax, announce });
      const some = events.see(event);
      if (event.type === "end") write(some, 0);
      else if (!isFull && !write(some, END_BYTES)) fill(some, event);
    },
    [Symbol.dispose](): void {
      file?.add("\n]\n");
      file?.[Symbol.dispose]();
    },
  };
}
