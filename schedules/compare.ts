/** Compares all schedules that serve the same options. */

import type { ScheduleOptions } from "./definition/options.ts";
import { readOptions } from "./definition/read_options.ts";
import { type Analysis, analyze } from "./execution/analyze.ts";
import type { Costs } from "./execution/costs.ts";
import { scheduleDefinitions } from "./registry.ts";

/** The schedules that serve some options, and those that do not. */
export interface Comparison {
  /** The measures of those that do: fewest bubbles first, then fewest activations and weights. */
  readonly analyses: readonly Analysis[];
  /** Those that do not, and why. */
  readonly refused: readonly { readonly name: string; readonly reason: string }[];
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
export function compareSchedules(options: ScheduleOptions, costs: Costs = {}): Comparison {
  const analyses: Analysis[] = [];
  const refused: { name: string; reason: string }[] = [];
  for (const definition of scheduleDefinitions) {
    try {
      analyses.push(
        analyze(definition.create(readOptions(definition, { ...options, costs })), costs),
      );
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      refused.push({ name: definition.name, reason: error.message });
    }
  }
  analyses.sort((a, b) =>
    a.bubbleRatio - b.bubbleRatio || most(a.peakActivations) - most(b.peakActivations) ||
    most(a.weights) - most(b.weights)
  );
  return { analyses, refused };
}

function most(values: readonly number[]): number {
  return values.reduce((a, b) => Math.max(a, b), 0);
}
