/**
 * The view of a run under way, event by event.
 *
 * @module
 */

import { join } from "node:path";
import type { Metrics } from "../../actors/options/train_options.ts";
import type { TrainEvent } from "../../actors/run/events.ts";
import { readMetrics, RUN_FILES, type RunRecord } from "../run_files/metrics_file.ts";
import { readRun, type RunFolder } from "../run_files/read.ts";
import { readTimeline, type TimelineRecord } from "../run_files/timeline_file.ts";
import { reasonOf } from "../run_files/write.ts";
import { quoted } from "../terminal.ts";
import { runFacts } from "./facts.ts";
import { recordedSchedule } from "./planned.ts";
import type { News, StatusView } from "./state.ts";
import {
  endedStatus,
  eventView,
  openRunView,
  type RunView,
  type TraceContext,
  traceView,
} from "./view.ts";

/** Files are looked at so often, at most. */
const LOOK_EVERY_MS = 1000;

/** What pages are told of a folder. */
export type FollowedRun = Pick<RunView, "all" | "news">;

/** How far the files of a run have been read. */
interface Reading {
  readonly view: RunView;
  readonly context: TraceContext;
  /** What the run was when it was begun or gone on with the last time. */
  readonly start: string;
  /** In bytes. */
  metricsEnd: number;
  timelineEnd: number;
}

/**
 * Reads the folder of a run, and what is added to it whenever somebody looks.
 *
 * @param named its path, or its name below `runs/`.
 * @throws {RangeError} {@linkcode SyntaxError} when there is no run, or its files say something else.
 */
export async function followRun(named: string): Promise<FollowedRun> {
  const first = await readRun(named), { path } = first;
  let reading = beginReading(first), isAnew = false, problem: string | undefined;
  let lookedAt = performance.now(), isLooking = false;
  read(reading, first);
  const look = async () => {
    if (problem !== undefined || isLooking || performance.now() - lookedAt < LOOK_EVERY_MS) return;
    isLooking = true;
    try {
      const folder = await readRun(path);
      if (startOf(folder) !== reading.start) {
        reading = beginReading(folder);
        isAnew = true;
      }
      read(reading, folder);
    } catch (error) {
      problem = (error as Error).message;
      reading.view.stand({ note: problem });
    }
    lookedAt = performance.now();
    isLooking = false;
  };
  return {
    all() {
      look();
      return reading.view.all();
    },
    news(): News | undefined {
      look();
      if (!isAnew) return reading.view.news();
      isAnew = false;
      return reading.view.all();
    },
  };
}

/** What changes when a run is begun again in the same folder, or gone on with. */
const startOf = ({ record }: RunFolder) => `${record?.started} ${record?.starts.length}`;

function beginReading(folder: RunFolder): Reading {
  const { path, record } = folder;
  if (!record) {
    throw new RangeError(
      `Cannot show the run ${
        quoted(path)
      }: it must have a ${RUN_FILES.record}, received checkpoints alone`,
    );
  }
  const view = openRunView(), schedule = recordedSchedule(record);
  view.begin(runFacts(record, schedule, path), statusOf(folder, record));
  const context = { schedule, replicas: record.plan.replicas };
  return { view, context, start: startOf(folder), metricsEnd: 0, timelineEnd: 0 };
}

function read(reading: Reading, folder: RunFolder): void {
  const { view, context } = reading, { path } = folder;
  for (const { metrics, end } of readMetrics(path, reading.metricsEnd)) {
    view.addMetrics(metrics);
    reading.metricsEnd = end;
  }
  const timeline = join(path, RUN_FILES.timeline);
  for (const { record, end } of readTimeline(timeline, reading.timelineEnd)) {
    show(view, record, context);
    reading.timelineEnd = end;
  }
  const { step: _, ...status } = statusOf(folder, folder.record!);
  view.stand(status);
}

function show(view: RunView, record: TimelineRecord, context: TraceContext): void {
  if (record.type !== "step") return view.addEvent(eventView(record));
  const { step, traces } = record;
  view.addTrace(step, () => traceView(step, traces, context));
}

function statusOf({ isRunning }: RunFolder, { end, flags, starts }: RunRecord): StatusView {
  const steps = Number.isSafeInteger(flags.steps) ? flags.steps as number : 0;
  const step = end?.step ?? starts.at(-1)?.afterStep ?? 0;
  if (isRunning) return { status: "running", step, steps };
  return end ? { ...endedStatus(end.reason), step, steps } : {
    status: "gone",
    note: "Its program has ended without saying how: it failed, or was killed.",
    step,
    steps,
  };
}

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
