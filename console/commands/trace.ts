/**
 * `troupe trace`: sums up the trace of a run.
 *
 * @module
 */

import { join } from "node:path";
import { type GapKind, readStep, type WorkerTimeline } from "../../actors/run/timeline.ts";
import type { TracedAction } from "../../actors/pipeline/step.ts";
import { isObject } from "../../actors/options/file_schema.ts";
import { WORKERS_MAX } from "../../actors/options/limits.ts";
import { checkInputFile, inputFileProblem, resultOr } from "../../kernels/internal.ts";
import { formatTable } from "../../schedules/pictures/grid.ts";
import {
  TRACE_VERSION,
  type TracedStages,
  type TraceFacts,
  TROUPE_EVENT,
} from "../run_files/chrome_trace.ts";
import { RUN_FILES } from "../../actors/run_folder/metrics_file.ts";
import { readRun, runPath } from "../../actors/run_folder/read.ts";
import {
  isCount,
  isTime,
  readTimeline,
  readTraced,
  type TimelineRecord,
} from "../run_files/timeline_file.ts";
import { count, ensure, inOneLine, print, quoted } from "../terminal.ts";
import { checkCount, checkWord, type Command, defineCommand, percent } from "./common.ts";

/** `troupe trace`. */
export const traceCommand: Command = defineCommand({
  name: "trace",
  summary: "sums up a trace: busy times, bubbles and their reasons",
  usage: ["summary FILE [flags]", "summary RUN [flags]"],
  about: [
    "Sums up, for each worker, a file of troupe train --trace FILE, or the steps that a run with",
    "--trace or --dashboard records: RUN is its folder, or its name below runs/. The file opens in",
    "https://ui.perfetto.dev, which shows each action on the track of its worker.",
  ],
  words: ["summary"],
  flags: { json: { kind: "switch", help: "print one JSON object" } },
  notes: [
    "Shares are of the time from the first to the last action of a step. busy: F, B, I, W, R;",
    "communication: all-reduces, and waiting for them or for messages; bubble: no action runs. Reasons",
    "of bubbles: input, another worker still computes the input; message, the input is in transit;",
    "inject, stage 0 waits for its next micro-batch; reduce and optimizer, other copies or the last",
    "gradients are missing; pause, between two actions; idle, no action is left.",
    "",
    "Exit codes: 0 shown; 2 bad input.",
  ],
  needsArguments: true,
  run: async ({ words: [what = "", ...names], flags }, { begin }) => {
    checkWord("trace", what, ["summary"]);
    checkCount("sum up", "traces", names.length, [1]);
    const path = runPath(names[0]!), isRun = inputFileProblem(path) === "a folder";
    const summary = summarizeTrace(isRun ? await openRunTrace(path) : openTrace(path), path);
    begin();
    const lines = flags.json ? [JSON.stringify(summary)] : describeSummary(summary).map(inOneLine);
    print(lines.join("\n"));
  },
});

/** The run of a trace. */
interface TraceHead extends Omit<TraceFacts, "stagesOf"> {
  /** Workers of all replicas. */
  readonly workers: number;
}

/** A step of a trace, with the actions of each worker. */
type TracedStep = Pick<Extract<TimelineRecord, { type: "step" }>, "step" | "traces">;

/** An open trace. */
interface TraceReader {
  readonly head: TraceHead;
  /** The steps in order; if the program was killed, the last one may be incomplete. */
  readonly steps: Iterable<TracedStep>;
}

/** Maximum bytes of a trace: four times the largest file that a run writes. */
const BYTES_MAX = 2 ** 30;

/** Maximum number of stages of a model. */
const STAGES_MAX = 2 ** 16;

/** Maximum bytes of an event, and maximum number of events of a step. */
const LINE_BYTES_MAX = 2 ** 20, STEP_EVENTS_MAX = 2 ** 20;

/** Categories of events that are work of a step. */
const WORK: readonly unknown[] = ["F", "B", "I", "W", "R", "F&B", "reduce", "optimizer", "other"];

type Values = Readonly<Record<string, unknown>>;

/**
 * Opens the file of a trace.
 *
 * @throws {SyntaxError} if `troupe train --trace` has not written it.
 * @throws {TypeError} if it is no file, or larger than any trace.
 */
export function openTrace(path: string): TraceReader {
  checkInputFile(path, BYTES_MAX);
  const head = headOf(path);
  return { head, steps: { [Symbol.iterator]: () => stepsOf(path, head) } };
}

function headOf(path: string): TraceHead {
  const [event] = eventsOf(path).take(1);
  if (!event) throw invalid(path, "an empty one");
  const { name, args = {} } = event, about = args as Values;
  if (name !== TROUPE_EVENT) throw invalid(path, `one that begins with ${quoted(name)}`);
  if (about.version !== TRACE_VERSION) throw invalid(path, `version ${quoted(about.version)}`);
  const { model, schedule, runtime, workers, replicas, began } = about;
  const isHead = [model, schedule, runtime].every((one) => typeof one === "string") &&
    isCount(workers) && isCount(replicas) && isTime(began) &&
    replicas >= 1 && workers <= WORKERS_MAX && workers % replicas === 0;
  if (!isHead) throw invalid(path, "one without its run");
  const head = { model, schedule, runtime, workers, replicas, began } as TraceHead;
  const stages = stagesOf(about);
  return stages ? { ...head, about: stages } : head;
}

/** Returns the stages in the head of a trace; undefined if they are missing or incomplete. */
function stagesOf(
  { device, parameters, shares, activationBytes, microBatch }: Values,
): TracedStages | undefined {
  const lists = [parameters, shares, activationBytes] as (readonly unknown[])[];
  const isWhole = lists.every((list) =>
    Array.isArray(list) && list.length <= STAGES_MAX && list.length === lists[0]!.length &&
    list.every((one) => isTime(one) && one >= 0)
  );
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
      throw invalid(path, `an event ${quoted(event)}`);
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

/** Returns the action of an event; undefined if its values are invalid. */
function tracedOf({ name, ts, dur, args }: Values, began: number): TracedAction | undefined {
  const msOf = (value: unknown) => isTime(value) ? began + value / 1000 : value;
  const { arrived, sent, ...rest } = args as Values, start = msOf(ts);
  const end = isTime(start) && isTime(dur) ? start + dur / 1000 : undefined;
  const arrival = arrived === undefined ? {} : { arrived: msOf(arrived) };
  const sending = sent === undefined ? {} : { sent: msOf(sent) };
  return readTraced({ ...rest, ...arrival, ...sending, name, start, end });
}

/** Yields the events of a file, one of each line; a truncated last line is ignored. */
function* eventsOf(path: string): Generator<Values, void> {
  let isFirst = true, isTruncated = false;
  for (const line of linesOf(path)) {
    if (isFirst && line !== "[") throw invalid(path, `one that begins with ${quoted(line)}`);
    isFirst = false;
    if (line === "[" || line === "]" || line === "") continue;
    if (isTruncated) throw invalid(path, "one with a line that is no event");
    const event: unknown = resultOr(() => JSON.parse(line.replace(/,$/, "")), undefined);
    if (isObject(event)) yield event;
    else isTruncated = true;
  }
}

function* linesOf(path: string): Generator<string, void> {
  using file = Deno.openSync(path);
  const piece = new Uint8Array(2 ** 16), decoder = new TextDecoder();
  let rest = "";
  for (let count; (count = file.readSync(piece)) !== null;) {
    const lines = (rest + decoder.decode(piece.subarray(0, count), { stream: true })).split("\n");
    rest = lines.pop()!;
    if (rest.length > LINE_BYTES_MAX) throw invalid(path, "one with a longer line");
    yield* lines;
  }
  if (rest !== "") yield rest;
}

function invalid(path: string, received: string): SyntaxError {
  const must = `it must be a trace that troupe train --trace has written, received ${received}`;
  return new SyntaxError(`Cannot read ${inOneLine(path)}: ${must}`);
}

/**
 * Opens the timeline of a run.
 *
 * @throws {RangeError} if there is no run, or it has no traced step.
 * @throws {SyntaxError} if a file of the run is invalid.
 */
async function openRunTrace(named: string): Promise<TraceReader> {
  const { path, record } = await readRun(named), file = join(path, RUN_FILES.timeline);
  const steps = () => readTimeline(file).map(({ record }) => record).filter(isStep);
  const [first] = steps().take(1);
  const isTraced = record && first && first.traces.length % record.plan.replicas === 0;
  const must = "its run must have --trace or --dashboard";
  ensure(isTraced, `sum up ${quoted(path)}`, must, "no steps", RangeError);
  const { model, plan: { schedule, runtime, replicas } } = record, workers = first.traces.length;
  return {
    head: { model, schedule, runtime, replicas, workers, began: 0 },
    steps: steps().filter(({ traces }) => traces.length === workers),
  };
}

const isStep = (record: TimelineRecord) => record.type === "step";

/** The sum of all steps, as `--json` prints it. */
type TraceSummary = ReturnType<typeof summarizeTrace>;

/**
 * Sums up a trace.
 *
 * @throws {SyntaxError} if the trace is invalid or has no step.
 */
export function summarizeTrace({ head, steps }: TraceReader, path: string) {
  const sums = Array.from({ length: head.workers }, () => new WorkerSum()), seen: number[] = [];
  let totalMs = 0;
  for (const { step, traces } of steps) {
    const { start, end, workers } = readStep(traces, head.replicas);
    totalMs += end - start;
    seen.push(step);
    for (const worker of workers) sums[worker.worker]!.add(worker);
  }
  if (seen.length === 0) throw new SyntaxError(`Cannot sum up ${path}: it must have a step`);
  const { model, schedule, runtime, replicas } = head;
  return {
    ...{ model, schedule, runtime, replicas },
    steps: seen.length,
    firstStep: seen[0]!,
    lastStep: seen.at(-1)!,
    seconds: totalMs / 1000,
    workers: sums.map((sum, worker) => ({ worker, ...sum.summary(totalMs) })),
  };
}

/** Reasons of bubbles, in the order of the table. */
const GAPS: readonly GapKind[] = [
  ...["input", "message", "inject", "reduce", "optimizer", "pause", "idle"] as const,
];

/** Causes of waiting that are listed for each worker. */
const CAUSES = 3;

/** The sum of the steps of a worker. */
class WorkerSum {
  #actions = 0;
  #busyMs = 0;
  #reduceMs = 0;
  #optimizerMs = 0;
  readonly #gapMs = new Map(GAPS.map((kind) => [kind, 0]));
  readonly #waits = new Map<string, number>();
  readonly #durations = new Map<string, number[]>();

  add({ spans, gaps, busyMs, reduceMs, optimizerMs, gapMs }: WorkerTimeline): void {
    this.#busyMs += busyMs;
    this.#reduceMs += reduceMs;
    this.#optimizerMs += optimizerMs;
    for (const kind of GAPS) this.#gapMs.set(kind, this.#gapMs.get(kind)! + gapMs[kind]);
    for (const { by, start, end } of gaps) {
      if (!by) continue;
      // The micro-batches of a stage and kind are one cause.
      const key = `${by.worker} ${/^\d+[FBIWR]|^\w+/.exec(by.name)?.[0] ?? by.name}`;
      this.#waits.set(key, (this.#waits.get(key) ?? 0) + end - start);
    }
    for (const { kind, actions, start, end } of spans) {
      if (actions.length === 0) continue;
      this.#actions++;
      this.#durations.getOrInsertComputed(kind, () => []).push(end - start);
    }
  }

  /** Returns the summary. Shares are of the time of all steps, which is 0 in some files. */
  summary(totalMs: number) {
    const share = (ms: number) => totalMs > 0 ? ms / totalMs : 0;
    const gapMs = (kind: GapKind) => this.#gapMs.get(kind)!;
    const gaps = GAPS.map((kind) => [kind, share(gapMs(kind))]);
    const waits = [...this.#waits].sort(([, a], [, b]) => b - a).slice(0, CAUSES);
    return {
      actions: this.#actions,
      busy: share(this.#busyMs),
      communication: share(this.#reduceMs + gapMs("reduce") + gapMs("message")),
      optimizer: share(this.#optimizerMs),
      bubble: share(GAPS.reduce((ms, kind) => ms + gapMs(kind), 0)),
      gaps: Object.fromEntries(gaps) as Record<GapKind, number>,
      waitsFor: waits.map(([key, ms]) => {
        const [by, work] = key.split(" ") as [string, string];
        return { worker: Number(by), work, share: share(ms) };
      }),
      durations: Object.fromEntries(
        Array.from(this.#durations, ([kind, all]) => [kind, durationsOf(all)]),
      ),
    };
  }
}

function durationsOf(all: readonly number[]) {
  const sorted = Float64Array.from(all).sort(), count = sorted.length;
  const at = (part: number) => sorted[Math.min(count - 1, Math.floor(part * count))]!;
  return { count, p50Ms: at(0.5), p95Ms: at(0.95) };
}

/** Smaller shares would be printed as 0.0 %. */
const SHOWN_MIN = 0.0005;

/** Returns a summary as lines of text. */
function describeSummary(summary: TraceSummary): string[] {
  const { model, schedule, steps, firstStep, lastStep, seconds, workers } = summary;
  type Worker = typeof workers[number];
  const kinds = [...new Set(workers.flatMap(({ durations }) => Object.keys(durations)))];
  const gaps = GAPS.filter((kind) => workers.some((worker) => worker.gaps[kind] >= SHOWN_MIN));
  const tableOf = (head: readonly string[], cells: (worker: Worker) => string[]) =>
    formatTable([head, ...workers.map((one) => [`worker ${one.worker}`, ...cells(one)])]);
  const shares = ["busy", "communication", "optimizer", "bubble"] as const;
  const which = steps === 1 ? `step ${firstStep}` : `${steps} steps of ${firstStep} to ${lastStep}`;
  const durationCell = ({ durations }: Worker, kind: string) => {
    const { p50Ms, p95Ms } = durations[kind] ?? {};
    return p50Ms === undefined ? "" : `${p50Ms.toFixed(2)}/${p95Ms!.toFixed(2)}`;
  };
  const waits = workers.flatMap(({ worker, waitsFor }) => {
    const causes = waitsFor.filter(({ share }) => share >= SHOWN_MIN)
      .map((one) => `worker ${one.worker}: ${one.work} (${percent(one.share)})`);
    return causes.length > 0 ? [`worker ${worker} waited for ${causes.join(", ")}`] : [];
  });
  const end =
    "Times overlap: communication includes the bubble that waits for it, so a row can exceed 100 %.";
  const parts = [
    [...tableOf(["", ...shares], (one) => shares.map((name) => percent(one[name]))), end],
    gaps.length > 0
      ? tableOf(["bubble", ...gaps], (one) => gaps.map((kind) => percent(one.gaps[kind])))
      : [],
    waits,
    tableOf(
      ["", "actions", ...kinds.map((kind) => `${kind} p50/p95 ms`)],
      (one) => [String(one.actions), ...kinds.map((kind) => durationCell(one, kind))],
    ),
  ];
  return [
    `${model}, ${schedule}, ${count(workers.length, "worker")}: ${which}, ${seconds.toFixed(1)} s`,
    ...parts.filter(({ length }) => length > 0).flatMap((part) => ["", ...part]),
  ];
}
