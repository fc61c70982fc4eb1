/**
 * `timeline.jsonl`: the traced steps of a run and what befell it, a line each, beside its metrics.
 *
 * [Note: sampled] The file is to stay small however long the run is, and to tell of its end as of its
 * beginning. So when the first step has shown how much a step is, each nth step is written, such that
 * all fit; the last is, too. What happens beside steps is always written, as long as there is room.
 *
 * @module
 */

import type { TracedAction } from "../../actors/mod.ts";
import type { TrainEvent } from "../../actors/run/train_event.ts";
import { WORKERS_MAX } from "../../actors/run/options/sizes.ts";
import { checkInputFile } from "../../kernels/mod.ts";
import { inOneLine } from "../escape.ts";
import { LINE_BYTES_MAX, readJsonLines } from "../run_files/json_lines.ts";
import { BoundedFile } from "./bounded_file.ts";
import { isCount, isTime, readTraced } from "./traced_action.ts";

/** Something of a run, as a line of its timeline says it. */
export type TimelineRecord =
  /** What the workers did in a step. */
  | {
    readonly type: "step";
    readonly step: number;
    readonly traces: readonly (readonly TracedAction[])[];
  }
  /** A worker was lost before this step ended. */
  | {
    readonly type: "failure";
    readonly step: number;
    readonly time: number;
    readonly actor: string;
    readonly reason: string;
  }
  /** A checkpoint was written. */
  | { readonly type: "checkpoint"; readonly step: number; readonly time: number }
  /** The run went on, after this step. */
  | { readonly type: "resumed"; readonly step: number; readonly time: number };

/** The timeline of a run under way. */
export interface TimelineFile extends Disposable {
  /** Something has happened. */
  see(event: TrainEvent): void;
}

/** What a timeline is of. */
export interface TimelineOptions {
  /** The file. */
  readonly path: string;
  /** The step at which the run is to end. */
  readonly steps: number;
  /** The step after which it goes on in a file that is there; undefined for a new one. */
  readonly goesOnAfter?: number | undefined;
  /** The most bytes of the file. Default {@linkcode TIMELINE_BYTES}. */
  readonly bytesMax?: number | undefined;
  /** Told why nothing more is written; the run goes on. */
  readonly announce: (line: string) => void;
}

/** Default bound of a timeline. */
const TIMELINE_BYTES: number = 32 * 2 ** 20;

/** Room that steps leave to all else. */
const OTHER_BYTES = 2 ** 20;

/**
 * Begins a timeline, or goes on with one: what it says of later steps is cut off.
 *
 * @throws {RangeError} when it cannot be written.
 * @throws {SyntaxError} when what is gone on with is none.
 */
export function openTimeline(options: TimelineOptions): TimelineFile {
  const { path, steps, goesOnAfter, bytesMax = TIMELINE_BYTES, announce } = options;
  const size = goesOnAfter === undefined ? 0 : sizeUpTo(path, goesOnAfter);
  const file = new BoundedFile({ path, what: "the timeline", bytesMax, announce }, size);
  const stepBytes = bytesMax - Math.min(OTHER_BYTES, bytesMax / 4);
  let first: number | undefined, stride = 1;
  const add = (record: TimelineRecord, leaving = 0) => {
    const line = JSON.stringify(record.type === "step" ? packed(record) : record, rounded) + "\n";
    // A step with more than ten thousand actions is one that nobody draws.
    if (line.length <= LINE_BYTES_MAX) file.add(line, leaving);
  };
  const addStep = (step: number, traces: readonly (readonly TracedAction[])[]) => {
    if (traces.every((trace) => trace.length === 0)) return;
    if (first !== undefined && (step - first) % stride > 0 && step < steps) return;
    const before = file.size;
    add({ type: "step", step, traces }, bytesMax - stepBytes);
    if (first !== undefined) return;
    first = step;
    const bytes = file.size - before, room = Math.max(1, stepBytes - file.size);
    stride = Math.max(1, Math.ceil(bytes * (steps - step) / room));
  };
  if (goesOnAfter !== undefined) add({ type: "resumed", step: goesOnAfter, time: Date.now() });
  return {
    see(event) {
      if (event.type === "step" || event.type === "skip") addStep(event.step, event.traces);
      if (event.type === "failure") add(event);
      if (event.type === "checkpoint") {
        add({ type: event.type, step: event.step, time: Date.now() });
      }
    },
    [Symbol.dispose]: () => file[Symbol.dispose](),
  };
}

/** Times to a microsecond: no clock is finer, and more would be longer. */
const rounded = (key: string, value: unknown) =>
  typeof value === "number" && TIMES.includes(key) ? Math.round(value * 1000) / 1000 : value;

const TIMES: readonly string[] = ["start", "end", "arrived", "sent"];

/** A step whose times of actions count from the first of them. */
function packed({ type, step, traces }: Extract<TimelineRecord, { type: "step" }>) {
  const time = traces.flat().reduce((first, { start }) => Math.min(first, start), Infinity);
  return { type, step, time, traces: traces.map((trace) => trace.map((one) => shift(one, -time))) };
}

const shift = ({ start, end, arrived, sent, ...rest }: TracedAction, by: number): TracedAction => ({
  ...rest,
  start: start + by,
  end: end + by,
  ...arrived !== undefined && { arrived: arrived + by },
  ...sent !== undefined && { sent: sent + by },
});

/** Bytes of the lines up to a step. */
function sizeUpTo(path: string, step: number): number {
  let size = 0;
  for (const { record, end } of readTimeline(path)) {
    if (record.step > step) break;
    size = end;
  }
  return size;
}

/**
 * Reads the lines of a timeline, which may be a stranger's and may be growing. Nothing where there
 * is none.
 *
 * @param from where the first line begins, in bytes.
 * @throws {SyntaxError} naming a line that says something else.
 * @throws {TypeError} when it is no file, or is larger than any.
 */
export function* readTimeline(
  path: string,
  from = 0,
): Generator<{ readonly record: TimelineRecord; readonly end: number }, void> {
  try {
    checkInputFile(path, 2 * TIMELINE_BYTES);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return;
    throw error;
  }
  using file = Deno.openSync(path);
  for (const { record, end } of readJsonLines(file, path, from)) {
    const read = recordOf(record);
    if (!read) {
      throw new SyntaxError(
        `Cannot read ${
          inOneLine(path)
        }: each line must be a step or an event, received something else before byte ${end}`,
      );
    }
    yield { record: read, end };
  }
}

function recordOf(record: Readonly<Record<string, unknown>>): TimelineRecord | undefined {
  const { type, step, time, traces, actor, reason } = record;
  if (!isCount(step) || !isTime(time)) return undefined;
  switch (type) {
    case "checkpoint":
    case "resumed":
      return { type, step, time };
    case "failure":
      if (typeof actor !== "string" || typeof reason !== "string") return undefined;
      return { type, step, time, actor, reason };
    case "step": {
      if (!Array.isArray(traces) || traces.length > WORKERS_MAX) return undefined;
      const read = traces.map((trace) => Array.isArray(trace) ? trace.map(readTraced) : undefined);
      const isWhole = (trace: (TracedAction | undefined)[] | undefined): trace is TracedAction[] =>
        trace?.every((one) => one !== undefined) ?? false;
      if (!read.every(isWhole)) return undefined;
      return { type, step, traces: read.map((trace) => trace.map((one) => shift(one, time))) };
    }
  }
}
