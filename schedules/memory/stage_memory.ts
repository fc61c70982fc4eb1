/** What a copy of a stage holds, in bytes: all the time, and of each micro-batch for a while. */

import type { Cost } from "../execution/costs.ts";
import { stageShares } from "../execution/stage_times.ts";
import type { Schedule } from "../schedule.ts";
import { recomputedStages } from "./recomputation.ts";

/** Bytes of one copy of a stage; of its activations for one micro-batch. */
export interface StageMemory {
  /** One version of the weights. */
  readonly weightBytes?: number | undefined;
  /** The gradients. */
  readonly gradientBytes?: number | undefined;
  /** The states of the optimizer; none where they are kept elsewhere. */
  readonly optimizerBytes?: number | undefined;
  /** What F keeps, from its start. */
  readonly keptBytes: number;
  /** What R brings back, or the start of B or I where there is no R. */
  readonly recomputedBytes?: number | undefined;
  /** Of what is kept and brought back, what the end of I frees; W frees the rest, B all. */
  readonly freedByInputBytes?: number | undefined;
  /** What an action of the stage needs only while it runs. */
  readonly workBytes?: number | undefined;
  /** The array in which an activation leaves and its gradient comes back: from F to B or I. */
  readonly messageBytes?: number | undefined;
}

/**
 * Bytes of 1/P of a model, or of each of any number of slices of it, as costs are given: of a model
 * whose stages are not known one by one.
 */
export interface MemoryCosts {
  /** Weights; 0 unless given. */
  readonly weights?: Cost | undefined;
  /** Gradients; as many as weights unless given. */
  readonly gradients?: Cost | undefined;
  /** States of the optimizer; twice the weights unless given, as AdamW has in FP32. */
  readonly optimizer?: Cost | undefined;
  /** What the backward of a micro-batch reads; 0 unless given. */
  readonly activations?: Cost | undefined;
  /** Of these what F keeps where an R brings back the rest; 0 unless given. */
  readonly kept?: Cost | undefined;
  /** Of the activations what I frees; 0 unless given: then W frees all. */
  readonly freedByInput?: Cost | undefined;
  /** What is handed from stage to stage, whatever a stage is of the model; 0 unless given. */
  readonly message?: number | undefined;
}

/**
 * What each stage of a schedule holds, its share of the model's.
 *
 * @throws {RangeError} if a number is not usable, or the model is cut into slices that the stages
 * cannot share.
 *
 * @example A stage with an R keeps only its input
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { createSchedule, stageMemories } from "@troupe/troupe/schedules";
 *
 * const schedule = createSchedule("interleaved", { workers: 2, microBatches: 2, chunks: 2 });
 * const [first] = stageMemories(schedule, { weights: 100, activations: [8, 8, 8, 8] });
 * deepStrictEqual(first, {
 *   weightBytes: 50,
 *   gradientBytes: 50,
 *   optimizerBytes: 100,
 *   keptBytes: 8,
 *   recomputedBytes: 0,
 *   freedByInputBytes: 0,
 *   messageBytes: 0,
 * });
 * ```
 */
export function stageMemories(schedule: Schedule, bytes: MemoryCosts): StageMemory[] {
  const share = (name: keyof MemoryCosts, cost: Cost = 0) => stageShares(schedule, name, cost);
  const weights = share("weights", bytes.weights);
  const gradients = share("gradients", bytes.gradients ?? bytes.weights);
  const optimizer = bytes.optimizer === undefined
    ? weights.map((one) => 2 * one)
    : share("optimizer", bytes.optimizer);
  const activations = share("activations", bytes.activations), kept = share("kept", bytes.kept);
  const freed = share("freedByInput", bytes.freedByInput);
  const recomputed = recomputedStages(schedule);
  return Array.from({ length: schedule.stages }, (_, stage) => {
    const all = activations[stage]!, keptBytes = recomputed.has(stage) ? kept[stage]! : all;
    if (keptBytes > all || freed[stage]! > all) {
      throw new RangeError(
        `Cannot use these bytes: what is kept or freed of the activations must be at most ` +
          `${all} for stage ${stage}, received ${Math.max(keptBytes, freed[stage]!)}`,
      );
    }
    return {
      weightBytes: weights[stage]!,
      gradientBytes: gradients[stage]!,
      optimizerBytes: optimizer[stage]!,
      keptBytes,
      recomputedBytes: all - keptBytes,
      freedByInputBytes: freed[stage]!,
      messageBytes: stage < schedule.stages - 1 ? bytes.message ?? 0 : 0,
    };
  });
}
