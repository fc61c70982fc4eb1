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

import type { Metrics } from "../../actors/run/metrics/metrics.ts";
import type { TrainEvent } from "../../actors/run/train_event.ts";
import { BoundedFile } from "./bounded_file.ts";
import type { ChromeEvent } from "./chrome_event.ts";
import { moment } from "./chrome_events.ts";
import { openRunEvents, type StepRange } from "./run_events.ts";

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
