/**
 * What the checkpoints of a run say of it: enough to go on, and to make the same run again.
 *
 * @module
 */

import { TYPED_ONLY } from "../flags/config_file.ts";
import { DASHBOARD_FLAGS } from "../dashboard/dashboard_flags.ts";
import { rawArguments } from "../flags/parse.ts";
import { keptWeights, rememberFiles } from "./data_files.ts";
import { checkSameModel } from "./inherited.ts";
import { type KeptParts } from "./run_parts.ts";
import { INHERITED_FLAGS, TRAIN_FLAGS, type TrainFlags } from "./train_flags.ts";
import type { TrainRequest } from "./train_request.ts";

/**
 * What the checkpoints of a run say: its model, the flags that a run inherits (`flags`), all others
 * but paths, for `--config` (`run`), which files it read (`files`), and which modules it ran
 * (`parts`).
 *
 * @param model what rebuilds the model.
 * @param parts the modules of the user's.
 * @throws {RangeError} when the run goes on from a checkpoint of another model.
 */
export function checkpointConfig(
  { args, flags, files, tokenizer, checkpoint }: TrainRequest,
  model: Readonly<Record<string, unknown>>,
  parts: KeptParts,
): Readonly<Record<string, unknown>> {
  if (checkpoint) checkSameModel(checkpoint, model);
  const weights = checkpoint ? keptWeights(checkpoint.config) : flags.weights;
  return {
    ...model,
    flags: rememberedFlags(flags, parts),
    files: rememberFiles({ ...files, ...tokenizer && { tokenizer } }, weights),
    ...Object.keys(parts).length > 0 && { parts },
    run: runningFlags(flags, args, parts),
  };
}

/** What a checkpoint keeps of the flags: all that a run inherits, and no module. */
export function rememberedFlags(
  flags: TrainFlags,
  parts: KeptParts,
): Readonly<Record<string, unknown>> {
  return Object.fromEntries(
    Object.entries(flags).filter(([name]) =>
      Object.hasOwn(INHERITED_FLAGS, name) && !Object.hasOwn(parts, name)
    ),
  );
}

/**
 * What a checkpoint keeps of the others, each as it may be typed: no path, as they are data, and not
 * how somebody looked on.
 */
function runningFlags(
  flags: TrainFlags,
  args: readonly string[],
  parts: KeptParts,
): Record<string, unknown> {
  const typed = rawArguments(args, TRAIN_FLAGS).flags, isOfFile = flags["schedule-file"];
  const kept: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(flags)) {
    const { kind } = TRAIN_FLAGS[name as keyof TrainFlags];
    if (kind === "path" || TYPED_ONLY.includes(name) || Object.hasOwn(INHERITED_FLAGS, name)) {
      continue;
    }
    if (Object.hasOwn(parts, name) || Object.hasOwn(DASHBOARD_FLAGS, name)) continue;
    if (name === "schedule" && isOfFile !== undefined) continue;
    kept[name] = kind === "own" ? typed[name] : value;
  }
  return kept;
}
