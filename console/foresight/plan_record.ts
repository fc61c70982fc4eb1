/**
 * A plan as JSON: its fields stay as they are.
 *
 * @module
 */

import type { RunPlan } from "../../actors/foresight/planner/plan.ts";
import type { PlannedRun } from "../../actors/foresight/planner/planned_run.ts";
import { WORKERS_MAX } from "../../actors/run/options/sizes.ts";
import { trainArguments, trainCommandLine } from "./train_command.ts";

/** What was planned for. */
export interface PlanFacts {
  /** The flags that name the model. */
  readonly model: readonly string[];
  readonly devices: number;
  readonly batch: number;
  readonly memoryLimitBytes: number | undefined;
  readonly profile: { readonly source: string; readonly machine: string };
}

/** What a reader must know of a plan, whatever is chosen. */
export const factNotes = ({ devices }: PlanFacts): string[] =>
  devices > WORKERS_MAX
    ? [`troupe train takes at most ${WORKERS_MAX} workers: it cannot run this plan`]
    : [];

/** All that is known of a plan. */
export function planRecord(facts: PlanFacts, plan: RunPlan): unknown {
  const { devices, batch, memoryLimitBytes = null, profile, model } = facts;
  return {
    format: "troupe-plan",
    version: 1,
    model,
    devices,
    batch,
    memoryLimitBytes,
    profile,
    searched: plan.counts,
    plans: plan.best.map((run, index) => runRecord(model, run, index + 1)),
    refused: plan.refusals,
    notes: factNotes(facts),
  };
}

function runRecord(model: readonly string[], run: PlannedRun, rank: number): unknown {
  const { schedule, options, workers, replicas, microBatch, microBatches } = run;
  const { recompute, precision, bucketSize = null, coarsening = null } = run;
  const { layout = null } = run;
  const { stepMs, samplesPerSecond, bubble, parts, memoryBytes, peakBytes, reason = null } = run,
    { alike, notes } = run;
  return {
    rank,
    ...{ schedule, options, workers, replicas, microBatch, microBatches },
    ...{ recompute, precision, offload: false, bucketSize, coarsening, layout },
    ...{ stepMs, samplesPerSecond, bubble, parts, memoryBytes, peakBytes, reason, alike, notes },
    train: trainArguments(model, run),
    command: trainCommandLine(model, run),
  };
}
