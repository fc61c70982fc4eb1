/** Comparison of all schedules that serve the same options. */

import { scheduleDefinitions } from "../built_in/registry.ts";
import type { Costs } from "../costs.ts";
import { readOptions, type ScheduleOptions } from "../define.ts";
import { edgesOfParts, withEdges } from "../schedule.ts";
import type { SkipEdge } from "../skip_edges.ts";
import { type Analysis, analyze } from "./analyze.ts";
import { activationLimitOf, type MemoryBudget, memoryWithin, type WorkerBytes } from "./memory.ts";
import { withRecomputation } from "./recomputation.ts";

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
  /** Skip edges between P equal parts of the model ({@linkcode edgesOfParts}). */
  readonly edges?: readonly SkipEdge[] | undefined;
  /** Called after each schedule with the comparison so far. */
  readonly found?: ((soFar: Comparison) => void) | undefined;
}

/**
 * Makes every schedule that serves the options, each with the options that it reads, and measures it
 * under the costs.
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
  { memory, isRecomputed, edges, found }: ComparedWith = {},
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
  for (const definition of scheduleDefinitions) {
    try {
      const asked = { ...limited, costs, edges, recomputeAhead: isRecomputed };
      const chain = definition.create(readOptions(definition, asked));
      const adds = isRecomputed && !definition.reads?.includes("recomputeAhead");
      const parts = { parts: options.workers, stages: chain.stages };
      const made = edges ? withEdges(chain, edgesOfParts(edges, parts)) : chain;
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
