/**
 * One step as it happened: what each worker did, when it did nothing and for whom it waited.
 *
 * @module
 */

import type { TracedAction } from "../../pipeline/step.ts";
import { alignClocks } from "./align.ts";
import { type Flow, flowsOf, sentAt } from "./flows.ts";
import { type Gap, type GapKind, gapsOf } from "./gaps.ts";
import { computes, readSpan, type Span } from "./span.ts";

/** One worker in a step. */
export interface WorkerTimeline {
  /** Its number over all data-parallel replicas. */
  readonly worker: number;
  /** What it did, in the order of time. */
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
 * A bubble is what the gaps come to. Clocks of several hosts are aligned by the messages between
 * neighbours of a pipeline, so far as one seems to have come before it was sent.
 *
 * @param traces for each worker what it did.
 * @param replicas data-parallel replicas, each with as many of the workers.
 * @throws {SyntaxError} if the name of an action is none.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { readStep } from "@troupe/troupe/actors";
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
  const workers = lists.map((spans, worker) =>
    workerTimeline(
      worker,
      spans,
      all.length === 0 ? [] : gapsOf(worker, spans, {
        start,
        end,
        senderOf,
        all,
      }),
    )
  );
  return all.length === 0 ? { start: 0, end: 0, workers, flows } : { start, end, workers, flows };
}

function lastSenders(flows: readonly Flow[]): Map<Span, Span> {
  const senders = new Map<Span, Span>();
  for (const { from, to } of flows) {
    const known = senders.get(to);
    if (!known || sentAt(from) > sentAt(known)) senders.set(to, from);
  }
  return senders;
}

function workerTimeline(
  worker: number,
  spans: readonly Span[],
  gaps: readonly Gap[],
): WorkerTimeline {
  const sum = (some: readonly (Span | Gap)[]) =>
    some.reduce((ms, { start, end }) => ms + end - start, 0);
  const gapMs = (kind: GapKind) => sum(gaps.filter((gap) => gap.kind === kind));
  return {
    worker,
    spans,
    gaps,
    busyMs: sum(spans.filter(computes)),
    reduceMs: sum(spans.filter(({ kind }) => kind === "reduce")),
    optimizerMs: sum(spans.filter(({ kind }) => kind === "optimizer")),
    gapMs: {
      input: gapMs("input"),
      message: gapMs("message"),
      inject: gapMs("inject"),
      reduce: gapMs("reduce"),
      optimizer: gapMs("optimizer"),
      pause: gapMs("pause"),
      idle: gapMs("idle"),
    },
  };
}
