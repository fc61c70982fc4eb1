/** Recomputation as an action: the stages that recompute, and schedules with R added. */

import { type Action, formatAction, parts, R } from "../action.ts";
import { KIND, partsOf } from "../action_list.ts";
import { assertInput, refusal } from "../errors.ts";
import { type ListedSchedule, type Schedule, withOrders } from "../schedule.ts";

/** The stages that have an R. */
export function recomputedStages({ lists = [] }: Schedule): Set<number> {
  return new Set(lists.flatMap((list) => Array.from(partsOf(list, KIND.R), ({ stage }) => stage)));
}

/** The plain actions of all workers, each with the next one of the same copy of its stage, if any. */
export function* followedActions(
  { lists = [], pipelineOf }: Pick<Schedule, "lists" | "pipelineOf">,
) {
  for (const list of lists) {
    const last = new Map<string, Action>();
    for (const action of [...list].flatMap(parts)) {
      const copy = `${action.stage} ${pipelineOf[action.microBatch]}`, before = last.get(copy);
      if (before) yield { action: before, next: action };
      last.set(copy, action);
    }
    for (const action of last.values()) yield { action, next: undefined };
  }
}

/**
 * A schedule whose stages keep only their inputs and recompute the rest: an R comes directly before
 * each backward, so that it runs while the worker waits for the gradient. A stage whose backward
 * directly follows its forward has its activations still: such stages, as the last one of 1F1B, have no
 * R and keep everything.
 *
 * @param stages Selects the stages that recompute; all unless given.
 * @throws {RangeError} if the schedule has no lists, if it has an R already, or if it has parts of
 * micro-batches or overlaps.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { createSchedule, withRecomputation } from "@troupe/troupe/schedules";
 *
 * const { lists } = withRecomputation(createSchedule("1f1b", { workers: 2, microBatches: 2 }));
 * strictEqual(lists.join("\n"), "0F0,0F1,0R0,0B0,0R1,0B1\n1F0,1B0,1F1,1B1");
 * ```
 */
export function withRecomputation(
  schedule: Schedule,
  stages: (stage: number) => boolean = () => true,
): ListedSchedule {
  const { lists, name } = schedule;
  const cannot = `put recomputations into the schedule ${name}`;
  if (!lists) throw refusal(cannot, "it must have lists", "a policy");
  const all = lists.flatMap((list) => [...list]);
  assertInput(recomputedStages(schedule).size === 0, cannot, "it must have none", "some");
  const cut = all.find(({ part }) => part !== undefined);
  if (cut) throw refusal(cannot, "its actions must be of whole micro-batches", formatAction(cut));
  const overlaps = all.some(({ overlap }) => overlap !== undefined);
  assertInput(!overlaps, cannot, "no action may overlap another", "some that do");
  const distant = new Set<number>();
  for (const { action, next } of followedActions(schedule)) {
    const isAtOnce = next?.microBatch === action.microBatch;
    if (action.kind === "F" && !isAtOnce && stages(action.stage)) distant.add(action.stage);
  }
  const orders = lists.map((list) =>
    [...list].flatMap((action) =>
      (action.kind === "B" || action.kind === "I") && distant.has(action.stage)
        ? [R(action.stage, action.microBatch), action]
        : [action]
    )
  );
  return withOrders(schedule, name, orders);
}
