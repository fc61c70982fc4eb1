/**
 * What an update policy is on a worker: the part of it that tells schedules with and without flushes
 * apart.
 *
 * @module
 */

import type { Handlers } from "../../runtime/mod.ts";
import type { WorkerMessage } from "../protocol.ts";
import type { OpenCopy } from "../stage_copies.ts";

/** When the weights of a worker step. */
export interface WeightUpdater {
  /** Which weights the forward of a micro-batch reads: 0 for the newest, 1 for those before. */
  ageOf(microBatch: number): number;
  /**
   * The gradients of a micro-batch have been added to those of a copy.
   *
   * @param part how much of the micro-batch.
   */
  afterBackward(copy: OpenCopy, microBatch: number, part: 1 | 0.5): Promise<void>;
  /** The messages about steps, from Begin to their end. */
  readonly handlers: Partial<Handlers<WorkerMessage>>;
}
