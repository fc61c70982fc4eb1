/**
 * The steps since a state from which a run can be started again, kept to be taken again as far as
 * there is room for them.
 *
 * @module
 */

import type { StepRequest } from "../../pipeline/step.ts";

/** The most bytes that steps may take which a newer snapshot has made needless. */
export const KEPT_BYTES = 2 ** 24;

/** Bytes of a record, and of an array beside its numbers: what the system sees of many small ones, of
 * which V8's heap has 70 and 200. */
const RECORD_BYTES = 128, ARRAY_BYTES = 448;

/** The fewest steps from one snapshot to the next, however many bytes their micro-batches take. */
export const SNAPSHOT_STEPS = 10;

/** The steps since the oldest state from which all can be started again. */
export interface KeptSteps {
  /** The most bytes that they may take. */
  limitBytes: number;
  /** The bytes that they take. */
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

/** Bytes of a step beside the numbers in its fields. @param fields those of a micro-batch. */
export const overheadBytes = (microBatches: number, fields: number): number =>
  RECORD_BYTES + microBatches * (RECORD_BYTES + fields * ARRAY_BYTES);

function bytesOf({ microBatches }: StepRequest): number {
  // A field may be a text or a number, too.
  const sizes = microBatches.flatMap((fields) => Object.values<unknown>(fields))
    .map((value) => ArrayBuffer.isView(value) ? value.byteLength : 2 * String(value).length);
  const bytes = sizes.reduce((sum, one) => sum + one, ARRAY_BYTES * sizes.length);
  return bytes + overheadBytes(microBatches.length, 0);
}
