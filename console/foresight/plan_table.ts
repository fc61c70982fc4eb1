/**
 * A plan as a table.
 *
 * @module
 */

import type { RunPlan } from "../../actors/foresight/planner/plan.ts";
import type { PlannedRun } from "../../actors/foresight/planner/planned_run.ts";
import { scheduleWords } from "../../actors/foresight/planner/refusal.ts";
import { formatTable } from "../../schedules/pictures/grid.ts";
import { factNotes, type PlanFacts } from "./plan_record.ts";
import { trainCommandLine } from "./train_command.ts";

const HEAD = [
  "",
  "schedule",
  "D",
  "W",
  "B",
  "N",
  "recompute",
  "samples/s",
  "step, ms",
  "bubble",
  "MiB a worker",
  "behind the best by",
];

/** The lines for a person. */
export function planLines(facts: PlanFacts, plan: RunPlan): string[] {
  const { devices, batch, profile, model } = facts, { best, counts } = plan;
  const [first] = best;
  const notes = new Set(best.flatMap(({ notes }) => notes));
  const scaled = [...notes].filter((note) => note.startsWith("scaled")).length;
  const { candidates, unserved, tooLarge, tooLong, simulated } = counts;
  return [
    `${batch} samples a step on ${devices} devices of ${profile.machine} (${profile.source}):`,
    "",
    ...formatTable([HEAD, ...best.map(rowOf)], { left: [1, 6, 11] }),
    "",
    `${candidates} candidates: ${simulated} simulated; ${tooLong} too long at best, ${tooLarge} too large, ${unserved} not served.`,
    ...scaled > 0
      ? [
        `note: ${scaled} costs are scaled from sizes that were not measured; --format json lists them`,
      ]
      : [],
    ...[...notes].filter((note) => !note.startsWith("scaled")).map((note) => `note: ${note}`),
    ...factNotes(facts).map((note) => `note: ${note}`),
    "",
    "The best:",
    `  ${trainCommandLine(model, first!)}`,
  ];
}

function rowOf(run: PlannedRun, index: number): string[] {
  const { workers, replicas, microBatch, microBatches, recompute, precision } = run;
  const how = [
    recompute,
    ...precision === "fp32" ? [] : [precision],
  ];
  const end = [
    ...run.bucketSize === undefined ? [] : [`bucket ${run.bucketSize}`],
    ...run.coarsening === undefined ? [] : [`k ${run.coarsening}`],
  ];
  const { memoryBytes } = run, least = Math.min(...memoryBytes);
  const mebibytes = (bytes: number) => (bytes / 2 ** 20).toFixed(bytes < 100 * 2 ** 20 ? 1 : 0);
  const range = [...new Set([mebibytes(least), mebibytes(run.peakBytes)])].join("–");
  return [
    `${index + 1}`,
    [scheduleWords(run), ...end].join(", ") +
    (run.alike.length > 0 ? ` (or ${run.alike.join(", ")})` : ""),
    ...[workers, replicas, microBatch, microBatches].map(String),
    how.join(", "),
    run.samplesPerSecond.toFixed(run.samplesPerSecond < 100 ? 2 : 0),
    run.stepMs.toFixed(run.stepMs < 100 ? 2 : 0),
    `${(100 * run.bubble).toFixed(1)} %`,
    range,
    run.reason ?? "",
  ];
}
