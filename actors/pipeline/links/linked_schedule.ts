/**
 * The skip edges of a compiled model, as schedules count them.
 *
 * @module
 */

import { type ModelProgram, skipEdges, startsOf } from "../../../kernels/mod.ts";
import { type Schedule, withEdges } from "../../../schedules/mod.ts";

/** A compiled model, and the runs of its kernels for each micro-batch. */
export interface LinkedModel {
  readonly model: ModelProgram;
  readonly halves: 1 | 2;
}

/** Runs of the kernels for each micro-batch, each with values of its own. */
export const runsOf = ({ model, halves }: LinkedModel): number =>
  halves * (model.slicing?.slices ?? 1);

/** The schedule with the values that go beyond the next stage where the model is cut. */
export function linkedSchedule(schedule: Schedule, compiled: LinkedModel): Schedule {
  const { model } = compiled, edges = skipEdges(model, startsOf(model, schedule.stages));
  if (edges.length === 0) return schedule;
  const runs = runsOf(compiled);
  return withEdges(
    schedule,
    edges.map(({ from, to, bytes, hasGradient }) => ({
      from,
      to,
      bytes: runs * bytes,
      hasGradient,
    })),
  );
}
