/**
 * The output of `troupe plan`.
 *
 * @module
 */

import { commandLine, WORKERS_MAX } from "../../actors/options/limits.ts";
import { SCHEDULE_FIELDS } from "../../actors/options/train_fields.ts";
import type { Candidate, CandidateRun } from "../../actors/planner/forecast.ts";
import type { RemainingRun } from "../../actors/planner/losses.ts";
import { type RunPlan, scheduleWords } from "../../actors/planner/plan.ts";
import { formatTable } from "../../schedules/pictures/grid.ts";
import { shellWord } from "../train/data_files.ts";
import { percent } from "./common.ts";

/** Returns the arguments of `troupe train` that run a candidate. */
function trainArguments(model: readonly string[], candidate: Candidate): string[] {
  const { schedule, options, workers, replicas, microBatch, microBatches } = candidate;
  const { recompute, precision, bucketSize, coarsening, layout } = candidate;
  const others = Object.entries(options).map(([name, value]) =>
    [SCHEDULE_FIELDS[name as keyof typeof options].flag.name, value] as const
  );
  const flags: Record<string, string | number | undefined> = {
    ...{ schedule, ...Object.fromEntries(others), workers, replicas },
    ...{ "micro-batch-size": microBatch, "micro-batches": microBatches },
    recompute: recompute === "none" ? undefined : recompute,
    precision: precision === "fp32" ? undefined : precision,
    ...{ "bucket-size": bucketSize, coarsening, layout },
  };
  const given = Object.entries(flags).filter(([, value]) => value !== undefined);
  return [...model, ...given.flatMap(([name, value]) => [`--${name}`, `${value}`])];
}

/** Returns the command as it is typed. */
export const trainCommandLine = (model: readonly string[], candidate: Candidate): string =>
  commandLine("train", ...trainArguments(model, candidate).map(shellWord));

/** The input of a plan. */
export interface PlanFacts {
  /** The flags of the model. */
  readonly model: readonly string[];
  readonly devices: number;
  readonly batch: number;
  readonly memoryLimitBytes: number | undefined;
  readonly profile: { readonly source: string; readonly machine: string };
}

/** Returns notes that hold for all plans. */
export const factNotes = ({ devices }: PlanFacts): string[] =>
  devices > WORKERS_MAX
    ? [`troupe train takes at most ${WORKERS_MAX} workers: it cannot run this plan`]
    : [];

/** Returns the plan for `--format json`. */
export function planRecord(facts: PlanFacts, plan: RunPlan): object {
  const { devices, batch, memoryLimitBytes = null, profile, model } = facts;
  return {
    ...{ format: "troupe-plan", version: 1, model, devices, batch, memoryLimitBytes, profile },
    searched: plan.counts,
    equal: plan.equal,
    plans: plan.best.map((run, index) => runRecord(model, run, index + 1)),
    refused: plan.refusals,
    notes: factNotes(facts),
  };
}

function runRecord(model: readonly string[], run: CandidateRun, rank: number): unknown {
  const { schedule, options, workers, replicas, microBatch, microBatches } = run;
  const { recompute, precision, bucketSize = null, coarsening = null, layout = null } = run;
  const { stepMs, samplesPerSecond, bubble, parts, memoryBytes, peakBytes, reason = null } = run;
  const { alike, notes } = run;
  return {
    ...{ rank, schedule, options, workers, replicas, microBatch, microBatches },
    ...{ recompute, precision, offload: false, bucketSize, coarsening, layout },
    ...{ stepMs, samplesPerSecond, bubble, parts, memoryBytes, peakBytes, reason, alike, notes },
    train: trainArguments(model, run),
    command: trainCommandLine(model, run),
  };
}

/** The columns of the table. */
const HEAD = [
  ...["", "schedule", "D", "W", "B", "N", "recompute", "samples/s", "step, ms", "bubble"],
  ...["MiB a worker", "behind the best by"],
];

/** Returns the lines of a plan as text. */
export function planLines(facts: PlanFacts, plan: RunPlan): string[] {
  const { devices, batch, profile, model } = facts, { best, counts } = plan;
  const all = [...new Set(best.flatMap(({ notes }) => notes))];
  const others = all.filter((note) => !note.startsWith("scaled"));
  const scaled = all.length - others.length;
  const { candidates, unserved, tooLarge, tooLong, simulated, untried } = counts;
  const notes = [
    ...scaled > 0
      ? [`${scaled} costs are scaled from sizes that were not measured; --format json lists them`]
      : [],
    ...others,
    ...factNotes(facts),
  ];
  return [
    `${batch} samples a step on ${devices} devices of ${profile.machine} (${profile.source}):`,
    "",
    ...formatTable([HEAD, ...best.map(rowOf)], { left: [1, 6, 11] }),
    "",
    `${candidates} candidates: ${simulated} simulated; ${tooLong} too long at best, ${tooLarge} too large, ${unserved} not served${
      untried > 0 ? `, ${untried} not tried within the time limit` : ""
    }.`,
    ...plan.equal > 1
      ? [`Plans 1 to ${plan.equal} are equal within the profile's spread: least memory first.`]
      : [],
    ...notes.map((note) => `note: ${note}`),
    "",
    "The best:",
    `  ${trainCommandLine(model, best[0]!)}`,
  ];
}

function rowOf(run: CandidateRun, index: number): string[] {
  const { workers, replicas, microBatch, microBatches, recompute, precision, memoryBytes } = run;
  const { bucketSize, coarsening, alike, samplesPerSecond, stepMs, peakBytes, reason = "" } = run;
  const schedule = [
    scheduleWords(run),
    ...bucketSize === undefined ? [] : [`bucket ${bucketSize}`],
    ...coarsening === undefined ? [] : [`k ${coarsening}`],
  ].join(", ");
  return [
    `${index + 1}`,
    schedule + (alike.length > 0 ? ` (or ${alike.join(", ")})` : ""),
    ...[workers, replicas, microBatch, microBatches].map(String),
    [recompute, ...precision === "fp32" ? [] : [precision]].join(", "),
    ...[samplesPerSecond, stepMs].map(inDigits),
    percent(run.bubble),
    memoryWords(memoryBytes, peakBytes),
    reason,
  ];
}

const inDigits = (value: number): string => value.toFixed(value < 100 ? 2 : 0);

/** Returns the least and the most bytes of a worker in MiB. */
function memoryWords(memoryBytes: readonly number[], peakBytes: number): string {
  const mebibytes = (bytes: number) => (bytes / 2 ** 20).toFixed(bytes < 100 * 2 ** 20 ? 1 : 0);
  const range = new Set([mebibytes(Math.min(...memoryBytes)), mebibytes(peakBytes)]);
  return [...range].join("–");
}

/** Returns what remains after losses, for `--format json`; no field if none were asked for. */
export function lossRecords(after: readonly RemainingRun[]): object {
  if (after.length === 0) return {};
  const afterLosses = after.map(
    ({ rank, losses, workers, layout, copies, run, speed, canMove }) => {
      const { stepMs, samplesPerSecond, memoryBytes, peakBytes } = run;
      return {
        ...{ rank, losses, workers, ...layout, copies, stepMs, samplesPerSecond, speed },
        ...{ memoryBytes, peakBytes, nextLoss: nextLoss(canMove) },
      };
    },
  );
  return { afterLosses };
}

const nextLoss = (canMove: boolean) => canMove ? "resize" : "restart";

const LOSS_HEAD = [
  ...["lost", "workers", "pipelines", "depth", "copies", "samples/s", "of the full"],
  ...["MiB a worker", "next loss"],
];

/** Returns the lines of what remains after losses. */
export function lossLines(
  { memoryLimitBytes = Infinity }: PlanFacts,
  after: readonly RemainingRun[],
): string[] {
  if (after.length === 0) return [];
  const rows = after.map(({ losses, workers, layout, copies, run, speed, canMove }) => [
    ...[losses, workers, layout.pipelines, layout.depth, copies].map(String),
    ...[inDigits(run.samplesPerSecond), percent(speed)],
    ...[memoryWords(run.memoryBytes, run.peakBytes), nextLoss(canMove)],
  ]);
  const large = after.find(({ run }) => run.peakBytes > memoryLimitBytes);
  const alone = "each stage is on one worker, whose loss restarts all workers";
  return [
    "",
    `Plan ${after[0]!.rank}, the best that --failover resize can move, after losses:`,
    ...formatTable([LOSS_HEAD, ...rows], { left: [8] }),
    ...after[0]!.canMove ? [] : [`note: ${alone}`],
    ...large ? [`note: with ${large.losses} lost, a worker is above the memory limit`] : [],
  ];
}
