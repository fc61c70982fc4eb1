/**
 * `timeline.jsonl`: traced steps and events of a run, one per line.
 *
 * [Note: sampling] The file stays small for any length of a run, and covers all of it. The size of the
 * first step decides the interval at which steps are written, so that all fit; the last step is
 * written, too. Events are always written if there is room.
 *
 * @module
 */

import type { TrainEvent } from "../../actors/options/train_events.ts";
import { existsSync } from "node:fs";
import * as v from "valibot";
import { readSpan, shifted } from "../../actors/run/timeline.ts";
import type { TracedAction } from "../../actors/pipeline/step.ts";
import { arrayOf, integer, numberWhere, text } from "../../actors/options/file_schema.ts";
import { WORKERS_MAX } from "../../actors/options/limits.ts";
import { assertInput, checkInputFile, refusal, resultOr } from "../../kernels/internal.ts";
import { inOneLine } from "../terminal.ts";
import { LINE_BYTES_MAX, readJsonLines } from "../../actors/run_folder/metrics_file.ts";

/** Options of a {@linkcode BoundedFile}. */
export interface BoundedFileOptions {
  /** Path of the file, whose content is replaced. */
  readonly path: string;
  /** Name for messages, such as `the trace`. */
  readonly what: string;
  /** Maximum size in bytes. */
  readonly bytesMax: number;
  /** Receives the reason if writing fails, once. */
  readonly announce: (line: string) => void;
}

/** A file of bounded size. */
export class BoundedFile implements Disposable {
  /** True if writing has failed, after which nothing is added. */
  hasFailed = false;
  readonly #file: Deno.FsFile;

  /**
   * Creates or continues a file.
   *
   * @param size bytes of its content to keep. Default 0.
   * @throws {RangeError} when the file cannot be written.
   */
  constructor(private readonly options: BoundedFileOptions, public size = 0) {
    this.#file = openToWrite(options, size === 0);
    if (size > 0) cut(this.#file, size);
  }

  /**
   * Adds a text, completely or not at all.
   *
   * @param leaving bytes that must stay free after it. Default 0.
   * @returns whether the text was written.
   */
  add(text: string, leaving = 0): boolean {
    const { path, what, bytesMax, announce } = this.options, bytes = ENCODER.encode(text);
    if (this.hasFailed || this.size + bytes.length + leaving > bytesMax) return false;
    try {
      for (let done = 0; done < bytes.length;) done += this.#file.writeSync(bytes.subarray(done));
      this.size += bytes.length;
    } catch (error) {
      // A later text would follow an incomplete one.
      this.hasFailed = true;
      announce(`Cannot write ${what} to ${path}: ${(error as Error).message}; the run continues`);
      cut(this.#file, this.size);
    }
    return !this.hasFailed;
  }

  [Symbol.dispose](): void {
    this.#file.close();
  }
}

const ENCODER = new TextEncoder();

/** Removes an incomplete text. If that fails, readers skip it as an incomplete last line. */
const cut = (file: Deno.FsFile, size: number): void =>
  resultOr(() => {
    file.truncateSync(size);
    file.seekSync(size, Deno.SeekMode.Start);
  }, undefined);

function openToWrite({ path, what }: BoundedFileOptions, truncate: boolean): Deno.FsFile {
  try {
    // Opening a pipe waits for its other end.
    if (existsSync(path) && Deno.statSync(path).isFifo) throw new TypeError("a pipe");
    return Deno.openSync(path, { write: true, create: true, truncate });
  } catch (error) {
    throw refusal(`write ${what} to ${path}`, "it must be a writable file", error);
  }
}

const TIME = numberWhere("a finite number", Number.isFinite), COUNT = integer(0);

/** Returns whether a value is a finite number. */
export const isTime = (value: unknown): value is number => v.is(TIME, value);

/** Returns whether a value is an integer from 0. */
export const isCount = (value: unknown): value is number => v.is(COUNT, value);

/** Limit of names: longer than an overlap of two actions, or an all-reduce of all stages. */
const NAME_MAX = 2048;

const TRACED = v.pipe(
  v.object({
    name: text(NAME_MAX),
    start: TIME,
    end: TIME,
    arrived: v.exactOptional(TIME),
    sent: v.exactOptional(TIME),
    waiting: v.exactOptional(COUNT),
    stage: v.exactOptional(COUNT),
    chunk: v.exactOptional(COUNT),
    bucket: v.exactOptional(COUNT),
  }),
  v.check(({ start, end }) => end >= start),
  v.check(hasActionName),
);

function hasActionName(traced: TracedAction): boolean {
  return resultOr(() => {
    const { stages, actions } = readSpan(traced, 0);
    return [...stages, ...actions.map(({ microBatch }) => microBatch)].every(isCount);
  }, false);
}

/** Reads a traced action; returns undefined if it is invalid. */
export function readTraced(value: unknown): TracedAction | undefined {
  const { success, output } = v.safeParse(TRACED, value);
  return success ? output : undefined;
}

const EVENT = { step: COUNT, time: TIME };

const LINE = v.variant("type", [
  v.object({ type: v.literal("step"), ...EVENT, traces: arrayOf(v.array(TRACED), 0, WORKERS_MAX) }),
  v.object({ type: v.literal("failure"), ...EVENT, actor: v.string(), reason: v.string() }),
  v.object({ type: v.literal("joined"), ...EVENT, reason: v.string() }),
  v.object({ type: v.picklist(["checkpoint", "resumed"]), ...EVENT }),
]);

type Line = v.InferOutput<typeof LINE>;

/** A lost worker, workers that joined, a checkpoint, or a resumption after a step. */
export type TimelineEvent = Exclude<Line, { readonly type: "step" }>;

/** A record of a timeline: the actions of the workers in a step, or an event. */
export type TimelineRecord = TimelineEvent | {
  readonly type: "step";
  readonly step: number;
  readonly traces: readonly (readonly TracedAction[])[];
};

/** Returns what an event of the run reports: a checkpoint, a lost worker, or workers that joined. */
export function eventIn(event: TrainEvent) {
  if (event.type === "failure") return event;
  if (event.type === "checkpoint") {
    return { type: event.type, step: event.step, time: Date.now() } as const;
  }
  if (event.type !== "resize") return undefined;
  const { step, time, actor, to: { pipelines, depth } } = event;
  const reason = `the run continued on ${pipelines * depth} workers`;
  if (actor === undefined) return { type: "joined", step, time, reason } as const;
  return { type: "failure", step, time, actor, reason: `lost; ${reason}` } as const;
}

/** The timeline of a running run. */
export type TimelineFile = ReturnType<typeof openTimeline>;

/** Options of a timeline. */
export interface TimelineOptions extends Pick<BoundedFileOptions, "path" | "announce"> {
  /** Last step of the run. */
  readonly steps: number;
  /** Step after which an existing file is continued; undefined for a new file. */
  readonly goesOnAfter?: number | undefined;
  /** Maximum bytes of the file. Default {@linkcode TIMELINE_BYTES}. */
  readonly bytesMax?: number | undefined;
}

/** Default maximum of a timeline. */
const TIMELINE_BYTES: number = 32 * 2 ** 20;

/** Bytes reserved for events. */
const OTHER_BYTES = 2 ** 20;

/**
 * Creates or continues a timeline. Records of later steps are removed.
 *
 * @throws {RangeError} when it cannot be written.
 * @throws {SyntaxError} when the continued file is not a timeline.
 */
export function openTimeline(options: TimelineOptions) {
  const { path, steps, goesOnAfter, bytesMax = TIMELINE_BYTES, announce } = options;
  const size = goesOnAfter === undefined ? 0 : sizeUpTo(path, goesOnAfter);
  const file = new BoundedFile({ path, what: "the timeline", bytesMax, announce }, size);
  const stepBytes = bytesMax - Math.min(OTHER_BYTES, bytesMax / 4);
  let first: number | undefined, stride = 1;
  const add = (record: TimelineRecord, leaving = 0) => {
    const line = JSON.stringify(record.type === "step" ? packed(record) : record, rounded) + "\n";
    // Longer lines have more than ten thousand actions, too many to draw.
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
    /** Adds an event of the run. */
    see(event: TrainEvent): void {
      if (event.type === "step" || event.type === "skip") addStep(event.step, event.traces);
      const reported = eventIn(event);
      if (reported) add(reported);
    },
    [Symbol.dispose]: (): void => file[Symbol.dispose](),
  };
}

/** Rounds times to microseconds, the resolution of clocks. */
const rounded = (key: string, value: unknown) =>
  typeof value === "number" && NOTE_TIMES.includes(key) ? Math.round(value * 1000) / 1000 : value;

const NOTE_TIMES: readonly string[] = ["start", "end", "arrived", "sent"];

/** Makes the times of actions relative to the first. */
function packed({ type, step, traces }: Extract<TimelineRecord, { type: "step" }>) {
  const time = traces.flat().reduce((first, { start }) => Math.min(first, start), Infinity);
  return {
    type,
    step,
    time,
    traces: traces.map((trace) => trace.map((one) => shifted(one, -time))),
  };
}

/** Returns the bytes of the lines up to a step. */
function sizeUpTo(path: string, step: number): number {
  let size = 0;
  for (const { record, end } of readTimeline(path)) {
    if (record.step > step) break;
    size = end;
  }
  return size;
}

/**
 * Reads the lines of a timeline, if the file exists. It may be untrusted, and may be growing.
 *
 * @param from offset of the first line in bytes.
 * @throws {SyntaxError} naming an invalid line.
 * @throws {TypeError} when it is not a regular file, or is too large.
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
    const { success, output } = v.safeParse(LINE, record);
    const received = `another one before byte ${end}`,
      must = "each line must be a step or an event";
    assertInput(success, `read ${inOneLine(path)}`, must, received, SyntaxError);
    yield { record: output.type === "step" ? unpacked(output) : output, end };
  }
}

/** Makes the times of actions absolute. */
const unpacked = ({ type, step, time, traces }: Exclude<Line, TimelineEvent>) => (
  { type, step, traces: traces.map((trace) => trace.map((one) => shifted(one, time))) }
);
