/**
 * The model of a plan: the one that `troupe train` would train with the same flags.
 *
 * @module
 */

import type { TrainOptions } from "../../actors/run/options/train_options.ts";
import type { Task } from "../../actors/parts/mod.ts";
import { rawArguments } from "../flags/parse.ts";
import { refuseOnnxFile } from "../onnx/onnx_file.ts";
import { runOptions } from "../train/run_options.ts";
import { importParts, taskOf } from "../train/run_parts.ts";
import { readTrainFlags } from "../train/train_request.ts";
import { PLAN_FLAGS, PLANNED_FLAGS } from "./plan_flags.ts";

/** What is planned for. */
export interface PlannedModel {
  /** The flags of `troupe train` that name it, as they were given. */
  readonly args: readonly string[];
  /** The model, for some micro-batch. */
  readonly task: Task;
  /** What a run of it is made with. */
  readonly options: Omit<TrainOptions, "model" | "data">;
}

/**
 * Builds the model of a plan.
 *
 * @param typed the arguments of `troupe plan`.
 *
 * @throws {TypeError} {@linkcode RangeError} as `troupe train` does.
 */
export async function plannedModel(typed: readonly string[]): Promise<PlannedModel> {
  const { flags } = rawArguments(typed, PLAN_FLAGS, { takesWords: true });
  if (flags.model !== undefined) refuseOnnxFile("Cannot plan", String(flags.model));
  const args = Object.keys(PLANNED_FLAGS).flatMap((name) => {
    const value = flags[name];
    return value === undefined ? [] : [value === true ? `--${name}` : `--${name}=${value}`];
  });
  const small = ["--workers=1", "--micro-batch=1", "--micro-batches=1", "--schedule=1f1b"];
  const request = await readTrainFlags([...args, ...small]);
  const parts = await importParts(request), task = await taskOf(request, parts);
  return { args, task, options: runOptions(request, parts) };
}
