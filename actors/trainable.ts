/**
 * Which schedules the workers can execute.
 *
 * @module
 */

import {
  assertValid,
  formatAction,
  type ListedSchedule,
  parts,
  type Schedule,
} from "../schedules/mod.ts";

/**
 * Refuses a schedule that cannot train, before anything runs: one whose lists are not valid (they
 * would hang), and one that asks for what the workers do not do.
 *
 * @throws {RangeError} naming the schedule and what is in the way.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { createSchedule } from "@troupe/troupe/schedules";
 * import { assertTrainable } from "@troupe/troupe/actors";
 *
 * assertTrainable(createSchedule("1f1b", { workers: 4, microBatches: 8 }));
 * assert.throws(
 *   () => assertTrainable(createSchedule("chimera", { workers: 4, microBatches: 4 })),
 *   RangeError,
 * );
 * ```
 */
export function assertTrainable(schedule: Schedule): void {
  const obstacle = obstacleOf(schedule);
  if (obstacle !== undefined) {
    throw new RangeError(
      `Cannot train with the schedule ${schedule.name}: ${obstacle}; try gpipe, 1f1b or message-driven`,
    );
  }
  if (schedule.lists) assertValid(schedule as ListedSchedule);
}

function obstacleOf({ placement, updates, lists }: Schedule): string | undefined {
  if (placement.flat().some(({ replica }) => replica > 0)) {
    return "each stage must be on one worker, received replicas of the pipeline";
  }
  if (updates !== "flush") {
    return `weights must change at the end of a step, received updates ${updates}`;
  }
  for (const list of lists ?? []) {
    for (const action of list) {
      const part = parts(action).find(({ half }) => half !== undefined);
      if (part || action.second !== undefined) {
        return `its actions must be of one whole micro-batch, received ${formatAction(action)}`;
      }
    }
  }
  return undefined;
}
