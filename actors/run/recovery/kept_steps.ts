/**
 * The steps since a state from which a run can be started again, kept to be taken again as far as
 * there is room for them.
 *
 * @module
 */

import type { StepRequest } from "../../pipeline/step.ts";

/** The most bytes that micro-batches of steps may take which a newer snapshot has made needless. */
export const KEPT_BYTES = 2 ** 24;

/** The fewest steps from one snapshot to the next, however many bytes their micro-batches take. */
export const SNAPSHOT_STEPS = 10;

/** The steps since the oldest state from which all can be started again. */
export interface KeptSteps {
  /** The most bytes that their micro-batches may take. */
  limitBytes: number;
  /** What their micro-batches take. */
  bytes: number;
  /** The steps in order, and where the pipe ran empty between them; none once they were too many. */
  steps: (StepRequest | "drained")[];
  /** How many came before them that are not kept any more. */
  dropped: number;
  /** Whether they were too many. */
  areLost: boolean;
}

/** No steps yet, and room for so many. */
export function keepSteps(limitBytes: number): KeptSteps {
  return { limitBytes, bytes: 0, steps: [], dropped: 0, areLost: false };
}

/** How many there have been, all in all: where the next one will be. */
export const stepsSoFar = ({ dropped, steps }: KeptSteps): number => dropped + steps.length;

/** Keeps one more, and tells whether they have become too many. */
export function keepStep(kept: KeptSteps, request: StepRequest): boolean {
  kept.steps.push(request);
  kept.bytes += bytesOf(request);
  return kept.bytes > kept.limitBytes;
}

/** Keeps that the pipe has run empty: steps that are taken again with a full one have other bits. */
export function keepDrained({ steps, areLost }: KeptSteps): void {
  if (!areLost && steps.length > 0) steps.push("drained");
}

/** Drops those before a place. */
export function dropSteps(kept: KeptSteps, before: number): void {
  for (const step of kept.steps.splice(0, before - kept.dropped)) {
    if (step !== "drained") kept.bytes -= bytesOf(step);
    kept.dropped++;
  }
}

function bytesOf({ microBatches }: StepRequest): number {
  return microBatches.flatMap((fields) => Object.values(fields))
    .reduce((sum, { byteLength }) => sum + byteLength, 0);
}
