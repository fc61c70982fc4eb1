/**
 * A step as its schedule plans it, at the costs that were measured in it.
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
  parts,
  type Schedule,
} from "../../schedules/mod.ts";
import { scheduleOf } from "../commands/schedule_flags.ts";
import type { RunRecord } from "../run_files/metrics_file.ts";
import type { TrainFlags } from "../train/flags.ts";
import type { Span } from "./state.ts";

/**
 * The schedule that the flags of a run name. Undefined for one of a file or a search, which would
 * take long, for one of more actions than are drawn, and for flags that make none.
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
    const isSame = made.name === schedule.name && made.stages === plan.stages.length;
    return isSame ? made : undefined;
  } catch (error) {
    if (error instanceof RangeError || error instanceof TypeError) return undefined;
    throw error;
  }
}

/** An action of a worker is one that the schedule has; all else ends the step. */
const ACTION = /^\d+[FBIWR]\d/;

/** Whether the name of something that a worker did is that of an action. */
const isAction = (name: string): boolean => ACTION.test(name);

/**
 * For each worker of a data-parallel replica what the schedule would have it do when, in
 * milliseconds, if every action of a stage took what those of this step took on the average.
 * Nothing where that cannot be said.
 */
export function plannedSpans(
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

/** How long actions are, compared with a forward, where two of them ran in one. */
const LENGTHS: Readonly<Record<ActionKind, number>> = { F: 1, B: 2, I: 1, W: 1, R: 1 };

/** What actions took on the average, by kind and stage. */
function measuredCosts(
  { stages, slices = 1 }: Schedule,
  traces: readonly (readonly TracedAction[])[],
): Costs {
  const sums = new Map<string, { total: number; count: number }>();
  for (const { name, start, end } of traces.flat()) {
    if (!isAction(name)) continue;
    const run = parts(parseAction(name));
    const length = run.reduce((sum, { kind, half }) => sum + lengthOf(kind, half), 0);
    for (const { kind, stage, slice } of run) {
      const { total, count } = sums.get(`${kind}${stage}`) ?? { total: 0, count: 0 };
      const took = (end - start) * LENGTHS[kind] / length * (slice === undefined ? 1 : slices);
      sums.set(`${kind}${stage}`, { total: total + took, count: count + 1 });
    }
  }
  /** One of each stage; of a stage that had none, the mean of the others. */
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
  // A backward is the sum of its parts where there are parts.
  const others = { forward, recompute: costsOf("R") };
  return input && weight ? { ...others, input, weight } : { ...others, backward: costsOf("B") };
}

const lengthOf = (kind: ActionKind, half: 0 | 1 | undefined) =>
  half === undefined ? LENGTHS[kind] : LENGTHS[kind] / 2;

/** A step with more than this is not drawn: it would take longer than until the next one. */
export const ACTIONS_MAX = 20_000;
