/**
 * The expected timeline of a step: its schedule at the mean costs of the traced step.
 *
 * @module
 */

import { checkSizes } from "../../actors/options/limits.ts";
import type { TracedAction } from "../../actors/pipeline/step.ts";
import {
  type ActionKind,
  analyze,
  type Costs,
  formatAction,
  parseAction,
  type Schedule,
} from "../../schedules/mod.ts";
import { parts } from "../../schedules/internal.ts";
import { scheduleOf } from "../commands/schedule_flags.ts";
import type { RunRecord } from "../../actors/run_folder/metrics_file.ts";
import { hashOf } from "../../actors/run_folder/write.ts";
import type { TrainFlags } from "../train/flags.ts";
import type { Span } from "./state.ts";

/**
 * Creates the schedule of a run from its flags. Returns undefined for schedules from files or
 * searches, for more actions than are drawn, and for invalid flags.
 */
export function recordedSchedule(
  { flags: recorded, schedule, plan }: RunRecord,
): Schedule | undefined {
  const flags = recorded as TrainFlags, { workers, "micro-batches": microBatches } = flags;
  if (flags["schedule-file"] !== undefined || flags.schedule === "search") return undefined;
  try {
    checkSizes({ workers, microBatches, replicas: plan.replicas });
    if (workers * microBatches > ACTIONS_MAX / 2) return undefined;
    const made = scheduleOf(flags);
    const isSame = made.name === schedule.name && made.stages === plan.stages.length &&
      (made.lists && hashOf(made.lists)) === schedule.hash;
    return isSame ? made : undefined;
  } catch (error) {
    if (error instanceof RangeError || error instanceof TypeError) return undefined;
    throw error;
  }
}

/** Matches actions of a schedule; other names belong to the end of the step. */
const ACTION = /^\d+[FBIWR]\d/;

/**
 * Returns the expected actions of each worker of a data-parallel replica, if each action took the
 * mean of its stage in this step; empty if the costs are unknown.
 */
export function expectedSpans(
  schedule: Schedule,
  traces: readonly (readonly TracedAction[])[],
): readonly (readonly Span[])[] {
  try {
    const { schedule: { lists }, execution } = analyze(schedule, measuredCosts(schedule, traces));
    const { starts, ends } = execution.timeline;
    return lists.map((list, worker) =>
      Array.from(list, (action, i): Span => [
        formatAction(action),
        starts[worker]![i]!,
        ends[worker]![i]!,
      ])
    );
  } catch (error) {
    if (error instanceof RangeError) return [];
    throw error;
  }
}

/** Assumed lengths of actions relative to a forward, for overlapped actions. */
const LENGTHS: Readonly<Record<ActionKind, number>> = { F: 1, B: 2, I: 1, W: 1, R: 1 };

/** Returns the mean durations of actions, by kind and stage. */
function measuredCosts(
  { stages }: Schedule,
  traces: readonly (readonly TracedAction[])[],
): Costs {
  const sums = new Map<string, { total: number; count: number }>();
  for (const { name, start, end } of traces.flat()) {
    if (!ACTION.test(name)) continue;
    const run = parts(parseAction(name));
    const length = run.reduce((sum, { kind, part }) => sum + LENGTHS[kind] / (part?.count ?? 1), 0);
    for (const { kind, stage } of run) {
      const { total, count } = sums.get(`${kind}${stage}`) ?? { total: 0, count: 0 };
      const took = (end - start) * LENGTHS[kind] / length;
      sums.set(`${kind}${stage}`, { total: total + took, count: count + 1 });
    }
  }
  /** Returns the cost for each stage; the mean for stages without such an action. */
  const costsOf = (kind: ActionKind) => {
    const costs = Array.from({ length: stages }, (_, stage) => {
      const { total, count } = sums.get(`${kind}${stage}`) ?? { total: 0, count: 0 };
      return count === 0 ? undefined : total / count;
    });
    const known = costs.filter((cost) => cost !== undefined);
    const mean = known.reduce((sum, cost) => sum + cost, 0) / known.length;
    return known.length === 0 ? undefined : costs.map((cost) => cost ?? mean);
  };
  const forward = costsOf("F"), input = costsOf("I"), weight = costsOf("W");
  // A split backward is the sum of its parts.
  const others = { forward, recompute: costsOf("R") };
  return input && weight ? { ...others, input, weight } : { ...others, backward: costsOf("B") };
}

/** Limit of actions in a drawn step; more would take too long. */
export const ACTIONS_MAX = 20_000;
