/** The activations that a list keeps: from F to B, or to W where the backward is split. */

import { type ActionList, KIND } from "./action_list.ts";

/**
 * For each part of a list, how many more activations a worker holds after it than before, in those of
 * one stage and micro-batch, or of one slice where micro-batches are cut. Where there is an R, they
 * live from there on: the forward keeps only its input.
 */
export function activationChanges(list: ActionList): Float64Array {
  const recomputed = recomputedCells(list);
  const changes = new Float64Array(list.partCount);
  for (let part = 0; part < changes.length; part++) {
    const kind = list.kindAt(part);
    if (kind === KIND.R) changes[part] = 1;
    else if (kind === KIND.F) changes[part] = recomputed?.has(cellKey(list, part)) ? 0 : 1;
    else if (kind !== KIND.I) changes[part] = list.halfAt(part) === 0 ? -1 : -0.5;
  }
  return changes;
}

/** What has an R of its own; undefined where nothing has. */
function recomputedCells(list: ActionList): Set<string> | undefined {
  let cells: Set<string> | undefined;
  for (let part = 0; part < list.partCount; part++) {
    if (list.kindAt(part) === KIND.R) (cells ??= new Set()).add(cellKey(list, part));
  }
  return cells;
}

const cellKey = (list: ActionList, part: number) =>
  `${list.stageAt(part)} ${list.microBatchAt(part)} ${list.sliceAt(part)}`;

/** The most activations at a time, in those of a whole micro-batch of one stage. */
export function peakOf(list: ActionList): number {
  let live = 0, peak = 0;
  for (const change of activationChanges(list)) {
    live += change;
    peak = Math.max(peak, live);
  }
  return peak / list.slices;
}
