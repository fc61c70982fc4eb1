/**
 * The steps that the folder of a run keeps, as a trace.
 *
 * @module
 */

import { join } from "node:path";
import { quoted } from "../escape.ts";
import { readRun } from "../run_files/read_run.ts";
import { RUN_FILES } from "../run_files/run_record.ts";
import type { TraceReader } from "./read_trace.ts";
import { readTimeline, type TimelineRecord } from "./timeline_file.ts";

/**
 * Opens the timeline of a run.
 *
 * @throws {RangeError} when there is no run, or it keeps no step.
 * @throws {SyntaxError} when its files say something else.
 */
export async function openRunTrace(named: string): Promise<TraceReader> {
  const { path, record } = await readRun(named), file = join(path, RUN_FILES.timeline);
  const steps = () => readTimeline(file).map(({ record }) => record).filter(isStep);
  const [first] = steps().take(1);
  if (!record || !first || first.traces.length % record.plan.replicas !== 0) {
    throw new RangeError(
      `Cannot sum up ${quoted(path)}: its run must have --trace or --dashboard, received no steps`,
    );
  }
  const { model, plan: { schedule, runtime, replicas } } = record, workers = first.traces.length;
  return {
    head: { model, schedule, runtime, replicas, workers, began: 0 },
    steps: steps().filter(({ traces }) => traces.length === workers),
  };
}

type Step = Extract<TimelineRecord, { type: "step" }>;

const isStep = (record: TimelineRecord): record is Step => record.type === "step";
