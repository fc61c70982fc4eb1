/** The measures of a schedule as a record for programs and as lines for people. */

import { formatAction } from "../action.ts";
import { formatTable } from "../pictures/grid.ts";
import type { PlacedStage } from "../schedule.ts";
import type { SkipEdge } from "../skip_edges.ts";
import { type Analysis, type Bubble, bubbles } from "./analyze.ts";
import type { Comparison } from "./compare.ts";

/** What `troupe schedule --format json` prints. */
export interface ScheduleRecord {
  /** The name of the schedule. */
  readonly name: string;
  /** The number of workers, all replicas together. */
  readonly workers: number;
  /** The number of stages of one copy of the model. */
  readonly stages: number;
  /** The number of micro-batches, all replicas together. */
  readonly microBatches: number;
  /** The slices that each micro-batch's sequence is cut into; absent where it is whole. */
  readonly slices?: number;
  /** For each worker, the stages that it holds. */
  readonly placement: readonly (readonly PlacedStage[])[];
  /** The end of the last action. */
  readonly makespan: number;
  /** Idle time of all workers over workers times makespan. */
  readonly bubbleRatio: number;
  /** For each worker, makespan minus busy time. */
  readonly idle: readonly number[];
  /** For each worker, idle time between its first and last action. */
  readonly idleLocal: readonly number[];
  /** For each worker, in micro-batches of 1/P of the model. */
  readonly peakActivations: readonly number[];
  /** For each worker, in 1/P of the model. */
  readonly weights: readonly number[];
  /** The values that go beyond the next stage; absent for a chain. */
  readonly edges?: readonly SkipEdge[];
  /** For each worker, values and gradients that came over skip edges; absent for a chain. */
  readonly peakSkips?: readonly number[];
}

/**
 * The record of an analysis. Sums of durations are rounded to twelve digits, so that what is nine
 * reads as 9.
 *
 * @example
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { analyze, createSchedule, scheduleRecord } from "@troupe/troupe/schedules";
 *
 * const { idle, peakActivations } = scheduleRecord(
 *   analyze(createSchedule("gpipe", { workers: 2, microBatches: 4 })),
 * );
 * deepStrictEqual([idle, peakActivations], [[3, 3], [4, 4]]);
 * ```
 */
export function scheduleRecord(analysis: Analysis): ScheduleRecord {
  const { schedule } = analysis;
  const all = (values: readonly number[]) => values.map(tidy);
  return {
    name: schedule.name,
    workers: schedule.workers,
    stages: schedule.stages,
    microBatches: schedule.microBatches,
    ...schedule.slices !== undefined && { slices: schedule.slices },
    placement: schedule.placement,
    makespan: tidy(analysis.makespan),
    bubbleRatio: tidy(analysis.bubbleRatio),
    idle: all(analysis.idle),
    idleLocal: all(analysis.idleLocal),
    peakActivations: all(analysis.peakActivations),
    weights: all(analysis.weights),
    ...schedule.edges && { edges: schedule.edges },
    ...analysis.peakSkips && { peakSkips: all(analysis.peakSkips) },
  };
}

/** A sum of durations without the dust of its additions. */
function tidy(value: number): number {
  const rounded = Number(value.toPrecision(12));
  return Math.abs(rounded) < 1e-12 ? 0 : rounded;
}

const LONGEST_BUBBLES = 3;

/**
 * The longest bubbles between actions, one line each, and what they wait for.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { analyze, createSchedule, longestBubbles } from "@troupe/troupe/schedules";
 *
 * const [line] = longestBubbles(
 *   analyze(createSchedule("1f1b", { workers: 4, microBatches: 8 })),
 * );
 * strictEqual(line, "worker 0 is idle from 4 to 10: 0B0 waits for 1B0");
 * ```
 */
export function longestBubbles(analysis: Analysis): string[] {
  const all: Bubble[] = [];
  for (let worker = 0; worker < analysis.schedule.workers; worker++) {
    for (const bubble of bubbles(analysis, worker)) {
      if (bubble.waitsFor !== undefined && bubble.waitsFor.time > bubble.start) all.push(bubble);
    }
    all.sort((a, b) => (b.end - b.start) - (a.end - a.start)).splice(LONGEST_BUBBLES);
  }
  return all.map(({ worker, start, end, before, waitsFor }) => {
    const names = before && waitsFor && [formatAction(before), formatAction(waitsFor)];
    return `worker ${worker} is idle from ${tidy(start)} to ${tidy(end)}: ` +
      `${names?.[0]} waits for ${names?.[1]}`;
  });
}

/**
 * A comparison as a table.
 *
 * @example
 * ```ts
 * import { match } from "node:assert/strict";
 * import { compareSchedules, formatComparison } from "@troupe/troupe/schedules";
 *
 * const table = formatComparison(compareSchedules({ workers: 2, microBatches: 2 }));
 * match(table, /^schedule +bubble +time/);
 * ```
 */
export function formatComparison({ analyses, memory, refused }: Comparison): string {
  const bytes = memory?.map((workers) => `${range(workers.map(({ peak }) => peak / 2 ** 20))} MiB`);
  const hasSkips = analyses.some(({ peakSkips }) => peakSkips !== undefined);
  const head = ["schedule", "bubble", "time", "activations", "weights", "hops", "workers"];
  const rows = analyses.map(({ schedule, ...measures }, i) => [
    schedule.name,
    `${(100 * measures.bubbleRatio).toFixed(1)} %`,
    short(measures.makespan),
    range(measures.peakActivations),
    range(measures.weights),
    String(measures.hops),
    String(schedule.workers),
    ...hasSkips ? [range(measures.peakSkips ?? [0])] : [],
    ...bytes ? [bytes[i]!] : [],
    schedule.updates === "flush" ? "" : "asynchronous: no bubbles between flushes",
  ]);
  const titles = [...head, ...hasSkips ? ["skips"] : [], ...bytes ? ["memory"] : [], ""];
  const lines = formatTable([titles, ...rows], { left: [0, titles.length - 1] });
  const reasons = refused.map(({ reason }) => reason.replace("Cannot make the schedule ", ""));
  if (reasons.length > 0) lines.push("", "Not for these options:", ...reasons.map((r) => `  ${r}`));
  return lines.join("\n") + "\n";
}

function short(value: number): string {
  return String(Number(value.toFixed(2)));
}

/** The least and the most of all workers. */
function range(values: readonly number[]): string {
  const [least, most] = [Math.min(...values), Math.max(...values)];
  return least === most ? short(least) : `${short(least)}..${short(most)}`;
}
