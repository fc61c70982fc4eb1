/**
 * Reads a trace that {@linkcode openTraceFile} has written, step by step: what is in memory is one
 * step. The file may be a stranger's, and may have been cut by the end of its program.
 *
 * @module
 */

import type { TracedAction } from "../../actors/mod.ts";
import { WORKERS_MAX } from "../../actors/run/options/sizes.ts";
import { checkInputFile } from "../../kernels/mod.ts";
import { inOneLine, quoted } from "../escape.ts";
import { TRACE_VERSION, type TracedStages, type TraceFacts, TROUPE_EVENT } from "./chrome_event.ts";
import { isCount, isTime, readTraced } from "./traced_action.ts";

/** What a trace says of its run. */
export interface TraceHead extends Omit<TraceFacts, "stagesOf"> {
  /** Workers of all replicas. */
  readonly workers: number;
}

/** A step of a trace. */
interface TracedStep {
  readonly step: number;
  /** For each worker what it did. */
  readonly traces: readonly (readonly TracedAction[])[];
}

/** A trace that is being read. */
export interface TraceReader {
  readonly head: TraceHead;
  /** Its steps in order; one whose program was killed while it wrote it may lack its end. */
  readonly steps: Iterable<TracedStep>;
}

/** Four times what a run writes. */
const BYTES_MAX = 2 ** 30;

/** Stages of a model. */
const STAGES_MAX = 2 ** 16;

/** Bytes of an event, and events of a step. */
const LINE_BYTES_MAX = 2 ** 20, STEP_EVENTS_MAX = 2 ** 20;

/** What a worker does for a step, by the category of its event. */
const WORK: readonly unknown[] = ["F", "B", "I", "W", "F&B", "reduce", "optimizer", "other"];

type Values = Readonly<Record<string, unknown>>;

/**
 * Opens a trace.
 *
 * @throws {SyntaxError} when it is none that `troupe train --trace` has written.
 * @throws {TypeError} when it is no file, or larger than any trace.
 */
export function openTrace(path: string): TraceReader {
  checkInputFile(path, BYTES_MAX);
  const head = headOf(path);
  return { head, steps: { [Symbol.iterator]: () => stepsOf(path, head) } };
}

function headOf(path: string): TraceHead {
  for (const event of eventsOf(path)) {
    const { name, args = {} } = event, about = args as Values;
    if (name !== TROUPE_EVENT) throw strange(path, `one that begins with ${quoted(name)}`);
    if (about.version !== TRACE_VERSION) throw strange(path, `version ${quoted(about.version)}`);
    const { model, schedule, runtime, workers, replicas, began } = about;
    const isHead = [model, schedule, runtime].every((one) => typeof one === "string") &&
      isCount(workers) && isCount(replicas) && isTime(began) &&
      replicas >= 1 && workers <= WORKERS_MAX && workers % replicas === 0;
    if (!isHead) throw strange(path, "one without what it is of");
    const stages = stagesOf(about);
    return {
      ...{ model, schedule, runtime, workers, replicas, began } as TraceHead,
      ...stages && { about: stages },
    };
  }
  throw strange(path, "an empty one");
}

/** What it says of its stages; undefined where it says none, or no whole account of them. */
function stagesOf(
  { device, parameters, shares, activationBytes, microBatch }: Values,
): TracedStages | undefined {
  const lists = [parameters, shares, activationBytes];
  const isWhole = lists.every((list) =>
    Array.isArray(list) && list.length <= STAGES_MAX &&
    list.every((one) => isTime(one) && one >= 0)
  ) && new Set(lists.map((list) => (list as unknown[]).length)).size === 1;
  if (typeof device !== "string" || !isWhole) return undefined;
  const samples = isCount(microBatch) && microBatch > 0 ? { microBatch } : {};
  return { device, parameters, shares, activationBytes, ...samples } as TracedStages;
}

function* stepsOf(path: string, { workers, began }: TraceHead): Generator<TracedStep, void> {
  let step: number | undefined, traces: TracedAction[][] = [], events = 0;
  for (const event of eventsOf(path)) {
    if (event.ph !== "X" || !WORK.includes(event.cat)) continue;
    const { tid, args } = event, at = (args as Values | undefined)?.step;
    const traced = args ? tracedOf(event, began) : undefined;
    if (!traced || !isCount(tid) || tid >= workers || !isCount(at) || ++events > STEP_EVENTS_MAX) {
      throw strange(path, `an event ${quoted(event)}`);
    }
    if (at !== step) {
      if (step !== undefined) yield { step, traces };
      traces = Array.from({ length: workers }, () => []);
      step = at;
      events = 0;
    }
    traces[tid]!.push(traced);
  }
  if (step !== undefined) yield { step, traces };
}

/** A piece of work as it was traced; undefined if the event is none. */
function tracedOf({ name, ts, dur, args }: Values, began: number): TracedAction | undefined {
  const msOf = (value: unknown) => isTime(value) ? began + value / 1000 : value;
  const { arrived, sent, ...rest } = args as Values, times = { arrived, sent }, start = msOf(ts);
  const said = Object.entries(times).filter(([, value]) => value !== undefined);
  const end = isTime(start) && isTime(dur) ? start + dur / 1000 : undefined;
  const told = Object.fromEntries(said.map(([key, value]) => [key, msOf(value)]));
  return readTraced({ ...rest, ...told, name, start, end });
}

/** The events of a file with one of them a line; a last one that was cut is passed over. */
function* eventsOf(path: string): Generator<Values, void> {
  let isFirst = true, cut = false;
  for (const line of linesOf(path)) {
    if (isFirst && line !== "[") throw strange(path, `one that begins with ${quoted(line)}`);
    isFirst = false;
    if (line === "[" || line === "]" || line === "") continue;
    if (cut) throw strange(path, "one with a line that is no event");
    const event = parse(line.endsWith(",") ? line.slice(0, -1) : line);
    if (event) yield event;
    else cut = true;
  }
}

function parse(line: string): Values | undefined {
  try {
    const value: unknown = JSON.parse(line);
    return typeof value === "object" && value !== null && !Array.isArray(value)
      ? value as Values
      : undefined;
  } catch {
    return undefined;
  }
}

function* linesOf(path: string): Generator<string, void> {
  using file = Deno.openSync(path);
  const piece = new Uint8Array(2 ** 16), decoder = new TextDecoder();
  let rest = "";
  for (let count; (count = file.readSync(piece)) !== null;) {
    const lines = (rest + decoder.decode(piece.subarray(0, count), { stream: true })).split("\n");
    rest = lines.pop()!;
    if (rest.length > LINE_BYTES_MAX) throw strange(path, "one with a longer line");
    yield* lines;
  }
  if (rest !== "") yield rest;
}

const strange = (path: string, received: string) =>
  new SyntaxError(
    `Cannot read ${
      inOneLine(path)
    }: it must be a trace that troupe train --trace has written, received ${received}`,
  );
