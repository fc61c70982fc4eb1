/** The schedule: which worker holds which stages, and what each of them does in one step. */

import type { ActionList } from "./actions/action_list.ts";
import type { SkipEdge } from "./edges/skip_edge.ts";
import type { ListPolicy } from "./policies/list_policies.ts";
import type { StepPolicy } from "./policies/policy.ts";

/** One stage of one replica of the pipeline, as a worker holds it. */
export interface PlacedStage {
  /** The stage of the model, from 0. */
  readonly stage: number;
  /** The replica of the pipeline, from 0; Chimera's down pipes come before its up pipes. */
  readonly replica: number;
}

/**
 * When the weights change: after the step (`flush`), after every backward of a micro-batch while
 * older versions are kept (`every-backward`, PipeDream), or after the step while the version
 * before is kept (`double-buffered`, PipeDream-2BW).
 */
export type WeightUpdates = "flush" | "every-backward" | "double-buffered";

/** Micro-batches that a worker holds in each of its stages when it holds most. */
export interface PeakBounds {
  /** However late messages come, so many. */
  readonly least: number;
  /** However early they come, no more. */
  readonly most: number;
}

/**
 * A schedule: plain data but for `policy`, the same on every worker that asks for it with the same
 * name and options.
 */
export interface Schedule {
  /** The name it was asked for by. */
  readonly name: string;
  /** The number of workers, over which all replicas of the pipeline are laid. */
  readonly workers: number;
  /** The number of stages that one copy of the model is cut into. */
  readonly stages: number;
  /** The micro-batches of one optimizer step, all replicas of the pipeline together. */
  readonly microBatches: number;
  /** The slices that each micro-batch's sequence is cut into; 1 unless given. */
  readonly slices?: number;
  /** The values that stages use beyond what the stage before hands them; none unless given. */
  readonly edges?: readonly SkipEdge[];
  /** For each worker, the stages that it holds, by ascending replica and stage. */
  readonly placement: readonly (readonly PlacedStage[])[];
  /** For each micro-batch, the replica of the pipeline that computes it. */
  readonly replicaOf: readonly number[];
  /** For each worker, what it does in order; absent where messages decide. */
  readonly lists?: readonly ActionList[];
  /** How the lists are followed: to the letter unless given. */
  readonly listPolicy?: ListPolicy;
  /** The micro-batches that the supervisor may have in flight at a time. */
  readonly injectionLimit: number;
  /** For each worker what it holds where messages decide; up to `injectionLimit` where not given. */
  readonly peaks?: readonly PeakBounds[];
  /** When the weights change. */
  readonly updates: WeightUpdates;
  /** For each worker, the versions of its weights that it keeps; 1 unless updates are early. */
  readonly weightVersions: readonly number[];
  /** A new policy for a worker, good for one optimizer step. */
  policy(worker: number): StepPolicy;
}

/** A schedule whose order is known: every list is there. */
export type ListedSchedule = Schedule & { readonly lists: readonly ActionList[] };
