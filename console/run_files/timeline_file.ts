/**
 * `timeline.jsonl`: the traced steps of a run and what befell it, a line each, beside its metrics.
 *
 * [Note: sampled] The file is to stay small however long the run is, and to tell of its end as of its
 * beginning. So when the first step has shown how much a step is, each nth step is written, such that
 * all fit; the last is, too. What happens beside steps is always written, as long as there is room.
 *
 * @module
 */

import { existsSync } from "node:fs";
import { readSpan, type TracedAction } from "../../actors/mod.ts";
import { WORKERS_MAX } from "../../actors/options/limits.ts";
import type { TrainEvent } from "../../actors/run/events.ts";
import { checkInputFile } from "../../kernels/mod.ts";
import { inOneLine } from "../terminal.ts";
import { LINE_BYTES_MAX, readJsonLines } from "./metrics_file.ts";

/** Options of a {@linkcode BoundedFile}. */
interface BoundedFileOptions {
  /** The file; what it holds is replaced. */
  readonly path: string;
  /** What it is, in words: `the trace`. */
  readonly what: string;
  /** The most bytes that it may have. */
  readonly bytesMax: number;
  /** Receives the reason when the disk takes no more, once. */
  readonly announce: (line: string) => void;
}

/** A file that is being written. */
export class BoundedFile implements Disposable {
  /** Whether the disk took no more; nothing is added any more. */
  hasFailed = false;
  readonly #file: Deno.FsFile;

  /**
   * Begins a file, or goes on with one.
   *
   * @param size bytes of what it holds that stay. Default: none.
   * @throws {RangeError} when it cannot be written.
   */
  constructor(private readonly options: BoundedFileOptions, public size = 0) {
    this.#file = openToWrite(options, size === 0);
    if (size > 0) cut(this.#file, size);
  }

  /**
   * Adds a text, all of it or nothing.
   *
   * @param leaving room that must be left after it, in bytes. Default 0.
   * @returns whether there was room and the disk took it.
   */
  add(text: string, leaving = 0): boolean {
    const { path, what, bytesMax, announce } = this.options, bytes = ENCODER.encode(text);
    if (this.hasFailed || this.size + bytes.length + leaving > bytesMax) return false;
    try {
      for (let done = 0; done < bytes.length;) done += this.#file.writeSync(bytes.subarray(done));
      this.size += bytes.length;
    } catch (error) {
      // Between two texts there would be part of one.
      this.hasFailed = true;
      announce(`Cannot write ${what} to ${path}: ${(error as Error).message}; the run goes on`);
      cut(this.#file, this.size);
    }
    return !this.hasFailed;
  }

  [Symbol.dispose](): void {
    this.#file.close();
  }
}

const ENCODER = new TextEncoder();

/** What is left of a text that was not written whole. */
function cut(file: Deno.FsFile, size: number): void {
  try {
    file.truncateSync(size);
    file.seekSync(size, Deno.SeekMode.Start);
  } catch {
    // Readers pass over part of a line at the end.
  }
}

function openToWrite({ path, what }: BoundedFileOptions, truncate: boolean): Deno.FsFile {
  try {
    // To open a pipe waits for its other end.
    if (existsSync(path) && Deno.lstatSync(path).isFifo) throw new TypeError("a pipe");
    return Deno.openSync(path, { write: true, create: true, truncate });
  } catch (error) {
    const { message } = error as Error;
    throw new RangeError(
      `Cannot write ${what} to ${path}: it must be a file that can be written, received ${message}`,
      { cause: error },
    );
  }
}

/** Whether a value is a finite number. */
export const isTime = (value: unknown): value is number =>
  typeof value === "number" && Number.isFinite(value);

/** Whether a value is a whole number from 0. */
export const isCount = (value: unknown): value is number =>
  Number.isSafeInteger(value) && value as number >= 0;

/** Longer than the name of any action: an overlap of two, or an all-reduce of all stages. */
const NAME_MAX = 2048;

const TIMES = ["arrived", "sent"] as const,
  COUNTS = ["waiting", "stage", "chunk", "bucket"] as const;

/** Reads what is known of an action; undefined if it is none. */
export function readTraced(value: unknown): TracedAction | undefined {
  const record = (typeof value === "object" ? value ?? {} : {}) as Record<string, unknown>;
  const { name, start, end } = record;
  if (typeof name !== "string" || name.length > NAME_MAX || !isTime(start) || !isTime(end)) {
    return undefined;
  }
  const times = TIMES.filter((key) => record[key] !== undefined);
  const counts = COUNTS.filter((key) => record[key] !== undefined);
  const isRight = end >= start && times.every((key) => isTime(record[key])) &&
    counts.every((key) => isCount(record[key]));
  if (!isRight) return undefined;
  const said = [...times, ...counts].map((key) => [key, record[key]]);
  const traced: TracedAction = { name, start, end, ...Object.fromEntries(said) };
  return isNamed(traced) ? traced : undefined;
}

function isNamed(traced: TracedAction): boolean {
  try {
    const { stages, actions } = readSpan(traced, 0);
    return [...stages, ...actions.map(({ microBatch }) => microBatch)].every(isCount);
  } catch {
    return false;
  }
}

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
  typeof value === "number" && NOTE_TIMES.includes(key) ? Math.round(value * 1000) / 1000 : value;

const NOTE_TIMES: readonly string[] = ["start", "end", "arrived", "sent"];

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
