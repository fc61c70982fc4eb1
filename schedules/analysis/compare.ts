/** Compares all schedules that serve the same options. */

import { scheduleDefinitions } from "../built_in/registry.ts";
import type { Costs } from "../costs.ts";
import { readOptions, type ScheduleOptions } from "../define.ts";
import { edgesOfParts, withEdges } from "../schedule.ts";
import type { SkipEdge } from "../skip_edges.ts";
import { type Analysis, analyze } from "./analyze.ts";
import { activationLimitOf, type MemoryBudget, memoryWithin, type WorkerBytes } from "./memory.ts";
import { withRecomputation } from "./recomputation.ts";

/** The schedules that serve some options, and those that do not. */
export interface Comparison {
  /** The measures of those that do: fewest bubbles first, then fewest activations and weights. */
  readonly analyses: readonly Analysis[];
  /** For each of them what its workers hold, where the bytes of the model are given. */
  readonly memory?: readonly (readonly WorkerBytes[])[];
  /** Those that do not, and why. */
  readonly refused: readonly { readonly name: string; readonly reason: string }[];
}

/** What schedules are compared with beside their costs. */
export interface ComparedWith {
  /** The bytes of the model; schedules that need more than their limit are left out. */
  readonly memory?: MemoryBudget | undefined;
  /** Whether stages compute again what they did not keep ({@linkcode withRecomputation}). */
  readonly isRecomputed?: boolean | undefined;
  /** Skip edges between P equal parts of the model ({@linkcode edgesOfParts}). */
  readonly edges?: readonly SkipEdge[] | undefined;
  /** Gets the schedules that were measured so far, after each of them. */
  readonly found?: ((soFar: Comparison) => void) | undefined;
}

/**
 * Makes every schedule that serves the options, each from those that it reads, and measures it
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
  const limited = { ...options, ...memory && limitsOf(options, memory) };
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

/** The activations that a limit in bytes leaves room for, or fewer where fewer are asked for. */
function limitsOf({ activationLimit }: ScheduleOptions, memory: MemoryBudget) {
  const limit = activationLimitOf(memory);
  if (limit === undefined) return {};
  return { activationLimit: Math.min(limit, activationLimit ?? Infinity) };
}

function most(values: readonly number[]): number {
  return values.reduce((a, b) => Math.max(a, b), 0);
}
