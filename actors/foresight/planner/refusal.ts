/** What a planner says when nothing can be run. */

import { mebibytes } from "../../../kernels/mod.ts";
import type { Candidate, PlanSpace } from "./candidate.ts";

/** The candidate that needs least, and its bytes. */
export interface Unfit {
  readonly candidate: Candidate;
  readonly bytes: number;
}

/**
 * Why there is no plan.
 *
 * @param refusals of candidates that could not be served.
 * @param memory the limit, and what comes closest to it.
 */
export function refuseAll(
  { devices, batch }: PlanSpace,
  refusals: readonly string[],
  memory?: { readonly limit: number; readonly least: Unfit | undefined },
): RangeError {
  if (memory?.least === undefined) {
    return new RangeError(
      `Cannot plan a batch of ${batch} for ${devices} devices: there must be a run that can be trained, received none: ${
        refusals[0] ?? "no schedule serves them"
      }`,
    );
  }
  const { limit, least: { candidate, bytes } } = memory;
  return new RangeError(
    `Cannot plan within the memory limit: it must be at least ${mebibytes(bytes)} a worker (with ${
      describeCandidate(candidate)
    }), received ${mebibytes(limit, Math.floor)}, ${mebibytes(bytes - limit)} too little`,
  );
}

/** A candidate in a few words. */
function describeCandidate(candidate: Candidate): string {
  const { workers, replicas, microBatch, recompute, precision } = candidate;
  return [
    scheduleWords(candidate),
    `D ${workers}`,
    `W ${replicas}`,
    `B ${microBatch}`,
    ...recompute === "none" ? [] : [`recompute ${recompute}`],
    ...precision === "fp32" ? [] : [precision],
  ].join(", ");
}

/** Words for options of schedules; of the empty ones the value says enough. */
const WORDS: Readonly<Record<string, string>> = {
  pipelines: "f ",
  pipelineLimit: "limit ",
  order: "",
  scale: "",
};

/** The schedule of a candidate with its options, such as `interleaved, chunks 2`, and its layout. */
export function scheduleWords({ schedule, options, layout }: Candidate): string {
  const own = Object.entries(options).map(([name, value]) =>
    `${WORDS[name] ?? `${name} `}${value}`
  );
  return [schedule, ...own, ...layout === undefined ? [] : [`layout ${layout}`]].join(", ");
}
