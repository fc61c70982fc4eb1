/**
 * The model of a plan: the one that `troupe train` would train with the same flags.
 *
 * @module
 */

import type { Profile } from "../../actors/foresight/mod.ts";
import type { TrainOptions } from "../../actors/run/options/train_options.ts";
import type { Task } from "../../actors/parts/mod.ts";
import { inOneLine } from "../escape.ts";
import { readKeptFlags } from "../flags/kept.ts";
import { rawArguments } from "../flags/parse.ts";
import { refuseOnnxFile } from "../onnx/onnx_file.ts";
import { printError } from "../print.ts";
import { SIZES } from "../train/flags/model_flags.ts";
import { runOptions } from "../train/run_options.ts";
import { importParts, taskOf } from "../train/run_parts.ts";
import { readTrainFlags } from "../train/train_request.ts";
import { PLAN_FLAGS, PLANNED_FLAGS } from "./plan_flags.ts";
import { EMPTY_DATA } from "./profiled_model.ts";

/** What is planned for. */
export interface PlannedModel {
  /** The flags of `troupe train` that name it, as they were given. */
  readonly args: readonly string[];
  /** The model, for some micro-batch. */
  readonly task: Task;
  /** What a run of it is made with. */
  readonly options: Omit<TrainOptions, "model" | "data">;
}

/** The flags of data, which says a vocabulary. */
const DATA = ["data", "text", "tokens", "tokenizer"];

/**
 * Builds the model of a plan: that of its profile, as far as no flag says otherwise.
 *
 * @param typed the arguments of `troupe plan`.
 * @param path of the profile.
 *
 * @throws {TypeError} {@linkcode RangeError} as `troupe train` does.
 */
export async function plannedModel(
  typed: readonly string[],
  { model: kept = {} }: Pick<Profile, "model"> = {},
  path = "the profile",
): Promise<PlannedModel> {
  const { flags, takenBack } = rawArguments(typed, PLAN_FLAGS, { takesWords: true });
  if (flags.model !== undefined) refuseOnnxFile("Cannot plan", String(flags.model));
  const isSame = flags.model === undefined || flags.model === kept.model;
  const free: Record<string, unknown> = {};
  for (const name of ["model", ...Object.keys(SIZES)]) {
    const was = kept[name], is = takenBack.includes(name) ? false : flags[name];
    if (was === undefined) continue;
    if (is === undefined) { if (isSame) free[name] = was; }
    else if (`${is}` !== `${was}`) {
      const measured = inOneLine(`--${name} ${was}`);
      printError(
        `note: the profile is of ${measured}, the plan of ${is}: costs are scaled, or missing`,
      );
    }
  }
  const inherited = readKeptFlags(free, PLANNED_FLAGS, inOneLine(path));
  const all: Readonly<Record<string, unknown>> = { ...inherited, ...flags };
  const args = Object.keys(PLANNED_FLAGS).flatMap((name) => {
    const value = all[name];
    return value === undefined ? [] : [value === true ? `--${name}` : `--${name}=${value}`];
  });
  const small = ["--workers=1", "--micro-batch-size=1", "--micro-batches=1", "--schedule=1f1b"];
  const request = await readTrainFlags([...args, ...small]);
  const { data, ...parts } = await importParts(request);
  const isNamed = inherited.vocab === undefined || DATA.some((name) => flags[name] !== undefined);
  const value = isNamed ? data.value : EMPTY_DATA;
  const task = await taskOf(request, { ...parts, data: { ...data, value } });
  return { args, task, options: runOptions(request, parts) };
}
