/**
 * Timeline of one step: the actions of each worker, its gaps, and their causes.
 *
 * [Note: clocks of hosts] Workers of one host read one clock; the clocks of several hosts may be
 * milliseconds apart. A message that seems to arrive before it was sent shows that the clock of its
 * receiver is behind. The shift is then chosen so that the fastest messages in both directions take
 * equal time, as in NTP; without such a message nothing is shifted. Only neighbours in the pipeline
 * are compared, so the replicas of a run on many hosts each keep the clock of their first worker.
 *
 * @module
 */

import { type Action, type ActionKind, formatAction, parseAction } from "../../schedules/mod.ts";
import { cutInto, parts } from "../../schedules/internal.ts";
import type { TracedAction } from "../pipeline/step.ts";

/** A traced action, read. */
export interface Span extends TracedAction {
  /** The worker, counted over all data-parallel replicas. */
  readonly worker: number;
  /** F, B, I, W or R, a joint action (`F&B`), a part of an all-reduce, or a bucket. */
  readonly kind: ActionKind | "F&B" | "reduce" | "optimizer" | "other";
  /** The stages that it is of; none where its name does not say. */
  readonly stages: readonly number[];
  /** The plain actions that it ran; none of an all-reduce or the optimizer. */
  readonly actions: readonly Action[];
}

const ACTION = /^\d+[FBIWR]\d/;

/**
 * Reads what a worker did.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const { kind, stages } = readSpan({ name: "reduce 0,3", start: 0, end: 1 }, 0);
 * assert.deepEqual([kind, stages], ["reduce", [0, 3]]);
 * ```
 */
export function readSpan(traced: TracedAction, worker: number): Span {
  const { name, stage } = traced, named = stage === undefined ? [] : [stage];
  if (ACTION.test(name)) {
    const actions = parts(parseAction(name)), kinds = new Set(actions.map(({ kind }) => kind));
    const stages = [...new Set(actions.map(({ stage }) => stage))];
    const kind = kinds.size === 1 ? actions[0]!.kind : "F&B";
    return { ...traced, worker, kind, stages, actions };
  }
  const [word, list = ""] = name.split(" ");
  if (word === "reduce") {
    const stages = list === "" ? named : list.split(",").map(Number);
    return { ...traced, worker, kind: "reduce", stages, actions: [] };
  }
  const kind = word === "optimizer" ? word : "other";
  return { ...traced, worker, kind, stages: named, actions: [] };
}

/** Returns whether it ran forwards or backwards. */
export const computes = ({ actions }: Span): boolean => actions.length > 0;

/** The output of an action is the input of one on another worker. */
export interface Flow {
  /** The span that sent it. */
  readonly from: Span;
  /** The span that received it. */
  readonly to: Span;
}

/** Returns the output of an action: an activation or a gradient of a stage and a micro-batch. */
const outputOf = (action: Action): string =>
  formatAction({ ...action, kind: action.kind === "F" ? "F" : "B" });

/** The outputs that an action takes, any of which may be missing as the other form was sent. */
function inputsOf(action: Action): string[] {
  const { kind, stage, part, ...rest } = action;
  if (kind === "W" || kind === "R") return [];
  if (kind === "F") return stage === 0 ? [] : [outputOf({ ...action, stage: stage - 1 })];
  const whole: Action = { ...rest, kind: "B", stage: stage + 1 };
  const all = part ? [part] : cutInto(2);
  return [whole, ...all.map((part) => ({ ...whole, part }))].map(outputOf);
}

/** Returns the time at which the output of an action was sent, by the trace. */
const sentAt = ({ sent, end }: Span): number => sent ?? end;

/**
 * Returns the flows between the workers of one data-parallel replica, in the order of receipt.
 *
 * @param spans Spans by worker and time.
 */
function flowsOf(spans: readonly Span[]): Flow[] {
  const senders = new Map<string, Span>();
  for (const span of spans) {
    for (const action of span.actions) {
      if (action.kind !== "W" && action.kind !== "R") senders.set(outputOf(action), span);
    }
  }
  return spans.flatMap((to) => {
    const froms = new Set(to.actions.flatMap(inputsOf).map((input) => senders.get(input)));
    return [...froms]
      .filter((from) => from !== undefined && from.worker !== to.worker)
      .map((from): Flow => ({ from: from!, to }));
  });
}

/** The least time that a message seemed to take from one worker to another, by `from/to`. */
function leastMs(flows: readonly Flow[]): Map<string, number> {
  const least = new Map<string, number>();
  for (const { from, to } of flows) {
    // Only the last output of a composed action has a time.
    if (from.actions.length > 1 || to.arrived === undefined) continue;
    const key = `${from.worker}/${to.worker}`, took = to.arrived - sentAt(from);
    least.set(key, Math.min(least.get(key) ?? Infinity, took));
  }
  return least;
}

/** Returns the milliseconds by which each worker's clock is ahead of the first of its replica. */
function aheadMs(workers: readonly number[], least: ReadonlyMap<string, number>) {
  const ahead = new Map<number, number>(), queue = workers.slice(0, 1);
  for (const first of queue) ahead.set(first, 0);
  for (let at = queue.shift(); at !== undefined; at = queue.shift()) {
    for (const other of workers.filter((one) => !ahead.has(one))) {
      const there = least.get(`${at}/${other}`), back = least.get(`${other}/${at}`);
      if (there === undefined && back === undefined) continue;
      const isWrong = Math.min(there ?? 0, back ?? 0) < 0;
      const shift = ((there ?? -back!) - (back ?? -there!)) / 2;
      ahead.set(other, ahead.get(at)! + (isWrong ? shift : 0));
      queue.push(other);
    }
  }
  return ahead;
}

/**
 * The spans of one data-parallel replica with one clock, that of the first worker.
 *
 * @param replica the spans of each of its workers.
 */
function alignClocks(replica: readonly (readonly Span[])[]): (readonly Span[])[] {
  const workers = replica.flatMap((spans) => spans[0] ? [spans[0].worker] : []);
  const ahead = aheadMs(workers, leastMs(flowsOf(replica.flat())));
  return replica.map((spans) => {
    const shift = spans[0] ? ahead.get(spans[0].worker) ?? 0 : 0;
    return shift === 0 ? spans : spans.map((span) => shifted(span, -shift));
  });
}

/** Returns an action whose times are later. */
export const shifted = <T extends TracedAction>(traced: T, by: number): T => {
  const { start, end, arrived, sent, ...rest } = traced;
  return {
    ...rest,
    ...{ start: start + by, end: end + by },
    ...arrived !== undefined && { arrived: arrived + by },
    ...sent !== undefined && { sent: sent + by },
  } as T;
};

/**
 * Cause of a gap:
 *
 * - `input`: another worker still computed the input;
 * - `message`: the input was in transit;
 * - `inject`: stage 0 waited for its next micro-batch, because their number is limited;
 * - `reduce`: the all-reduce waited for another copy of the stage;
 * - `optimizer`: the commit waited for the last gradients of others;
 * - `pause`: between two actions whose inputs had arrived: messages, the choice of the next;
 * - `idle`: no action was left, while others continued.
 */
export type GapKind = typeof GAP_KINDS[number];

/** All causes. */
const GAP_KINDS = ["input", "message", "inject", "reduce", "optimizer", "pause", "idle"] as const;

/** Some time in which a worker did nothing. */
export interface Gap {
  /** The worker, counted over all data-parallel replicas. */
  readonly worker: number;
  /** When it began, in milliseconds since the epoch. */
  readonly start: number;
  /** When it ended. */
  readonly end: number;
  /** Cause. */
  readonly kind: GapKind;
  /** Description of the cause: `waits for worker 1: 2F0`. */
  readonly cause: string;
  /** The action on another worker that ended last before the gap closed, if the worker waited for one. */
  readonly by?: { readonly worker: number; readonly name: string } | undefined;
}

/** Data from which the gaps of a worker are derived. */
interface GapSources extends Pick<StepTimeline, "start" | "end"> {
  /** The sender of the last input of each span with inputs from other workers. */
  readonly senderOf: ReadonlyMap<Span, Span>;
  /** Spans of all workers. */
  readonly all: readonly Span[];
}

/** The gaps of one worker, in the order of time. */
function gapsOf(worker: number, own: readonly Span[], sources: GapSources): Gap[] {
  const gaps: Gap[] = [], { start, end } = sources;
  let free = start, before: Span | undefined;
  for (const span of own) {
    if (span.start > free) gaps.push(...gapsBefore(span, free, before, sources));
    free = Math.max(free, span.end);
    before = span;
  }
  if (end > free) {
    gaps.push({ worker, start: free, end, kind: "idle", cause: "nothing to do" });
  }
  return gaps;
}

/** Returns the successive causes for which a free worker did not start an action. */
function gapsBefore(
  span: Span,
  free: number,
  before: Span | undefined,
  sources: GapSources,
): Gap[] {
  if (computes(span)) return beforeAction(span, free, sources.senderOf.get(span));
  const { worker, start: end, kind, stages } = span, from = { worker, start: free, end };
  const last = lastOther(span, free, sources.all), isReduce = kind === "reduce";
  const isPause = kind === "other" || !isReduce && before?.kind === "optimizer";
  if (!last || isPause) return [{ ...from, kind: "pause", cause: PAUSE }];
  const { worker: other, name } = last, by = { worker: other, name };
  const many = stages.length === 1 ? "stage" : "stages";
  const what = isReduce ? `all-reduce of ${many} ${stages.join(", ")}` : "optimizer";
  const cause = `${what}: waits for worker ${other}: ${name}`;
  return [{ ...from, kind: isReduce ? "reduce" : "optimizer", cause, by }];
}

const PAUSE = "between two actions";

function beforeAction(span: Span, free: number, sender: Span | undefined): Gap[] {
  const { worker, start, arrived = sender ? sentAt(sender) : free } = span;
  const gaps: Gap[] = [];
  let at = free;
  const until = (end: number, kind: GapKind, cause: string, by?: Gap["by"]) => {
    const to = Math.min(end, start);
    if (to > at) gaps.push({ worker, start: at, end: to, kind, cause, ...by && { by } });
    at = Math.max(at, to);
  };
  if (sender) {
    const { worker: other, name } = sender, by = { worker: other, name };
    const what = `worker ${other}: ${name}`;
    until(Math.min(sentAt(sender), arrived), "input", `waits for ${what}`, by);
    until(arrived, "message", `waits for the message of ${what}`, by);
  } else {
    until(arrived, "inject", `waits for the next micro-batch: ${formatAction(span.actions[0]!)}`);
  }
  until(start, "pause", PAUSE);
  return gaps;
}

/**
 * Returns the span that ended last on another worker while this one was free; for an all-reduce, of
 * its stages. An action votes shortly before its end, so an action about to end counts too.
 */
function lastOther(span: Span, free: number, all: readonly Span[]): Span | undefined {
  const { worker, start, kind, stages, chunk } = span;
  // It starts when all copies have voted, and continues as parts of its chunks arrive.
  const counts = chunk === undefined ? computes : ({ kind }: Span) => kind === "reduce";
  const others = all.filter((one) =>
    one.worker !== worker && one.kind !== "optimizer" && one.start < start && one.end > free &&
    (kind !== "reduce" || counts(one) && one.stages.some((stage) => stages.includes(stage)))
  );
  const awayMs = ({ end }: Span) => Math.abs(start - end);
  return others.sort((a, b) => awayMs(a) - awayMs(b))[0];
}

/** One worker in a step. */
export interface WorkerTimeline {
  /** Its number over all data-parallel replicas. */
  readonly worker: number;
  /** Spans in order of time. */
  readonly spans: readonly Span[];
  /** When it did nothing. Spans and gaps together fill the step. */
  readonly gaps: readonly Gap[];
  /** Milliseconds of F, B, I and W. */
  readonly busyMs: number;
  /** Milliseconds of the parts of all-reduces. */
  readonly reduceMs: number;
  /** Milliseconds of the optimizer. */
  readonly optimizerMs: number;
  /** Milliseconds of its gaps by why. */
  readonly gapMs: Readonly<Record<GapKind, number>>;
}

/** One step as it happened. */
export interface StepTimeline {
  /** When its first action began, in milliseconds since the epoch. */
  readonly start: number;
  /** When its last action ended. */
  readonly end: number;
  /** All workers, those of the first data-parallel replica first. */
  readonly workers: readonly WorkerTimeline[];
  /** Outputs that went from one worker to another. */
  readonly flows: readonly Flow[];
}

/**
 * Reads what the workers did in a step: `traces` of the event `step` of {@linkcode train}.
 *
 * The bubble is the sum of the gaps. Clocks of several hosts are aligned by messages between neighbours
 * of a pipeline that seem to arrive before they were sent.
 *
 * @param traces Actions of each worker.
 * @param replicas number of data-parallel replicas, which share the workers equally.
 * @throws {SyntaxError} if the name of an action is invalid.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const first = [{ name: "0F0", start: 0, end: 2 }, { name: "0B0", start: 7, end: 10, arrived: 7 }];
 * const second = [{ name: "1F0", start: 3, end: 5, arrived: 3 }, { name: "1B0", start: 5, end: 6 }];
 * const { workers: [worker], flows } = readStep([first, second]);
 * assert.equal(worker!.busyMs, 5);
 * assert.deepEqual(worker!.gaps.map(({ cause }) => cause), [
 *   "waits for worker 1: 1B0",
 *   "waits for the message of worker 1: 1B0",
 * ]);
 * assert.deepEqual(flows.map(({ from, to }) => `${from.name} ${to.name}`), ["1B0 0B0", "0F0 1F0"]);
 * ```
 */
export function readStep(
  traces: readonly (readonly TracedAction[])[],
  replicas = 1,
): StepTimeline {
  const perReplica = Math.max(1, traces.length / replicas);
  const read = traces.map((trace, worker) => trace.map((traced) => readSpan(traced, worker)));
  const lists: (readonly Span[])[] = [], flows: Flow[] = [];
  for (let first = 0; first < read.length; first += perReplica) {
    const replica = alignClocks(read.slice(first, first + perReplica));
    lists.push(...replica);
    for (const flow of flowsOf(replica.flat())) flows.push(flow);
  }
  const all = lists.flat(), senderOf = lastSenders(flows);
  const start = all.reduce((least, span) => Math.min(least, span.start), Infinity);
  const end = all.reduce((most, span) => Math.max(most, span.end), -Infinity);
  const sources = { start, end, senderOf, all }, isEmpty = all.length === 0;
  const workers = lists.map((spans, worker): WorkerTimeline => {
    const gaps = isEmpty ? [] : gapsOf(worker, spans, sources);
    const gapMs = GAP_KINDS.map((kind) => [kind, sumMs(gaps.filter((gap) => gap.kind === kind))]);
    return {
      worker,
      spans,
      gaps,
      busyMs: sumMs(spans.filter(computes)),
      reduceMs: sumMs(spans.filter(({ kind }) => kind === "reduce")),
      optimizerMs: sumMs(spans.filter(({ kind }) => kind === "optimizer")),
      gapMs: Object.fromEntries(gapMs),
    };
  });
  return isEmpty ? { start: 0, end: 0, workers, flows } : { start, end, workers, flows };
}

function lastSenders(flows: readonly Flow[]): Map<Span, Span> {
  const senders = new Map<Span, Span>();
  for (const { from, to } of flows) {
    const known = senders.get(to);
    if (!known || sentAt(from) > sentAt(known)) senders.set(to, from);
  }
  return senders;
}

const sumMs = (some: readonly (Span | Gap)[]) =>
  some.reduce((ms, { start, end }) => ms + end - start, 0);
