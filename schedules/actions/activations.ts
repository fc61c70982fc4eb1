/** The activations that a list keeps: from F to B, or to W where the backward is split. */

import { type ActionList, KIND } from "./action_list.ts";

/** How many more activations a worker holds after a part of its list than before. */
export function activationChange(list: ActionList, part: number): number {
  const kind = list.kindAt(part);
  if (kind === KIND.F) return 1;
  if (kind === KIND.I) return 0;
  return list.halfAt(part) === 0 ? -1 : -0.5;
}

/** The most (stage, micro-batch) activations at a time. */
export function peakOf(list: ActionList): number {
  let live = 0;
  let peak = 0;
  for (let part = 0; part < list.partCount; part++) {
    live += activationChange(list, part);
    peak = Math.max(peak, live);
  }
  return peak;
}
