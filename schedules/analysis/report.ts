/** Reports of the measures of schedules: a record for programs, text, and comparisons. */

import { formatAction } from "../action.ts";
import { findSchedule, scheduleDefinitions } from "../built_in/registry.ts";
import type { Costs } from "../costs.ts";
import { readOptions, type ScheduleOptions } from "../define.ts";
import { formatTable } from "../pictures/grid.ts";
import { type Schedule, withPartEdges } from "../schedule.ts";
import type { SkipEdge } from "../skip_edges.ts";
import { type Analysis, analyze, type Bubble, bubbles } from "./analyze.ts";
import { activationLimitOf, type MemoryBudget, memoryWithin, type WorkerBytes } from "./memory.ts";
import { withRecomputation } from "./recomputation.ts";

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
  return all.map(({ worker, start, end, before, waitsFor }) =>
    `worker ${worker} is idle from ${tidy(start)} to ${tidy(end)}: ` +
    `${formatAction(before!)} waits for ${formatAction(waitsFor!)}`
  );
}

/** Schedules compared under the same options. */
export interface Comparison {
  /** Measures, by ascending bubbles, then activations, then weights. */
  readonly analyses: readonly Analysis[];
  /** For each of them the bytes of its workers, if the bytes of the model are given. */
  readonly memory?: readonly (readonly WorkerBytes[])[];
  /** Schedules that cannot serve the options, with the reason. */
  readonly refused: readonly { readonly name: string; readonly reason: string }[];
}

/** Options of a comparison in addition to costs. */
export interface ComparedWith {
  /** The bytes of the model; schedules that need more than the limit are left out. */
  readonly memory?: MemoryBudget | undefined;
  /** True if stages recompute their activations ({@linkcode withRecomputation}). */
  readonly isRecomputed?: boolean | undefined;
  /** Skip edges between P equal parts of the model. */
  readonly edges?: readonly SkipEdge[] | undefined;
  /** Names of the schedules. Default: all. */
  readonly names?: readonly string[] | undefined;
  /** Called after each schedule with the comparison so far. */
  readonly found?: ((soFar: Comparison) => void) | undefined;
}

/**
 * Makes every schedule that serves the options, each with the options that it reads, and measures it
 * under the costs.
 *
 * @throws {RangeError} when a name is not that of a schedule.
 *
 * @example
 * ```ts
 * import { ok } from "node:assert/strict";
 * import { compareSchedules } from "@troupe/troupe/schedules";
 *
 * const { analyses, refused } = compareSchedules({ workers: 3, microBatches: 6 });
 * ok(analyses.some(({ schedule }) => schedule.name === "1f1b"));
 * ok(refused.some(({ name }) => name === "chimera")); // it wants an even number of workers
 * ```
 */
export function compareSchedules(
  options: ScheduleOptions,
  costs: Costs = {},
  { memory, isRecomputed, edges, names, found }: ComparedWith = {},
): Comparison {
  const limit = memory && activationLimitOf(memory);
  const limited = limit === undefined
    ? options
    : { ...options, activationLimit: Math.min(limit, options.activationLimit ?? Infinity) };
  const analyses: Analysis[] = [], bytesOf = new Map<Analysis, WorkerBytes[]>();
  const refused: { name: string; reason: string }[] = [];
  const compared = (): Comparison => {
    const sorted = analyses.toSorted((a, b) =>
      a.bubbleRatio - b.bubbleRatio || most(a.peakActivations) - most(b.peakActivations) ||
      most(a.weights) - most(b.weights)
    );
    return {
      analyses: sorted,
      ...memory && { memory: sorted.map((analysis) => bytesOf.get(analysis)!) },
      refused,
    };
  };
  for (const definition of names?.map(findSchedule) ?? scheduleDefinitions) {
    try {
      const asked = { ...limited, costs, edges, recomputeAhead: isRecomputed };
      const chain = definition.create(readOptions(definition, asked));
      const adds = isRecomputed && !definition.reads?.includes("recomputeAhead");
      const made = withPartEdges(chain, asked);
      const analysis = analyze(adds ? withRecomputation(made) : made, costs);
      if (memory) bytesOf.set(analysis, memoryWithin(analysis.schedule, memory));
      analyses.push(analysis);
      found?.(compared());
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      refused.push({ name: definition.name, reason: error.message });
    }
  }
  return compared();
}

/** The largest of some values. */
function most(values: readonly number[]): number {
  return values.reduce((a, b) => Math.max(a, b), 0);
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
