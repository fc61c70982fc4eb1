/**
 * One traced step as the page draws it: what each worker did when, when it did nothing and why.
 *
 * @module
 */

import type { Metrics } from "../../actors/options/train_options.ts";
import type { TracedAction } from "../../actors/pipeline/step.ts";
import { readStep, type WorkerTimeline } from "../../actors/run/timeline.ts";
import type { Schedule } from "../../schedules/mod.ts";
import type { RunEnd } from "../run_files/metrics_file.ts";
import { ACTIONS_MAX, plannedSpans } from "./planned.ts";
import type {
  EventView,
  News,
  RunFacts,
  StatusView,
  Tail,
  TracesNews,
  TraceView,
  WorkerStep,
  WorkerView,
} from "./state.ts";

/** A list that grows, and now and then loses entries that it had. */
interface BoundedList<T> {
  /** Those that are there, in order; the newest is the last. */
  readonly entries: readonly T[];
  /** Adds an entry; returns the place from which on the list is another. */
  add(entry: T): number;
}

/**
 * Opens a list of at most `most` entries. When it would have more, one of each pair of neighbours
 * goes, and from then on an entry stands for twice as many of those that come.
 *
 * @param choose which of two neighbours stays.
 */
export function openThinnedList<T>(
  most: number,
  choose: (first: T, second: T) => T,
): BoundedList<T> {
  let entries: T[] = [];
  // Each entry stands for so many; the last for `standsFor` until it stands for as many.
  let stride = 1, standsFor = 1;
  return {
    get entries() {
      return entries;
    },
    add(entry) {
      if (standsFor < stride) {
        standsFor++;
        entries.push(choose(entries.pop()!, entry));
        return entries.length - 1;
      }
      standsFor = 1;
      if (entries.push(entry) <= most) return entries.length - 1;
      const last = entries.pop()!;
      entries = Array.from(
        { length: Math.floor(entries.length / 2) },
        (_, i) => choose(entries[2 * i]!, entries[2 * i + 1]!),
      );
      entries.push(last);
      stride *= 2;
      return 0;
    },
  };
}

/** Opens a list of at most `most` entries that loses the older half when it would have more. */
export function openRecentList<T>(most: number): BoundedList<T> {
  let entries: T[] = [];
  return {
    get entries() {
      return entries;
    },
    add(entry) {
      if (entries.push(entry) <= most) return entries.length - 1;
      entries = entries.slice(-Math.ceil(most / 2));
      return 0;
    },
  };
}

/** A list of which some is not told yet. */
interface ToldList<T> {
  /** Adds an entry. */
  add(entry: T): void;
  /** The whole list. */
  all(): Tail<T>;
  /** What has changed since it was asked last. */
  news(): Tail<T> | undefined;
}

/** Keeps in mind what of a list has not been told. */
function openToldList<T>(list: BoundedList<T>): ToldList<T> {
  let untold = Infinity;
  const tail = (from: number) => ({ from, entries: list.entries.slice(from) });
  return {
    add: (entry) => void (untold = Math.min(untold, list.add(entry))),
    all: () => tail(0),
    news() {
      const from = untold;
      untold = Infinity;
      return from === Infinity ? undefined : tail(from);
    },
  };
}

/** How it stands, and why, where that is not told by its steps. */
export function endedStatus(reason: RunEnd["reason"]): Pick<StatusView, "status" | "note"> {
  if (reason === "interrupted") return { status: reason };
  if (reason !== "stopped early") return { status: "finished" };
  return { status: "finished", note: "Stopped early: the held-out loss fell no more." };
}

/** What is told of it. */
type Told =
  | { readonly type: "failure"; step: number; time: number; actor: string; reason: string }
  | { readonly type: "checkpoint" | "resumed"; step: number; time: number };

/**
 * Makes the view of an event.
 *
 * @param text what there is to say of one that has no reason.
 */
export function eventView(event: Told, text = ""): EventView {
  const { type: kind, step, time } = event;
  if (event.type !== "failure") return { kind, step, time, text };
  const [number] = /\d+$/.exec(event.actor) ?? [];
  return {
    ...{ kind, step, time, text: event.reason },
    ...number !== undefined && { worker: Number(number) },
  };
}

const NEWEST_MAX = 8;
const EARLIER_MAX = 16;

/** A traced step, made when it is first wanted. */
interface KeptTrace {
  readonly step: number;
  readonly make: () => TraceView;
}

/** Traced steps. */
interface KeptTraces {
  /** Adds one, which is made when somebody looks. */
  add(step: number, make: () => TraceView): void;
  /** All of them. */
  all(): TracesNews;
  /** Those that have come since it was asked last. */
  news(): TracesNews | undefined;
}

/** Opens a list of none. */
function openKeptTraces(): KeptTraces {
  const newest: KeptTrace[] = [];
  const earlier = openThinnedList<KeptTrace>(EARLIER_MAX, (first) => first);
  let untold: readonly KeptTrace[] = [];
  const kept = () => [...earlier.entries, ...newest];
  const tell = (added: readonly KeptTrace[]): TracesNews => ({
    kept: kept().map(({ step }) => step),
    added: added.map(({ make }) => make()),
  });
  return {
    add(step, make) {
      const trace = { step, make: once(make) };
      newest.push(trace);
      if (newest.length > NEWEST_MAX) earlier.add(newest.shift()!);
      untold = [...untold, trace].slice(-NEWEST_MAX);
    },
    all: () => tell(kept()),
    news() {
      const added = untold;
      untold = [];
      return added.length > 0 ? tell(added) : undefined;
    },
  };
}

function once<T>(make: () => T): () => T {
  let made: T | undefined;
  return () => made ??= make();
}

/** Rows that a page gets: more than its curves have pixels. */
const ROWS_MAX = 4000;
const EVENTS_MAX = 200;

/** What pages show. */
export interface RunView {
  /** What the run is, and how it stands. */
  begin(run: RunFacts, status: StatusView): void;
  /** How it stands now. */
  stand(status: Partial<StatusView>): void;
  /** A step, or an evaluation. */
  addMetrics(row: Metrics): void;
  /** A traced step, which is made when somebody looks. */
  addTrace(step: number, make: () => TraceView): void;
  /** Something that happened beside the steps. */
  addEvent(event: EventView): void;
  /** All of it. */
  all(): News;
  /** What has changed since it was asked last; undefined if nothing has. */
  news(): News | undefined;
}

/** Opens a view with nothing in it. */
export function openRunView(): RunView {
  let run: RunFacts | undefined, status: StatusView = { status: "starting", step: 0, steps: 0 };
  let workers: readonly WorkerView[] = [], untold = new Set<keyof News>();
  const newer = (_: Metrics, second: Metrics) => second;
  const metrics = openToldList(openThinnedList(ROWS_MAX, newer));
  const evaluations = openToldList(openThinnedList(ROWS_MAX, newer));
  const events = openToldList(openRecentList<EventView>(EVENTS_MAX));
  const traces = openKeptTraces();
  const changeWorkers = (change: (worker: WorkerView, i: number) => WorkerView) => {
    workers = workers.map(change);
    untold.add("workers");
  };
  const stand = (stands: Partial<StatusView>) => {
    status = { ...status, ...stands };
    untold.add("status");
  };
  return {
    begin(facts, stands) {
      run = facts;
      workers = facts.workers.map((_, i) => workers[i] ?? { restarts: 0 });
      untold.add("run").add("workers");
      stand(stands);
    },
    stand,
    addMetrics(row) {
      if (row.type === "evaluation") return evaluations.add(row);
      metrics.add(row);
      stand({ step: row.step });
      const { memory } = row;
      if (memory) changeWorkers((worker, i) => ({ ...worker, memoryBytes: memory[i] ?? NaN }));
    },
    addTrace: traces.add,
    addEvent(event) {
      events.add(event);
      const lost = event.kind === "failure" ? event.worker : undefined;
      if (lost === undefined) return;
      changeWorkers((worker, i) =>
        i === lost ? { ...worker, restarts: worker.restarts + 1 } : worker
      );
    },
    all: () => ({
      ...run && { run },
      status,
      workers,
      metrics: metrics.all(),
      evaluations: evaluations.all(),
      events: events.all(),
      traces: traces.all(),
    }),
    news() {
      const facts = { run, status, workers };
      const parts = Object.entries({
        ...Object.fromEntries(Object.entries(facts).filter(([name]) => untold.has(name as "run"))),
        metrics: metrics.news(),
        evaluations: evaluations.news(),
        events: events.news(),
        traces: traces.news(),
      }).filter(([, part]) => part !== undefined);
      untold = new Set();
      return parts.length > 0 ? Object.fromEntries(parts) : undefined;
    },
  };
}

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
