/**
 * The placement of all stage copies: data-parallel replicas of a schedule's placement.
 *
 * Worker w of replica r is actor r·D + w. Copy order is replica by replica, and within a replica
 * pipeline by pipeline, Chimera's down pipes before its up pipes. Gradients are added in this order.
 *
 * @module
 */

import type { ModelProgram, StageProgram, StageValues, ValueArray } from "../../kernels/mod.ts";
import { isSkip, keyed, skipEdges, stageValues, startsOf } from "../../kernels/internal.ts";
import type { PlacedStage, Schedule } from "../../schedules/mod.ts";
import { withEdges } from "../../schedules/internal.ts";

/** One copy of a stage. */
export interface StageCopy {
  /** The stage of the model. */
  readonly stage: number;
  /** Its place among the copies of the stage, in copy order. */
  readonly rank: number;
  /** The data-parallel replica. */
  readonly replica: number;
  /** The pipeline within the replica. */
  readonly pipe: number;
  /** The worker that holds it, counted over all replicas. */
  readonly worker: number;
}

/** Returns the number of pipelines: the copies of each stage in one data-parallel replica. */
export function pipelineCount({ placement }: Pick<Schedule, "placement">): number {
  return 1 + Math.max(...placement.flat().map(({ pipeline }) => pipeline));
}

/** Returns for each stage its copies, in copy order. */
export function copiesOf(
  { placement, stages }: Pick<Schedule, "placement" | "stages">,
  replicas: number,
): readonly (readonly StageCopy[])[] {
  const pipes = pipelineCount({ placement });
  const hostOf = (stage: number, pipe: number) =>
    placement.findIndex((held) =>
      held.some((one: PlacedStage) => one.stage === stage && one.pipeline === pipe)
    );
  return Array.from(
    { length: stages },
    (_, stage) =>
      Array.from({ length: replicas * pipes }, (_, rank): StageCopy => {
        const pipe = rank % pipes, replica = (rank - pipe) / pipes;
        const worker = replica * placement.length + hostOf(stage, pipe);
        return { stage, rank, replica, pipe, worker };
      }),
  );
}

/**
 * Returns for each stage the worker that mirrors it, its buddy: the next one, if one worker holds all
 * copies of the stage; undefined if others have copies.
 */
export function buddiesOf(
  copies: readonly (readonly StageCopy[])[],
  workers: number,
): readonly (number | undefined)[] {
  return copies.map(([first, ...others]) => {
    const isAlone = workers > 1 && others.every(({ worker }) => worker === first!.worker);
    return isAlone ? (first!.worker + 1) % workers : undefined;
  });
}

/** Returns the schedule with the skip edges of the model between its stages. */
export function linkedSchedule(
  schedule: Schedule,
  { model, halves }: { readonly model: ModelProgram; readonly halves: 1 | 2 },
): Schedule {
  const edges = skipEdges(model, startsOf(model, schedule.stages));
  if (edges.length === 0) return schedule;
  // The kernels run several times for each micro-batch, each time with separate values.
  const runs = halves * (model.slicing?.slices ?? 1);
  const linked = edges.map(({ key: _, bytes, ...edge }) => ({ ...edge, bytes: runs * bytes }));
  return withEdges(schedule, linked);
}

/** A stage in the chain, with the values that cross its border by name. */
type RoutedStage = Pick<StageCopy, "stage"> & Pick<StageProgram, "skips">;

/** The number of stages that send inputs to the forward of a stage, one message each. */
export function sourceCount({ stage, skips = [] }: RoutedStage): number {
  const sources = new Set(skips.map(({ from }) => from)).add(stage - 1);
  return [...sources].filter((one) => one !== undefined && one >= 0).length;
}

/** Splits the outputs of an action among the stages that take them, the next of the chain first. */
export function routesOf(
  { stage, skips = [] }: RoutedStage,
  direction: "F" | "B",
  passed: StageValues,
): ReadonlyMap<number, StageValues> {
  const next = direction === "F" ? stage + 1 : stage - 1;
  if (skips.length === 0) return new Map([[next, passed]]);
  const values = keyed(passed), routes = new Map<number, Record<string, ValueArray>>();
  if (next >= 0) routes.set(next, {});
  for (const [key, array] of Object.entries(values)) {
    const skip = isSkip(key) ? skips.find((one) => one.key === key)! : undefined;
    const to = !skip ? [next] : direction === "F" ? skip.to : [skip.gradientTo!];
    for (const [i, one] of to.entries()) {
      const record = routes.get(one) ?? {};
      // Each message transfers its own array.
      record[key] = i < to.length - 1 ? array.slice() : array;
      routes.set(one, record);
    }
  }
  return new Map([...routes].map(([to, record]) => [to, stageValues(record)]));
}
