/** Reports of the measures of a schedule: a record for programs, and text. */

import { formatAction } from "../action.ts";
import { formatTable } from "../pictures/grid.ts";
import type { Schedule } from "../schedule.ts";
import { type Analysis, type Bubble, bubbles } from "./analyze.ts";
import type { Comparison } from "./compare.ts";

/** The output of `troupe schedule --format json`. */
interface ScheduleRecord
  extends
    Pick<Schedule, "name" | "workers" | "stages" | "microBatches" | "slices" | "edges">,
    Omit<Analysis, "schedule" | "execution" | "hops"> {
  /** For each worker, its stages, and for each of them the pipeline as `replica`. */
  readonly placement: readonly (readonly { readonly stage: number; readonly replica: number }[])[];
}

/**
 * The record of an analysis. Sums of durations are rounded to twelve digits, so that nine reads as 9.
 *
 * @example
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { analyze, createSchedule } from "@troupe/troupe/schedules";
 *
 * const { idle, peakActivations } = scheduleRecord(
 *   analyze(createSchedule("gpipe", { workers: 2, microBatches: 4 })),
 * );
 * deepStrictEqual([idle, peakActivations], [[3, 3], [4, 4]]);
 * ```
 */
export function scheduleRecord(analysis: Analysis): ScheduleRecord {
  const { schedule: { name, workers, stages, microBatches, ...schedule } } = analysis;
  const all = (values: readonly number[]) => values.map(tidy);
  return {
    ...{ name, workers, stages, microBatches },
    ...schedule.slices !== undefined && { slices: schedule.slices },
    placement: schedule.placement.map((held) =>
      held.map(({ stage, pipeline }) => ({ stage, replica: pipeline }))
    ),
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

/** Rounds away the errors of a sum of durations. */
function tidy(value: number): number {
  const rounded = Number(value.toPrecision(12));
  return Math.abs(rounded) < 1e-12 ? 0 : rounded;
}

const LONGEST_BUBBLES = 3;

/**
 * The longest bubbles between actions, one line each, with their causes.
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
 * Formats a comparison as a table.
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

/** Formats the smallest and the largest value. */
function range(values: readonly number[]): string {
  const [least, most] = [Math.min(...values), Math.max(...values)];
  return least === most ? short(least) : `${short(least)}..${short(most)}`;
}
