/**
 * A plan as a table.
 *
 * @module
 */

import { commandLine, WORKERS_MAX } from "../../actors/options/limits.ts";
import type { Candidate, PlannedRun } from "../../actors/planner/forecast.ts";
import { type RunPlan, scheduleWords } from "../../actors/planner/plan.ts";
import { formatTable } from "../../schedules/pictures/grid.ts";
import { shellWord } from "../train/data_files.ts";

/** The flags of `troupe train` by the options of a schedule. */
const OPTION_FLAGS: Readonly<Record<string, string>> = {
  pipelineLimit: "pipeline-limit",
};

/**
 * The arguments of `troupe train` that run a candidate.
 *
 * @param model the flags that name the model.
 */
function trainArguments(model: readonly string[], candidate: Candidate): string[] {
  const { schedule, options, workers, replicas, microBatch, microBatches } = candidate;
  const { recompute, precision, bucketSize, coarsening, layout } = candidate;
  const flags: Record<string, string | number | undefined> = {
    schedule,
    ...Object.fromEntries(
      Object.entries(options).map(([name, value]) => [OPTION_FLAGS[name] ?? name, value]),
    ),
    workers,
    replicas,
    "micro-batch-size": microBatch,
    "micro-batches": microBatches,
    recompute: recompute === "none" ? undefined : recompute,
    precision: precision === "fp32" ? undefined : precision,
    "bucket-size": bucketSize,
    coarsening,
    layout,
  };
  const own = Object.entries(flags).flatMap(([name, value]) =>
    value === undefined ? [] : [`--${name}`, `${value}`]
  );
  return [...model, ...own];
}

/** The command as it is typed. */
export const trainCommandLine = (model: readonly string[], candidate: Candidate): string =>
  commandLine("train", ...trainArguments(model, candidate).map(shellWord));

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
