/**
 * `troupe trace`: what a trace of a run comes to.
 *
 * @module
 */

import { join } from "node:path";
import {
  type Gap,
  type GapKind,
  readStep,
  type TracedAction,
  type WorkerTimeline,
} from "../../actors/mod.ts";
import { WORKERS_MAX } from "../../actors/options/limits.ts";
import { didYouMean } from "../../actors/options/option.ts";
import { checkInputFile, inputFileProblem } from "../../kernels/mod.ts";
import { formatTable } from "../../schedules/pictures/grid.ts";
import type { CommandContext } from "../command.ts";
import { type CommandSyntax, COMMON_FLAGS } from "../flag.ts";
import { answersItself, helpOf, parseArguments } from "../parse.ts";
import {
  TRACE_VERSION,
  type TracedStages,
  type TraceFacts,
  TROUPE_EVENT,
} from "../run_files/chrome_trace.ts";
import { RUN_FILES } from "../run_files/metrics_file.ts";
import { readRun } from "../run_files/read.ts";
import { runPath } from "../run_files/run_folder.ts";
import {
  isCount,
  isTime,
  readTimeline,
  readTraced,
  type TimelineRecord,
} from "../run_files/timeline_file.ts";
import { inOneLine, print, quoted } from "../terminal.ts";

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
interface TraceReader {
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

/**
 * Opens the timeline of a run.
 *
 * @throws {RangeError} when there is no run, or it keeps no step.
 * @throws {SyntaxError} when its files say something else.
 */
async function openRunTrace(named: string): Promise<TraceReader> {
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

/** What a worker waited for, over all steps. */
interface WaitSum {
  /** Who computed it. */
  readonly worker: number;
  /** What: `1B` for all backwards of stage 1, `reduce`. */
  readonly work: string;
  /** Share of the time of all steps. */
  readonly share: number;
}

/** The middle of some durations and what few are above, in milliseconds. */
interface Durations {
  readonly count: number;
  readonly p50Ms: number;
  readonly p95Ms: number;
}

/** A worker over all steps. Shares are of the time of all steps. */
interface WorkerSummary {
  readonly worker: number;
  /** Actions of F, B, I and W. */
  readonly actions: number;
  /** Of F, B, I and W. */
  readonly busy: number;
  /** Of all-reduces, of waiting for them, and of waiting for messages. */
  readonly communication: number;
  /** Of the optimizer. */
  readonly optimizer: number;
  /** In which it did nothing. */
  readonly bubble: number;
  /** That by why. */
  readonly gaps: Readonly<Record<GapKind, number>>;
  /** For whom it waited, the longest first. */
  readonly waitsFor: readonly WaitSum[];
  /** How long actions took, by kind. */
  readonly durations: Readonly<Record<string, Durations>>;
}

/** All workers over all steps. */
interface TraceSummary {
  readonly model: string;
  readonly schedule: string;
  readonly runtime: string;
  readonly replicas: number;
  /** How many steps the trace has, the first and the last of them, and how long they took together. */
  readonly steps: number;
  readonly firstStep: number;
  readonly lastStep: number;
  readonly seconds: number;
  readonly workers: readonly WorkerSummary[];
}

/** Causes that are told of each worker. */
const CAUSES = 3;

/**
 * Sums up a trace.
 *
 * @throws {SyntaxError} when it is none, or has no step.
 */
export function summarizeTrace({ head, steps }: TraceReader, path: string): TraceSummary {
  const sums = Array.from({ length: head.workers }, openSum),
    seen: number[] = [];
  let totalMs = 0;
  for (const { step, traces } of steps) {
    const { start, end, workers } = readStep(traces, head.replicas);
    totalMs += end - start;
    seen.push(step);
    for (const worker of workers) addTo(sums[worker.worker]!, worker);
  }
  if (seen.length === 0) throw new SyntaxError(`Cannot sum up ${path}: it must have a step`);
  const { model, schedule, runtime, replicas } = head;
  return {
    ...{ model, schedule, runtime, replicas },
    steps: seen.length,
    firstStep: seen[0]!,
    lastStep: seen.at(-1)!,
    seconds: totalMs / 1000,
    workers: sums.map((sum, worker) => summaryOf(sum, worker, totalMs)),
  };
}

const NO_GAPS = { input: 0, message: 0, inject: 0, reduce: 0, optimizer: 0, pause: 0, idle: 0 };

/** One worker as far as the trace has been read. */
const openSum = () => ({
  ...{ actions: 0, busyMs: 0, reduceMs: 0, optimizerMs: 0 },
  gapMs: { ...NO_GAPS },
  waits: new Map<string, number>(),
  durations: new Map<string, number[]>(),
});

type Sum = ReturnType<typeof openSum>;

function addTo(sum: Sum, { spans, gaps, busyMs, reduceMs, optimizerMs, gapMs }: WorkerTimeline) {
  sum.busyMs += busyMs;
  sum.reduceMs += reduceMs;
  sum.optimizerMs += optimizerMs;
  for (const kind of Object.keys(gapMs) as GapKind[]) sum.gapMs[kind] += gapMs[kind];
  for (const gap of gaps) {
    if (!gap.by) continue;
    const key = waitKey(gap.by);
    sum.waits.set(key, (sum.waits.get(key) ?? 0) + gap.end - gap.start);
  }
  for (const { kind, actions, start, end } of spans) {
    if (actions.length === 0) continue;
    sum.actions++;
    sum.durations.getOrInsertComputed(kind, () => []).push(end - start);
  }
}

/** The worker, and the stage and kind of the action: all micro-batches are one cause. */
const waitKey = ({ worker, name }: NonNullable<Gap["by"]>) =>
  `${worker} ${/^\d+[FBIWR]|^\w+/.exec(name)?.[0] ?? name}`;

function summaryOf(sum: Sum, worker: number, totalMs: number): WorkerSummary {
  // A trace is a file like any other: its steps may take no time at all.
  const share = (ms: number) => totalMs > 0 ? ms / totalMs : 0, { gapMs } = sum;
  const kinds = Object.keys(gapMs) as GapKind[];
  const waits = [...sum.waits].sort(([, a], [, b]) => b - a).slice(0, CAUSES);
  return {
    worker,
    actions: sum.actions,
    busy: share(sum.busyMs),
    communication: share(sum.reduceMs + gapMs.reduce + gapMs.message),
    optimizer: share(sum.optimizerMs),
    bubble: share(kinds.reduce((ms, kind) => ms + gapMs[kind], 0)),
    gaps: Object.fromEntries(
      kinds.map((kind) => [kind, share(gapMs[kind])]),
    ) as WorkerSummary["gaps"],
    waitsFor: waits.map(([key, ms]) => {
      const [by, work] = key.split(" ");
      return { worker: Number(by), work: work!, share: share(ms) };
    }),
    durations: Object.fromEntries(
      [...sum.durations].map(([kind, all]) => [kind, durationsOf(all)]),
    ),
  };
}

function durationsOf(all: number[]): Durations {
  const sorted = Float64Array.from(all).sort();
  const at = (part: number) =>
    sorted[Math.min(sorted.length - 1, Math.floor(part * sorted.length))]!;
  return { count: sorted.length, p50Ms: at(0.5), p95Ms: at(0.95) };
}

const TRACE_FLAGS = {
  json: { kind: "switch", help: "the same as one JSON object" },
  ...COMMON_FLAGS,
} as const;

/** The declaration of `troupe trace`. */
export const TRACE_SYNTAX: CommandSyntax = {
  name: "trace",
  summary: "sums up a trace: who was busy, and who waited for whom",
  usage: ["summary FILE [flags]", "summary RUN [flags]"],
  about: [
    "Sums up, worker by worker, a file that troupe train --trace FILE has written, or the steps that a",
    "run with --trace or --dashboard keeps: RUN is its folder, or its name below runs/. The file",
    "is for https://ui.perfetto.dev, which shows every action on its worker's track.",
  ],
  words: ["summary"],
  groups: [{ flags: TRACE_FLAGS }],
  notes: [
    "Shares are of the time from the first action of a step to its last. busy: F, B, I and W;",
    "communication: all-reduces and what waits for them or for a message; bubble: nothing ran. Bubbles by why: input, another worker was still computing what was needed;",
    "message, that was on its way; inject, stage 0 waited for its next micro-batch; reduce and",
    "optimizer, other copies or the last gradients were not there; pause, between two actions; idle,",
    "nothing was left to do.",
  ],
};

/** Runs `troupe trace`; returns the exit code. */
export async function traceCommand(
  args: readonly string[],
  { begin }: CommandContext,
): Promise<number> {
  if (args.length === 0) return print(helpOf(TRACE_SYNTAX)), 0;
  if (answersItself(args, TRACE_SYNTAX)) return 0;
  const { words, flags } = parseArguments(args, TRACE_FLAGS, { takesWords: true });
  const [what = "", named, ...more] = words;
  if (what !== "summary") {
    throw new TypeError(
      `Cannot run "trace ${inOneLine(what)}": it must be summary${
        didYouMean(what, TRACE_SYNTAX.words!)
      }`,
    );
  }
  if (named === undefined || more.length > 0) {
    const count = words.length - 1;
    throw new TypeError(`Cannot sum up: the number of traces must be 1, received ${count}`);
  }
  const path = runPath(named), isRun = inputFileProblem(path) === "a folder";
  const summary = summarizeTrace(isRun ? await openRunTrace(path) : openTrace(path), path);
  begin();
  print(flags.json ? JSON.stringify(summary) : describeSummary(summary).map(inOneLine).join("\n"));
  return 0;
}

const percent = (share: number) => `${(100 * share).toFixed(1)} %`;

const GAPS: readonly GapKind[] = [
  "input",
  "message",
  "inject",
  "reduce",
  "optimizer",
  "pause",
  "idle",
];

/** A share below it would be shown as 0.0 %. */
const SHOWN_MIN = 0.0005;

/** A summary as lines of text. */
function describeSummary(summary: TraceSummary): string[] {
  const { model, schedule, steps, firstStep, lastStep, seconds, workers } = summary;
  const kinds = [...new Set(workers.flatMap(({ durations }) => Object.keys(durations)))];
  const gaps = GAPS.filter((kind) => workers.some((worker) => worker.gaps[kind] >= SHOWN_MIN));
  const tableOf = (head: readonly string[], cells: (worker: WorkerSummary) => string[]) =>
    formatTable([head, ...workers.map((one) => [`worker ${one.worker}`, ...cells(one)])]);
  const which = steps === 1 ? `step ${firstStep}` : `${steps} steps of ${firstStep} to ${lastStep}`;
  return [
    `${model}, ${schedule}, ${workers.length} workers: ${which}, ${seconds.toFixed(1)} s`,
    "",
    ...tableOf(
      ["", "busy", "communication", "optimizer", "bubble"],
      ({ busy, communication, optimizer, bubble }) =>
        [busy, communication, optimizer, bubble].map(percent),
    ),
    "Times overlap: communication has the part of the bubble that waits for it, so a row may be above 100 %.",
    "",
    ...tableOf(["bubble", ...gaps], (one) => gaps.map((kind) => percent(one.gaps[kind]))),
    "",
    ...workers.flatMap(waitLine),
    "",
    ...tableOf(
      ["", "actions", ...kinds.map((kind) => `${kind} p50/p95 ms`)],
      (one) => [String(one.actions), ...kinds.map((kind) => durationCell(one, kind))],
    ),
  ];
}

/** For whom a worker waited the most. */
function waitLine({ worker, waitsFor }: WorkerSummary): string[] {
  const told = waitsFor.filter(({ share }) => share >= SHOWN_MIN);
  if (told.length === 0) return [];
  const causes = told.map((one) => `worker ${one.worker}: ${one.work} (${percent(one.share)})`);
  return [`worker ${worker} waited for ${causes.join(", ")}`];
}

function durationCell({ durations }: WorkerSummary, kind: string): string {
  const known = durations[kind];
  return known ? `${known.p50Ms.toFixed(2)}/${known.p95Ms.toFixed(2)}` : "";
}
