/**
 * Dashboards of runs: live, with `--dashboard`, and from the folder of a run.
 *
 * @module
 */

import { join } from "node:path";
import type { TrainEvent } from "../../actors/options/train_events.ts";
import type { Metrics } from "../../actors/options/train_options.ts";
import { readMetrics, RUN_FILES, type RunRecord } from "../../actors/run_folder/metrics_file.ts";
import { readRun, type RunFolder } from "../../actors/run_folder/read.ts";
import { resultOr } from "../../actors/runtime/types.ts";
import { reasonOf, recordOf, type RunFacts } from "../../actors/run_folder/write.ts";
import { eventIn, readTimeline } from "../run_files/timeline_file.ts";
import { ensure, printError, quoted } from "../terminal.ts";
import type { RunPlace, TrainRequest } from "../train/request.ts";
import {
  endedStatus,
  eventView,
  recordedSchedule,
  runFacts,
  RunView,
  type StatusView,
  type TraceContext,
  traceView,
  type Updates,
} from "./view.ts";
import { serveDashboard } from "./serve.ts";

/** Minimum interval between reads of the files. */
const READ_EVERY_MS = 1000;

/**
 * Opens the view of a run's folder, which reads additions to its files when a page asks for them.
 *
 * @param named path of the folder, or its name below `runs/`.
 * @throws {RangeError} {@linkcode SyntaxError} when there is no run, or its files are invalid.
 */
export async function followRun(named: string): Promise<FollowedRun> {
  return new FollowedRun(await readRun(named));
}

/** The view of a run's folder. */
class FollowedRun {
  #reading: RunReading;
  readonly #path: string;
  #isNew = false;
  #isBroken = false;
  #isReading = false;
  #readAt = performance.now();

  constructor(folder: RunFolder) {
    this.#path = folder.path;
    this.#reading = new RunReading(folder);
    this.#reading.read(folder);
  }

  /** Returns the whole state. */
  all() {
    this.#read();
    return this.#reading.view.all();
  }

  /** Returns the changes since the last call, if any. */
  updates(): Updates | undefined {
    this.#read();
    if (!this.#isNew) return this.#reading.view.updates();
    this.#isNew = false;
    return this.#reading.view.all();
  }

  async #read(): Promise<void> {
    const isDue = performance.now() - this.#readAt >= READ_EVERY_MS;
    if (this.#isReading || !isDue) return;
    this.#isReading = true;
    try {
      const folder = await readRun(this.#path), before = this.#reading;
      const isOther = startOf(folder) !== before.start || before.isCut(folder);
      const reading = isOther || this.#isBroken ? new RunReading(folder) : before;
      reading.read(folder);
      this.#reading = reading;
      this.#isNew ||= reading !== before;
      this.#isBroken = false;
    } catch (error) {
      // The folder may be removed, and made again by the run.
      this.#isBroken = true;
      this.#reading.view.setStatus({ note: (error as Error).message });
    }
    this.#readAt = performance.now();
    this.#isReading = false;
  }
}

/** Identifies the last start or resumption of a run. */
const startOf = ({ record }: RunFolder) => `${record?.started} ${record?.starts.length}`;

/** The files of a run since its last start. */
class RunReading {
  readonly view: RunView = new RunView();
  readonly start: string;
  readonly #context: TraceContext;
  /** Offsets of unread lines in bytes. */
  #metricsEnd = 0;
  #timelineEnd = 0;

  constructor(folder: RunFolder) {
    const { path, record } = folder;
    const must = `it must have a ${RUN_FILES.record}`;
    ensure(record, `show the run ${quoted(path)}`, must, "checkpoints only", RangeError);
    const schedule = recordedSchedule(record);
    this.start = startOf(folder);
    this.#context = { schedule, replicas: record.plan.replicas };
    this.view.begin(runFacts(record, schedule, path), statusOf(folder, record));
  }

  /** Returns whether a file is shorter than the part of it that was read. */
  isCut({ path }: RunFolder): boolean {
    const sizeOf = (name: string) => resultOr(() => Deno.statSync(join(path, name)).size, Infinity);
    return sizeOf(RUN_FILES.metrics) < this.#metricsEnd ||
      sizeOf(RUN_FILES.timeline) < this.#timelineEnd;
  }

  /** Reads new lines of the files. */
  read(folder: RunFolder): void {
    const { path, record } = folder, context = this.#context;
    for (const { metrics, end } of readMetrics(path, this.#metricsEnd)) {
      this.view.addMetrics(metrics);
      this.#metricsEnd = end;
    }
    const timeline = join(path, RUN_FILES.timeline);
    for (const { record, end } of readTimeline(timeline, this.#timelineEnd)) {
      if (record.type === "step") {
        const { step, traces } = record;
        this.view.addTrace(step, () => traceView(step, traces, context));
      } else this.view.addEvent(eventView(record));
      this.#timelineEnd = end;
    }
    const { step: _, ...status } = statusOf(folder, record!);
    this.view.setStatus(status);
  }
}

function statusOf({ isRunning }: RunFolder, { end, flags, starts }: RunRecord): StatusView {
  const steps = Number.isSafeInteger(flags.steps) ? flags.steps as number : 0;
  const step = end?.step ?? starts.at(-1)?.afterStep ?? 0;
  if (isRunning) return { status: "running", step, steps };
  if (end) return { ...endedStatus(end.reason), step, steps };
  const note = "Its program has ended without a reason: it failed or was killed.";
  return { status: "gone", note, step, steps };
}

/** Minimum interval between kept traces, as steps may be fast. */
const TRACE_EVERY_MS = 250;

/** A run with a dashboard. */
interface WatchedRun {
  readonly request: TrainRequest;
  readonly facts: RunFacts;
  /** Its folder, if it has one. */
  readonly place: RunPlace | undefined;
}

/** The dashboard of a running run; disposing of it ends the updates of pages. */
export class RunDashboard implements AsyncDisposable {
  readonly #view = new RunView();
  readonly #context: TraceContext;
  readonly #dashboard: ReturnType<typeof serveDashboard>;
  #tracedAt = -Infinity;
  /** Adds the last traced step, if it was too early for it. */
  #addLast: (() => void) | undefined;

  /**
   * Serves the dashboard; its address is printed when the run starts.
   *
   * @throws {RangeError} when the port is taken.
   */
  constructor(private readonly run: WatchedRun) {
    const { flags, schedule } = run.request;
    this.#context = { schedule, replicas: flags.replicas };
    this.#dashboard = serveDashboard(this.#view, flags["dashboard-port"]);
  }

  /** Adds metrics. */
  metrics(metrics: Metrics): void {
    this.#view.addMetrics(metrics);
  }

  /** Forwards the events of the run, and shows them. */
  async *watch(events: AsyncIterable<TrainEvent>): AsyncGenerator<TrainEvent, void> {
    try {
      for await (const event of events) {
        this.#see(event);
        yield event;
        // After the plan was accepted.
        if (event.type === "plan") printError(`Dashboard: ${this.#dashboard.url}`);
      }
    } catch (error) {
      this.#addLast?.();
      const note = error instanceof Error ? error.message : String(error);
      this.#view.setStatus({ status: "failed", note });
      throw error;
    }
  }

  /** Serves the page until the signal is aborted. */
  async stay(signal: AbortSignal): Promise<void> {
    printError(`The dashboard stays until Ctrl-C: ${this.#dashboard.url}`);
    await this.#dashboard.stay(signal);
  }

  [Symbol.asyncDispose](): PromiseLike<void> {
    return this.#dashboard[Symbol.asyncDispose]();
  }

  #see(event: TrainEvent): void {
    const { request: { flags: { steps }, schedule, checkpoint }, facts, place } = this.run;
    switch (event.type) {
      case "plan": {
        const record = recordOf({ facts, schedule, resume: checkpoint }, event.plan, undefined);
        const status = { status: "running", step: checkpoint?.step ?? 0, steps } as const;
        return this.#view.begin(runFacts(record, schedule, place?.directory), status);
      }
      case "step":
        return this.#addTrace(event);
      case "checkpoint":
        return this.#view.addEvent(eventView(eventIn(event)!, event.path));
      case "failure":
      case "resize":
        return this.#view.addEvent(eventView(eventIn(event)!));
      case "end":
        this.#addLast?.();
        return this.#view.setStatus(endedStatus(reasonOf(event)));
    }
  }

  #addTrace({ step, traces }: Extract<TrainEvent, { readonly type: "step" }>): void {
    if (traces.length === 0) return;
    const add = () => this.#view.addTrace(step, () => traceView(step, traces, this.#context));
    this.#addLast = add;
    if (performance.now() - this.#tracedAt < TRACE_EVERY_MS) return;
    this.#tracedAt = performance.now();
    add();
    this.#addLast = undefined;
  }
}
