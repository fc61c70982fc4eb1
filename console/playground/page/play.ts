/**
 * What the playground shows of a schedule: its actions and bubbles with their causes, the critical
 * path, and its measures. Computed in a web worker.
 *
 * @module
 */

import { KINDS } from "../../../schedules/action_list.ts";
import type { ChromeEvent } from "../../run_files/chrome_trace.ts";
import { assertInput, refusal } from "../../../schedules/errors.ts";
import { recomputedStages, violationError } from "../../../schedules/internal.ts";
import {
  type Action,
  type ActionKind,
  type Analysis,
  analyze,
  bubbles,
  createSchedule,
  findSchedule,
  formatAction,
  formatCsv,
  formatSvg,
  liveActivations,
  modelOfCosts,
  parseAction,
  parseCsv,
  type Schedule,
  scheduleFromLists,
  simulateStep,
  type Timeline,
  validate,
  withPolicy,
  withRecomputation,
} from "../../../schedules/mod.ts";
import { hostTable } from "../../../schedules/schedule.ts";
import {
  costsOf,
  optionsOf,
  OWN,
  type Settings,
  type Shared,
  type Side,
  switchesOf,
} from "./settings.ts";

/** Causes of bubbles. */
export const CAUSES = [
  ["start", "before its first action"],
  ["forward", "waits for a forward"],
  ["gradient", "waits for a gradient"],
  ["message", "waits for a message on its way"],
  ["held", "its input is there: an order or a limit holds it back"],
  ["end", "after its last action"],
] as const;

const CAUSE = Object.fromEntries(CAUSES.map(([name], i) => [name, i])) as Readonly<
  Record<(typeof CAUSES)[number][0], number>
>;

/** A row of the timeline, in columns, which pass quickly from the web worker to the page. */
export type Row = ReturnType<typeof rowOf>;

/** A schedule as it is drawn. */
export type Picture = ReturnType<typeof pictureOf>;

const OWN_NAME = "own lists";

/** The action of a worker, by index. */
type Place = readonly [worker: number, index: number];

/**
 * Analyzes the schedule of a side.
 *
 * @param found is called with each result of a search as soon as it is there.
 * @throws {RangeError} if the schedule cannot serve the settings.
 * @throws {SyntaxError} if own lists cannot be read.
 */
export function analyzeSide(
  shared: Shared,
  side: Side,
  found?: (analysis: Analysis) => void,
): Analysis {
  const costs = costsOf(shared), { jitter: amount, seed } = shared, { elastic } = switchesOf(side);
  const made = makeSchedule(shared, side, found);
  if (side.timed) return analyze(made, {}, side.timed);
  const { activationLimit, weightBacklog } = side.numbers;
  const isPlain = !elastic || recomputedStages(made).size === 0;
  assertInput(isPlain, "follow the lists elastically", "they must have no R", "some");
  const schedule = elastic ? withPolicy(made, "elastic", activationLimit, weightBacklog) : made;
  if (amount === 0 && !elastic) return analyze(schedule, costs);
  const step = simulateStep({
    ...modelOfCosts(schedule, costs),
    ...amount > 0 && { jitter: { law: "around", amount, seed } },
  });
  return analyze(step.schedule, costs, step.timeline);
}

function makeSchedule(shared: Shared, side: Side, found?: (analysis: Analysis) => void): Schedule {
  const { schedule: name, csv } = side, { recompute: isRecomputed = false } = switchesOf(side);
  if (name === OWN) {
    if (!csv) {
      throw new RangeError("Paste lists or drop a file: a row for each worker, such as 0F0,0B0");
    }
    const own = scheduleFromLists(OWN_NAME, parseCsv(csv));
    const fatal = validate(own).filter(({ reason }) => reason !== "descending");
    if (fatal.length > 0) throw violationError(own, fatal);
    return isRecomputed ? withRecomputation(own) : own;
  }
  const { reads = [] } = findSchedule(name),
    costs = costsOf(shared),
    options = optionsOf(shared, side);
  const isAhead = reads.includes("recomputeAhead");
  const schedule = createSchedule(name, {
    ...options,
    ...reads.includes("costs") && { costs },
    ...isAhead && isRecomputed && { recomputeAhead: true },
    ...reads.includes("found") && found &&
      { found: (one) => found(analyze({ ...one, name }, costs)) },
  });
  if (!isRecomputed || isAhead) return schedule;
  return withRecomputation(schedule);
}

const both = (action: Action) => action.overlap ? [action, action.overlap] : [action];

/** Rounding errors of sums of times, as a part of the step. */
const EPSILON = 1e-9;

/** Returns the actions of the critical path, from its start. */
function criticalPath({ execution, makespan }: Analysis): Place[] {
  const { timeline: { starts, ends }, lastInput } = execution;
  const last = ends.findIndex((own) => (own.at(-1) ?? 0) >= makespan);
  const path: Place[] = [];
  let at: Place | undefined = last < 0 ? undefined : [last, ends[last]!.length - 1];
  while (at) {
    path.push(at);
    const [worker, index] = at, start = starts[worker]![index]!;
    const isFree = index === 0 || ends[worker]![index - 1]! < start - EPSILON * makespan;
    const before: Place | undefined = index > 0 ? [worker, index - 1] : undefined;
    const input = isFree ? lastInput(worker, index) : undefined;
    at = input ? [input.worker, input.index!] : before;
  }
  return path.reverse();
}

/** Returns the bubbles of a worker, cut where their cause changes: an entry for each. */
function gapsOf(analysis: Analysis, worker: number) {
  const { execution: { timeline: { starts, ends } }, makespan } = analysis;
  const gaps = {
    /** Indices in {@linkcode CAUSES}. */
    cause: [] as number[],
    from: [] as number[],
    to: [] as number[],
    /** The action that waits, and its input. */
    text: [] as string[],
  };
  const add = (cause: number, from: number, to: number, text: string) => {
    if (to - from <= EPSILON * makespan) return;
    gaps.cause.push(cause);
    gaps.from.push(from);
    gaps.to.push(to);
    gaps.text.push(text);
  };
  let index = 0;
  for (const { start, end, before, waitsFor } of bubbles(analysis, worker)) {
    if (!before) {
      add(CAUSE.end, start, end, "after its last action");
      continue;
    }
    while (starts[worker]![index]! < end) index++;
    const name = formatAction(before);
    const text = waitsFor ? `${name} waits for ${formatAction(waitsFor)}` : `${name} waits`;
    const given = waitsFor ? ends[waitsFor.worker]![waitsFor.index!]! : start;
    const made = Math.min(end, Math.max(start, given));
    const isSent = waitsFor !== undefined && waitsFor.worker !== worker;
    const cause = index === 0
      ? CAUSE.start
      : waitsFor && "FR".includes(waitsFor.kind)
      ? CAUSE.forward
      : CAUSE.gradient;
    add(cause, start, made, text);
    add(isSent && given >= start ? CAUSE.message : CAUSE.held, made, end, text);
  }
  return gaps;
}

/** Returns the messages between workers: outputs whose receiver is elsewhere. */
function messagesOf({ schedule }: Analysis): number {
  const { lists, stages, pipelineOf } = schedule, hosts = hostTable(schedule);
  let count = 0;
  lists.forEach((list, worker) => {
    for (let part = 0; part < list.partCount; part++) {
      const kind = KINDS[list.kindAt(part)]!, stage = list.stageAt(part);
      const next = kind === "F" ? stage + 1 : "BI".includes(kind) ? stage - 1 : -1;
      if (next < 0 || next >= stages) continue;
      if (hosts[pipelineOf[list.microBatchAt(part)]! * stages + next] !== worker) count++;
    }
  });
  return count;
}

function rowOf(analysis: Analysis, worker: number, path: readonly Place[]) {
  const { schedule: { lists }, execution: { timeline: { starts, ends } } } = analysis;
  const list = lists[worker]!, critical = new Uint8Array(list.length);
  for (const [on, index] of path) if (on === worker) critical[index] = 1;
  const live = [...liveActivations(analysis, worker)];
  return {
    /** The row of CSV. */
    actions: String(list),
    ...{ starts: starts[worker]!, ends: ends[worker]! },
    /** 1 for each action on the critical path. */
    critical,
    gaps: gapsOf(analysis, worker),
    /** Activations from each time on. */
    times: live.map(({ time }) => time),
    live: live.map((one) => one.live),
    peak: analysis.peakActivations[worker]!,
  };
}

/** Makes the picture of an analysis. */
export function pictureOf(analysis: Analysis) {
  const { schedule, makespan, execution: { timeline: { starts, ends } } } = analysis;
  const path = criticalPath(analysis);
  const rows = schedule.lists.map((_, worker) => rowOf(analysis, worker, path));
  const causes = CAUSES.map(() => 0), all = schedule.workers * makespan || 1;
  for (const { gaps } of rows) {
    gaps.cause.forEach((cause, i) => causes[cause]! += (gaps.to[i]! - gaps.from[i]!) / all);
  }
  const counts: Record<string, number> = {};
  path.forEach(([worker, index], i) => {
    const names = both(schedule.lists[worker]!.at(index)!).map(({ kind }) => kind);
    if (i > 0 && path[i - 1]![0] !== worker) names.push("message" as Action["kind"]);
    for (const name of names) counts[name] = (counts[name] ?? 0) + 1;
  });
  const [warning] = schedule.name === OWN_NAME ? validate(schedule) : [];
  return {
    ...{ name: schedule.name, workers: schedule.workers, stages: schedule.stages, makespan },
    ...{ pipelines: Math.max(0, ...schedule.pipelineOf) + 1, pipelineOf: schedule.pipelineOf },
    ...{ rows, bubbleRatio: analysis.bubbleRatio, messages: messagesOf(analysis) },
    /** Share of all workers' time, by cause. */
    causes,
    /** Maximum weights of a worker, in 1/D of the model. */
    weights: Math.max(...analysis.weights),
    /** Actions, messages and their time on the critical path, from its start. */
    critical: {
      path: path.map(([worker, i]) => [worker, starts[worker]![i]!, ends[worker]![i]!] as const),
      counts,
    },
    notes: [
      ...warning ? [`Troupe cannot train with it: ${warning.message}`] : [],
      ...schedule.updates === "flush"
        ? []
        : ["Asynchronous: without flushes, the bubbles at both ends of the step are filled"],
    ],
  };
}

/** Formats a side as a file. */
export function exportSide(
  { shared, sides }: Settings,
  side: number,
  format: "svg" | "csv",
): string {
  const analysis = analyzeSide(shared, sides[side]!);
  return format === "svg" ? formatSvg(analysis) : formatCsv(analysis.schedule.lists);
}

const ACTION = /^\d+[FBIWR]\d/;

/** Reads the events of a trace; a killed run has not written its end. */
function eventsIn(text: string): readonly Partial<ChromeEvent>[] {
  try {
    const events: unknown = JSON.parse(text.trim().replace(/,?\s*\]?$/, "]"));
    if (Array.isArray(events) && events.every((one) => one instanceof Object)) return events;
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  const start = JSON.stringify(text.slice(0, 40));
  throw refusal("read the trace", "it must be a JSON list of events", start);
}

/**
 * Reads the last complete step of the first replica of a trace that `troupe train --trace` or
 * `troupe schedule --format trace` wrote. Times are in milliseconds.
 *
 * @throws {RangeError} if it is not a trace, or has no actions.
 */
export function readTrace(text: string): { readonly csv: string; readonly timed: Timeline } {
  const actions = eventsIn(text).flatMap(({ ph, name, pid, tid = 0, ts = 0, dur = 0, args }) => {
    const isAction = ph === "X" && pid === 1 && typeof name === "string" && ACTION.test(name);
    if (!isAction || !(dur >= 0) || !Number.isFinite(ts + dur)) return [];
    return [{ step: args?.step ?? 0, tid, name, from: ts / 1e3, to: (ts + dur) / 1e3 }];
  });
  const steps = Array.from(
    Map.groupBy(actions, ({ step }) => step).values(),
    (own) => Map.groupBy(own, ({ tid }) => tid),
  );
  const most = Math.max(0, ...steps.map(({ size }) => size));
  const last = steps.findLast(({ size }) => size === most);
  if (!last) throw refusal("read the trace", "it must have actions of workers", "none");
  const rows = [...last].sort(([a], [b]) => a - b).map(([, row]) =>
    row.sort((a, b) => a.from - b.from)
  );
  const began = Math.min(...rows.map(([first]) => first!.from));
  const timesOf = (of: "from" | "to") =>
    rows.map((row) => Float64Array.from(row, (one) => one[of] - began));
  const starts = timesOf("from"), ends = timesOf("to");
  const makespan = Math.max(...ends.map((own) => own.at(-1)!));
  const csv = formatCsv(rows.map((row) => row.map(({ name }) => parseAction(name))));
  return { csv, timed: { starts, ends, makespan } };
}

/** An action, or one of two that overlap. */
export type Box = ReturnType<typeof boxSpans>[number];

/** A bubble, or a part of it with one cause. */
export type Gap = ReturnType<typeof gapSpans>[number];

/** The actions and bubbles of a worker, each in order of time. */
export type Spans = ReturnType<typeof spansOf>[number];

/** Reads the rows of a picture. */
export const spansOf = (picture: Picture) =>
  picture.rows.map((row) => ({ boxes: boxSpans(row, picture.pipelineOf), gaps: gapSpans(row) }));

function boxSpans({ actions, starts, ends, critical }: Row, pipelineOf: readonly number[]) {
  return actions.split(",").flatMap((action, i) => {
    const names = action.split("&");
    return names.map((name, lane) => {
      const at = name.search(/[A-Z]/), label = name.slice(at + 1); // the micro-batch with its part
      return {
        ...{ name, label, kind: name[at] as ActionKind, stage: Number(name.slice(0, at)) },
        pipeline: pipelineOf[parseInt(label)] ?? 0,
        /** Its number among overlapping actions, and their count. */
        ...{ lane, lanes: names.length },
        ...{ from: starts[i]!, to: ends[i]!, isCritical: critical[i] === 1 },
      };
    });
  });
}

const gapSpans = ({ gaps: { cause, from, to, text } }: Row) =>
  cause.map((one, i) => ({ cause: one, from: from[i]!, to: to[i]!, text: text[i]! }));
