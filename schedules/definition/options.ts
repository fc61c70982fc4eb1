/** The options of a schedule. */

import type { SkipEdge } from "../edges/skip_edge.ts";
import type { Costs } from "../execution/costs.ts";
import type { ListedSchedule } from "../schedule.ts";
import type { MailboxOrder } from "../policies/message_driven_policy.ts";

/** An option that some schedules read; all read `workers` and `microBatches`. */
export type ScheduleOption = Exclude<keyof ScheduleOptions, "workers" | "microBatches">;

/** How a Chimera pipeline serves more micro-batches than workers (section 3.5). */
export type ChimeraScale = "direct" | "doubling" | "halving";

/** What a schedule is asked for; each schedule reads those that it knows. */
export interface ScheduleOptions {
  /** Workers of one pipeline. */
  readonly workers: number;
  /** Micro-batches of one optimizer step. */
  readonly microBatches: number;
  /** Message-driven: micro-batches in flight at a time; the number of workers unless given. */
  readonly pipelineLimit?: number | undefined;
  /** Message-driven: which message goes first; `fifo` unless given. */
  readonly order?: MailboxOrder | undefined;
  /** Interleaved and looped: stages on each worker; 2 unless given, and of `search` its choice. */
  readonly chunks?: number | undefined;
  /** Hanayo: waves; 1 unless given, and of `search` its choice. */
  readonly waves?: number | undefined;
  /** Slices of each micro-batch's sequence, where a schedule cuts them; 1 unless given. */
  readonly slices?: number | undefined;
  /** Chimera: the number of down pipes, which is also that of the up pipes; 1 unless given. */
  readonly pipelines?: number | undefined;
  /** Chimera: the way to serve more micro-batches than workers; `direct` unless given. */
  readonly scale?: ChimeraScale | undefined;
  /** Search: what to plan for; tF = tI = tW = 1 and no time for messages unless given. */
  readonly costs?: Costs | undefined;
  /**
   * The most activations of a worker, in 1/P of a micro-batch's. Search: P unless given. The elastic
   * policy: what the list itself needs unless given.
   */
  readonly activationLimit?: number | undefined;
  /** Search: the most weights of a worker, in 1/P of the model; 1 unless given. */
  readonly weightLimit?: number | undefined;
  /**
   * Search: true for the shortest order in which stages keep only their inputs
   * ({@linkcode withRecomputation}); the lists then have its R.
   */
  readonly recomputeAhead?: boolean | undefined;
  /** Search: skip edges between P equal parts of the model ({@linkcode edgesOfParts}). */
  readonly edges?: readonly SkipEdge[] | undefined;
  /** Search: gets each schedule that keeps the limits, as soon as it is found. */
  readonly found?: ((schedule: ListedSchedule, makespan: number) => void) | undefined;
}
