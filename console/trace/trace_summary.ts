/**
 * What a trace comes to, by worker.
 *
 * @module
 */

import { type Gap, type GapKind, readStep, type WorkerTimeline } from "../../actors/mod.ts";
import type { TraceReader } from "./read_trace.ts";

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
export interface Durations {
  readonly count: number;
  readonly p50Ms: number;
  readonly p95Ms: number;
}

/** A worker over all steps. Shares are of the time of all steps. */
export interface WorkerSummary {
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
export interface TraceSummary {
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
