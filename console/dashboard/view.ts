/**
 * The view of a run, from which pages get its state and updates, and the types of these.
 *
 * @module
 */

import { checkSizes, commandLine, WORKERS_MAX } from "../../actors/options/limits.ts";
import type { Metrics } from "../../actors/options/train_options.ts";
import type { TracedAction } from "../../actors/pipeline/step.ts";
import { readSpan, readStep, type WorkerTimeline } from "../../actors/run/timeline.ts";
import type { RunEnd, RunRecord } from "../../actors/run_folder/metrics_file.ts";
import { hashOf } from "../../actors/run_folder/write.ts";
import { KINDS } from "../../schedules/action_list.ts";
import { ifServed, splitsBackward } from "../../schedules/internal.ts";
import {
  type ActionKind,
  analyze,
  type Costs,
  formatAction,
  type Schedule,
} from "../../schedules/mod.ts";
import { inkOf } from "../../schedules/pictures/svg.ts";
import { scheduleOf } from "../commands/schedule_flags.ts";
import { RecentList, ThinnedList } from "../run_files/bounded_lists.ts";
import { heldStages } from "../run_files/chrome_trace.ts";
import { lossUnit } from "../run_files/losses.ts";
import type { TimelineEvent } from "../run_files/timeline_file.ts";
import { count } from "../terminal.ts";
import { shellWord } from "../train/data_files.ts";
import type { TrainFlags } from "../train/flags.ts";

/** State for a page: everything when it opens, then the changes. */
export type Updates = Partial<ReturnType<RunView["all"]>>;

/** Metrics of a step; with jobs the mean of their losses and the sum of their speeds. */
export interface StepRow extends Metrics {
  /** The curves of each job that runs in it. */
  readonly jobs?: Readonly<Record<string, { readonly [K in CurveKey]: number | undefined }>>;
}

/** The metrics that have a chart. */
export type CurveKey = "loss" | "tokensPerSecond" | "gradNorm" | "learningRate";

/** The end of a list, which replaces all entries from an index on. */
export interface Tail<T> {
  /** First replaced index. */
  readonly from: number;
  /** Entries from this index on. */
  readonly entries: readonly T[];
}

/** Status and progress of a run. */
export interface StatusView {
  /** Status. */
  readonly status: "starting" | "running" | "finished" | "interrupted" | "failed" | "gone";
  /** Reason of a failure, or another note. */
  readonly note?: string;
  /** Last step taken. */
  readonly step: number;
  /** Steps of the whole run. */
  readonly steps: number;
}

/** An action: name, start and end in milliseconds of the step. */
export type Span = readonly [name: string, start: number, end: number];

/** Idle time of a worker and its cause. */
type Gap = readonly [start: number, end: number, cause: string];

/** State of a worker. */
export interface WorkerView {
  /** Bytes of memory. */
  readonly memoryBytes?: number;
  /** Number of restarts. */
  readonly restarts: number;
}

/**
 * Creates the schedule of a run from its flags. Returns undefined for schedules from files or
 * searches, for more actions than are drawn, and for invalid flags.
 */
export function recordedSchedule(
  { flags: recorded, schedule, plan }: RunRecord,
): Schedule | undefined {
  const flags = recorded as TrainFlags, { workers, "micro-batches": microBatches } = flags;
  if (flags["schedule-file"] !== undefined || flags.schedule === "search") return undefined;
  try {
    checkSizes({ workers, microBatches, replicas: plan.replicas });
    if (workers * microBatches > ACTIONS_MAX / 2) return undefined;
    const made = scheduleOf(flags);
    const isSame = made.name === schedule.name && made.stages === plan.stages.length &&
      (made.lists && hashOf(made.lists)) === schedule.hash;
    return isSame ? made : undefined;
  } catch (error) {
    if (error instanceof RangeError || error instanceof TypeError) return undefined;
    throw error;
  }
}

/**
 * Returns the expected actions of each worker of a data-parallel replica, if each action took the
 * mean of its stage in this step; empty if the costs are unknown.
 */
export function expectedSpans(
  schedule: Schedule,
  traces: readonly (readonly TracedAction[])[],
): readonly (readonly Span[])[] {
  const analysis = ifServed(() => analyze(schedule, measuredCosts(schedule, traces)));
  if (!analysis) return [];
  const { schedule: { lists }, execution: { timeline: { starts, ends } } } = analysis;
  return lists.map((list, worker) =>
    Array.from(list, (action, i): Span => [
      formatAction(action),
      microseconds(starts[worker]![i]!),
      microseconds(ends[worker]![i]!),
    ])
  );
}

/** Assumed lengths of actions relative to a forward, for overlapped actions. */
const LENGTHS: Readonly<Record<ActionKind, number>> = { F: 1, B: 2, I: 1, W: 1, R: 1 };

/** Returns the mean durations of actions, by kind and stage. */
function measuredCosts({ stages }: Schedule, traces: readonly (readonly TracedAction[])[]): Costs {
  const sums = new Map<string, { total: number; count: number }>();
  const sumOf = (key: string) => sums.getOrInsertComputed(key, () => ({ total: 0, count: 0 }));
  for (const traced of traces.flat()) {
    const { actions, start, end } = readSpan(traced, 0);
    const lengths = actions.map(({ kind, part }) => LENGTHS[kind] / (part?.count ?? 1));
    const length = lengths.reduce((sum, one) => sum + one, 0);
    for (const { kind, stage } of actions) {
      const sum = sumOf(`${kind}${stage}`);
      sum.total += (end - start) * LENGTHS[kind] / length;
      sum.count++;
    }
  }
  /** Returns the cost for each stage; the mean for stages without such an action. */
  const costsOf = (kind: ActionKind) => {
    const costs = Array.from({ length: stages }, (_, stage) => {
      const { total, count } = sumOf(`${kind}${stage}`);
      return count === 0 ? undefined : total / count;
    });
    const known = costs.filter((cost) => cost !== undefined);
    const mean = known.reduce((sum, cost) => sum + cost, 0) / known.length;
    return known.length === 0 ? undefined : costs.map((cost) => cost ?? mean);
  };
  const forward = costsOf("F"), input = costsOf("I"), weight = costsOf("W");
  // A split backward is the sum of its parts.
  const others = { forward, recompute: costsOf("R") };
  return input && weight ? { ...others, input, weight } : { ...others, backward: costsOf("B") };
}

/** Limit of actions in a drawn step; more would take too long. */
const ACTIONS_MAX = 20_000;

/** A list that knows which entries have not been sent. */
class UnsentList<T> {
  #from = Infinity;

  constructor(private readonly list: ThinnedList<T> | RecentList<T>) {}

  add(entry: T): void {
    this.#from = Math.min(this.#from, this.list.add(entry));
  }

  all(from = 0): Tail<T> {
    return { from, entries: this.list.entries.slice(from) };
  }

  /** Returns the changes since the last call. */
  updates(): Tail<T> | undefined {
    const from = this.#from;
    this.#from = Infinity;
    return from === Infinity ? undefined : this.all(from);
  }
}

/** Describes the end of a run. */
export function endedStatus(reason: RunEnd["reason"]): Pick<StatusView, "status" | "note"> {
  if (reason === "interrupted") return { status: reason };
  if (reason !== "stopped early") return { status: "finished" };
  return { status: "finished", note: "Stopped early: the held-out loss stopped falling." };
}

/** An event of a run. */
export type EventView = ReturnType<typeof eventView>;

/**
 * Makes the view of an event.
 *
 * @param text of an event without a reason.
 */
export function eventView(event: TimelineEvent, text = "") {
  const { type: kind, step, time } = event, said = "reason" in event ? event.reason : text;
  const worker = event.type === "failure" ? /\d+$/.exec(event.actor)?.[0] : undefined;
  return {
    /** `step` is the last one before the event; `time` is in milliseconds since the epoch. */
    ...{ kind, step, time, text: said },
    // The worker, if it is about one.
    ...worker !== undefined && { worker: Number(worker) },
  };
}

const NEWEST_MAX = 8, EARLIER_MAX = 16;

/** A traced step whose view is made when it is first needed. */
type LazyTrace = { readonly step: number; readonly view: () => TraceView };

/** Traced steps: the newest, and a thinned selection of earlier ones. */
class TraceList {
  readonly #newest: LazyTrace[] = [];
  readonly #earlier = new ThinnedList<LazyTrace>(EARLIER_MAX, (first) => first);
  #unsent: readonly LazyTrace[] = [];

  add(step: number, make: () => TraceView): void {
    let made: TraceView | undefined;
    const trace = { step, view: () => made ??= make() };
    this.#newest.push(trace);
    if (this.#newest.length > NEWEST_MAX) this.#earlier.add(this.#newest.shift()!);
    this.#unsent = [...this.#unsent, trace].slice(-NEWEST_MAX);
  }

  /** Returns new traced steps, and the steps of all kept ones, in order. */
  all(added?: readonly LazyTrace[]) {
    const kept = [...this.#earlier.entries, ...this.#newest];
    return { kept: kept.map(({ step }) => step), added: (added ?? kept).map(({ view }) => view()) };
  }

  /** Returns the traces since the last call. */
  updates() {
    const added = this.#unsent;
    this.#unsent = [];
    return added.length > 0 ? this.all(added) : undefined;
  }
}

/** Limit of rows for a page, above the pixels of its curves. */
const ROWS_MAX = 4000;
const EVENTS_MAX = 200;

const newer = (_: Metrics, second: Metrics) => second;

/** Returns the row of a step, whose records are each of a job if the run has jobs. */
function stepRow(row: Metrics): StepRow {
  const { job, loss, tokensPerSecond, gradNorm, learningRate } = row;
  return job === undefined
    ? row
    : { ...row, jobs: { [job]: { loss, tokensPerSecond, gradNorm, learningRate } } };
}

function mergeJobs(last: StepRow, row: StepRow): StepRow | undefined {
  if (!last.jobs || !row.jobs || last.step !== row.step) return undefined;
  const jobs = { ...last.jobs, ...row.jobs }, all = Object.values(jobs);
  const sumOf = (key: "loss" | "tokensPerSecond") =>
    all.reduce((sum, one) => sum + (one[key] ?? NaN), 0);
  const loss = sumOf("loss") / all.length, tokensPerSecond = sumOf("tokensPerSecond");
  return { ...row, jobs, loss, tokensPerSecond };
}

/** State of a run for pages. */
export class RunView {
  #run: RunFacts | undefined;
  #status: StatusView = { status: "starting", step: 0, steps: 0 };
  #workers: readonly WorkerView[] = [];
  #unsent = new Set<"run" | "status" | "workers">();
  readonly #lists = {
    metrics: new UnsentList(new ThinnedList<StepRow>(ROWS_MAX, newer, mergeJobs)),
    evaluations: new UnsentList(new ThinnedList(ROWS_MAX, newer)),
    events: new UnsentList(new RecentList<EventView>(EVENTS_MAX)),
    traces: new TraceList(),
  };

  /** Sets the run and its status. */
  begin(run: RunFacts, status: StatusView): void {
    this.#run = run;
    this.#workers = run.workers.map((_, i) => this.#workers[i] ?? { restarts: 0 });
    this.#unsent.add("run").add("workers");
    this.setStatus(status);
  }

  /** Changes the status. */
  setStatus(status: Partial<StatusView>): void {
    this.#status = { ...this.#status, ...status };
    this.#unsent.add("status");
  }

  /** Adds a step or an evaluation. */
  addMetrics(row: Metrics): void {
    if (row.type === "evaluation") return this.#lists.evaluations.add(row);
    this.#lists.metrics.add(stepRow(row));
    this.setStatus({ step: row.step });
    const { memory } = row;
    if (memory) this.#changeWorkers((worker, i) => ({ ...worker, memoryBytes: memory[i] ?? NaN }));
  }

  /** Adds a traced step, whose view is made when a page needs it. */
  addTrace(step: number, make: () => TraceView): void {
    this.#lists.traces.add(step, make);
  }

  /** Adds an event. */
  addEvent(event: EventView): void {
    this.#lists.events.add(event);
    const lost = event.kind === "failure" ? event.worker : undefined;
    if (lost === undefined) return;
    this.#changeWorkers((worker, i) =>
      i === lost ? { ...worker, restarts: worker.restarts + 1 } : worker
    );
  }

  /** Returns the whole state. */
  all() {
    const { metrics, evaluations, events, traces } = this.#lists;
    return {
      ...this.#run && { run: this.#run },
      status: this.#status,
      /** Memory and restarts of each worker. */
      workers: this.#workers,
      /** Steps and losses on held-out data, thinned out if there are many. */
      ...{ metrics: metrics.all(), evaluations: evaluations.all() },
      /** The last failures, joined workers, checkpoints and resumptions. */
      events: events.all(),
      traces: traces.all(),
    };
  }

  /** Returns the changes since the last call, if any. */
  updates(): Updates | undefined {
    const records = { run: this.#run, status: this.#status, workers: this.#workers };
    const changes = [
      ...Object.entries(records).filter(([name]) => this.#unsent.has(name as "run")),
      ...Object.entries(this.#lists).map(([name, list]) => [name, list.updates()] as const),
    ].filter(([, change]) => change !== undefined);
    this.#unsent = new Set();
    return changes.length > 0 ? Object.fromEntries(changes) : undefined;
  }

  #changeWorkers(change: (worker: WorkerView, i: number) => WorkerView): void {
    this.#workers = this.#workers.map(change);
    this.#unsent.add("workers");
  }
}

/** Context of traced steps. */
export interface TraceContext {
  /** Schedule of one data-parallel replica; undefined if unknown. */
  readonly schedule: Schedule | undefined;
  /** Data-parallel replicas. */
  readonly replicas: number;
}

/** A traced step. */
export type TraceView = ReturnType<typeof traceView>;

/** Makes the view of a traced step. */
export function traceView(
  step: number,
  traces: readonly (readonly TracedAction[])[],
  { schedule, replicas }: TraceContext,
) {
  if (traces.flat().length > ACTIONS_MAX) return { step, length: 0, workers: [], expected: [] };
  const { start, end, workers } = readStep(traces, replicas);
  return {
    step,
    /** Milliseconds from the first start to the last end. */
    length: microseconds(end - start),
    workers: workers.map((worker) => workerStep(worker, start)),
    /** Expected actions of each worker, at the mean costs of this step. */
    expected: schedule ? expectedSpans(schedule, traces) : [],
  };
}

/** A worker in a step; times are in milliseconds. */
export type WorkerStep = ReturnType<typeof workerStep>;

function workerStep(worker: WorkerTimeline, startMs: number) {
  const { spans, gaps, busyMs, reduceMs, optimizerMs } = worker;
  const sinceStart = (time: number) => microseconds(time - startMs);
  const waiting = spans.flatMap(({ waiting }) => waiting ?? []);
  return {
    /** Actions in order. */
    spans: spans.map((span): Span => [nameOf(span), sinceStart(span.start), sinceStart(span.end)]),
    gaps: gaps.map(({ start, end, cause }): Gap => [sinceStart(start), sinceStart(end), cause]),
    busy: microseconds(busyMs),
    /** Of the all-reduce and the optimizer. */
    update: microseconds(reduceMs + optimizerMs),
    forwards: spans.flatMap(({ actions }) => actions).filter(({ kind }) => kind === "F").length,
    /** Maximum number of data messages in its mailbox. */
    ...waiting.length > 0 && { mailbox: waiting.reduce((most, one) => Math.max(most, one)) },
  };
}

/** Appends the chunk of an all-reduce, or the bucket of the optimizer. */
function nameOf({ name, chunk, bucket }: TracedAction): string {
  if (chunk !== undefined) return `${name}, chunk ${chunk}`;
  return bucket === undefined ? name : `${name}, bucket ${bucket}`;
}

/** Rounds milliseconds to microseconds, the resolution of clocks. */
const microseconds = (ms: number) => Math.round(ms * 1000) / 1000;

/** Limits of a page for rows and characters of files. */
const TABLE_ROWS_MAX = 200, TEXT_MAX = 500;

/** Makes the tables of a record. */
function tablesOf(record: RunRecord) {
  const { model, started, data, schedule, plan, starts, flags } = record;
  const last = starts.at(-1), { environment } = last ?? {};
  const stages = plan.stages.map(({ stage, workers, layers, parameters, costShare }) => {
    const work = `${count(parameters, "parameter")}, ${(100 * costShare).toFixed(0)} % of the work`;
    return [`stage ${stage}`, `${layers.join(", ")} on worker ${workers.join(", ")}: ${work}`];
  });
  return [
    tableOf("Run", {
      ...last?.script === undefined
        ? { command: last && commandLine("train", ...last.command.map(shellWord)) }
        : { script: last.script },
      model: `${model}, ${count(plan.parameters, "parameter")}`,
      data: withHash(data),
      schedule: withHash(schedule),
      started,
      ...last?.from !== undefined && { "resumed from": last.from },
    }),
    tableOf("Plan", Object.fromEntries(stages)),
    tableOf("Environment", { ...environment }),
    tableOf("Flags", flags),
  ];
}

const withHash = ({ name, hash }: { readonly name: string; readonly hash?: string }) =>
  hash === undefined ? name : `${name}, ${hash.slice(0, 12)}`;

/** Makes a table of names and values. */
function tableOf(title: string, values: Readonly<Record<string, unknown>>) {
  const rows = Object.entries(values)
    .filter(([, value]) => value !== undefined && value !== null)
    .slice(0, TABLE_ROWS_MAX)
    .map(([name, value]) => [shortened(name), shortened(textOf(value))] as const);
  return { title, rows };
}

const textOf = (value: unknown) => typeof value === "string" ? value : JSON.stringify(value) ?? "";

const shortened = (text: string) => text.length > TEXT_MAX ? `${text.slice(0, TEXT_MAX)}…` : text;

/** Returns the kinds of actions that workers run; all of them if the schedule is unknown. */
function kindsOf(schedule: Schedule | undefined): readonly ActionKind[] {
  if (!schedule) return KINDS;
  const { lists } = schedule, isSplit = splitsBackward(schedule);
  const listed = lists?.flatMap((list) => Array.from(list, ({ kind }) => kind));
  const used = new Set([...listed ?? (isSplit ? "F" : "FB"), ...isSplit ? "IW" : ""]);
  return KINDS.filter((kind) => used.has(kind));
}

/** Units of predictions of built-in models. */
const UNITS: ReadonlyMap<string, string> = new Map([
  ["gpt", "tokens"],
  ["llama", "tokens"],
  ["mlp", "samples"],
]);

/** Properties of a run that do not change. */
export type RunFacts = ReturnType<typeof runFacts>;

/**
 * Makes the facts of a run.
 *
 * @param schedule undefined if it is unknown; then stages are those of the recorded plan.
 * @param directory folder of the run, if it has one.
 */
export function runFacts(
  record: RunRecord,
  schedule: Schedule | undefined,
  directory: string | undefined,
) {
  const { model, plan: { replicas, stages } } = record;
  const { pipelineOf = [0] } = schedule ?? {};
  const holders = schedule ? heldIn(schedule) : heldStages(stages);
  return {
    /** The folder or the model. */
    title: directory ?? model,
    /** Unit of predictions: tokens, samples or predictions. */
    unit: UNITS.get(model) ?? "predictions",
    /** Unit of the loss, if it is known. */
    lossUnit: lossUnit(record),
    // The command that shows the run again.
    ...directory !== undefined && { command: commandLine("dashboard", shellWord(directory)) },
    /** Workers by number: those of the first data-parallel replica first. */
    workers: Array.from(
      { length: replicas },
      (_, replica) => holders.map((stages) => ({ replica, stages })),
    ).flat().slice(0, WORKERS_MAX),
    /** Pipeline of each micro-batch of a replica. */
    pipelineOf,
    /** Fill and text colours of an action by kind, stage and pipeline, such as `F2.0`. */
    inks: Object.fromEntries(inksOf(kindsOf(schedule), stages.length, Math.max(...pipelineOf) + 1)),
    tables: tablesOf(record),
  };
}

/** Returns the stages of each worker of a data-parallel replica. */
const heldIn = ({ placement }: Schedule): number[][] =>
  placement.map((held) => [...new Set(held.map(({ stage }) => stage))].sort((a, b) => a - b));

function* inksOf(kinds: readonly ActionKind[], stages: number, pipelines: number) {
  for (const kind of kinds) {
    for (let stage = 0; stage < stages; stage++) {
      for (let pipeline = 0; pipeline < pipelines; pipeline++) {
        const { fill, text } = inkOf(kind, { stage, stages, pipeline, pipelines });
        yield [`${kind}${stage}.${pipeline}`, [fill, text]] as const;
      }
    }
  }
}
