/**
 * The `troupe train` command of a plan.
 *
 * @module
 */

import type { Candidate } from "../../actors/foresight/planner/candidate.ts";
import { commandLine } from "../../actors/run/command_line.ts";
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
export function trainArguments(model: readonly string[], candidate: Candidate): string[] {
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
