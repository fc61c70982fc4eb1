/**
 * The steps since a snapshot, kept to be taken again as far as there is room for them.
 *
 * @module
 */

import type { StateOf } from "../../../kernels/mod.ts";
import { bytesOfSource, type TensorSource } from "../../checkpoints/tensors/tensor_source.ts";
import type { StepRequest } from "../../pipeline/step.ts";

/**
 * Where nobody knows when the next snapshot comes, the micro-batches since the last one may take as
 * many bytes as it does, and so many always.
 */
export const KEPT_BYTES = 2 ** 24;

/** The steps since a snapshot. */
export interface KeptSteps {
  /** The most bytes that their micro-batches may take. */
  readonly limitBytes: number;
  /** What their micro-batches take. */
  bytes: number;
  /** The steps in order, and where the pipe ran empty between them; none once they were too many. */
  steps: (StepRequest | "drained")[];
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

/** Keeps that the pipe has run empty: steps that are taken again with a full one have other bits. */
export function keepDrained({ steps, areLost }: KeptSteps): void {
  if (!areLost && steps.length > 0) steps.push("drained");
}

/** The room for the steps after a snapshot, in bytes. */
export function roomAfter({ weights, moments }: StateOf<TensorSource>): number {
  const sources = [...weights.values(), ...moments.values()];
  return Math.max(KEPT_BYTES, sources.reduce((sum, source) => sum + bytesOfSource(source), 0));
}

const bytesOf = (values: Iterable<{ readonly byteLength: number }>) =>
  [...values].reduce((sum, { byteLength }) => sum + byteLength, 0);
