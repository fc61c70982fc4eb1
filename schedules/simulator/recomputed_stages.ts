/** The stages of which a schedule has recomputations as actions. */

import { KIND } from "../actions/action_list.ts";
import type { Schedule } from "../schedule.ts";

/** For each stage, 1 where a list has an R of it. */
export function recomputedStages({ stages, lists = [] }: Schedule): Uint8Array {
  const found = new Uint8Array(stages);
  for (const list of lists) {
    for (let part = 0; part < list.partCount; part++) {
      if (list.kindAt(part) === KIND.R) found[list.stageAt(part)] = 1;
    }
  }
  return found;
}
