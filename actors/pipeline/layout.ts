/**
 * Where every copy of every stage sits: data-parallel replicas of a schedule's placement.
 *
 * Worker w of replica r is actor r·D + w. The copies of a stage stand in copy order: replica by
 * replica, and within one the pipelines in their order, Chimera's down pipes before its up pipes.
 * In this order their gradients are added.
 *
 * @module
 */

import type { PlacedStage, Schedule } from "../../schedules/mod.ts";

/** One copy of a stage. */
export interface StageCopy {
  /** The stage of the model. */
  readonly stage: number;
  /** Its place among the copies of the stage, in copy order. */
  readonly rank: number;
  /** The data-parallel replica. */
  readonly replica: number;
  /** The replica of the pipeline within it. */
  readonly pipe: number;
  /** The worker that holds it, counted over all replicas. */
  readonly worker: number;
}

/** Replicas of the pipeline: the copies of each stage within one data-parallel replica. */
export function pipesOf({ placement }: Pick<Schedule, "placement">): number {
  return 1 + Math.max(...placement.flat().map(({ pipeline }) => pipeline));
}

/** For each stage its copies in copy order. */
export function copiesOf(
  { placement, stages }: Pick<Schedule, "placement" | "stages">,
  replicas: number,
): readonly (readonly StageCopy[])[] {
  const pipes = pipesOf({ placement });
  const hostOf = (stage: number, pipe: number) =>
    placement.findIndex((held) =>
      held.some((one: PlacedStage) => one.stage === stage && one.pipeline === pipe)
    );
  return Array.from(
    { length: stages },
    (_, stage) =>
      Array.from({ length: replicas * pipes }, (_, rank): StageCopy => {
        const pipe = rank % pipes, replica = (rank - pipe) / pipes;
        return {
          stage,
          rank,
          replica,
          pipe,
          worker: replica * placement.length + hostOf(stage, pipe),
        };
      }),
  );
}
