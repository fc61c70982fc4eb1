/** What orders over slices count in: the slices of micro-batches, in the order of their work. */

import { type Action, sliced } from "../../actions/action.ts";
import type { ScheduleOptions } from "../../definition/options.ts";
import { linear } from "../../definition/placements.ts";
import type { Place } from "../../definition/rule.ts";

/** Makes a plain action: `F`, `B`, `I` or `W`. */
type Make = (stage: number, microBatch: number) => Action;

/** An action of a slice; of the micro-batch where that is not cut. */
export function sliceOf(
  action: Action,
  slice: number,
  { slices = 1 }: ScheduleOptions,
): Action {
  return slices === 1 ? action : sliced(action, slice);
}

/** The k-th forward of a stage: slices come in order. */
export function forwardOf(stage: number, k: number, make: Make, options: ScheduleOptions): Action {
  const { slices = 1 } = options;
  return sliceOf(make(stage, Math.floor(k / slices)), k % slices, options);
}

/** The k-th backward of a stage, of a kind: the last slice of a micro-batch comes first. */
export function backwardOf(stage: number, k: number, make: Make, options: ScheduleOptions): Action {
  const { slices = 1 } = options;
  return sliceOf(make(stage, Math.floor(k / slices)), slices - 1 - k % slices, options);
}

/** One stage for each worker, and micro-batches cut into slices. */
export function placeSliced(options: ScheduleOptions): Place {
  return { ...linear(options), slices: options.slices ?? 1 };
}
