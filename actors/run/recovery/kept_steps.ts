/**
 * The steps since a snapshot, kept to be taken again as far as there is room for them.
 *
 * @module
 */

import type { StageState } from "../../../kernels/mod.ts";
import type { StepRequest } from "../../pipeline/step.ts";

/**
 * Where nobody knows when the next snapshot comes, the micro-batches since the last one may take as
 * many bytes as it does, and so many always.
 */
const KEPT_BYTES = 2 ** 24;

/** The steps since a snapshot. */
export interface KeptSteps {
  /** The most bytes that their micro-batches may take. */
  readonly limitBytes: number;
  /** What their micro-batches take. */
  bytes: number;
  /** The steps in order; none once they were too many. */
  steps: StepRequest[];
  /** Whether they were too many. */
  areLost: boolean;
}

/** No steps yet, and room for so many. */
export function keepSteps(limitBytes: number): KeptSteps {
  return { limitBytes, bytes: 0, steps: [], areLost: false };
}

/** Keeps one more, and tells if it is the first that is too many. */
export function keepStep(kept: KeptSteps, request: StepRequest): boolean {
  if (kept.areLost) return false;
  kept.steps.push(request);
  kept.bytes += bytesOf(request.microBatches.flatMap((fields) => Object.values(fields)));
  if (kept.bytes <= kept.limitBytes) return false;
  kept.areLost = true;
  kept.steps = [];
  return true;
}

/** The room for the steps after a snapshot, in bytes. */
export function roomAfter({ weights, moments }: StageState): number {
  return Math.max(KEPT_BYTES, bytesOf(weights.values()) + bytesOf(moments.values()));
}

const bytesOf = (values: Iterable<{ readonly byteLength: number }>) =>
  [...values].reduce((sum, { byteLength }) => sum + byteLength, 0);
