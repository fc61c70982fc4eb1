/**
 * The flags of `troupe train`.
 *
 * @module
 */

import type { CommandSyntax } from "../flags/command_syntax.ts";
import type { FlagValues, GivenFlags } from "../flags/flag.ts";
import { COST_FLAGS, SCHEDULE_FLAGS } from "../schedule/schedule_flags.ts";
import { DATA_FILE_FLAGS, LEARNING_FLAGS } from "./flags/learning_flags.ts";
import { MODEL_FLAGS } from "./flags/model_flags.ts";
import { ONNX_FLAGS } from "./flags/onnx_flags.ts";
import { RUNNING_FLAGS } from "./flags/running_flags.ts";

/**
 * All that a run takes from a file, be it a checkpoint or a journal, of what it learns and how: no
 * path is among them, so no file opens or writes another.
 */
export const INHERITED_FLAGS = { ...MODEL_FLAGS, ...ONNX_FLAGS, ...LEARNING_FLAGS } as const;

/** Every flag of `troupe train`. */
export const TRAIN_FLAGS = {
  ...INHERITED_FLAGS,
  ...DATA_FILE_FLAGS,
  ...SCHEDULE_FLAGS,
  ...COST_FLAGS,
  ...RUNNING_FLAGS,
} as const;

/** The values of the flags of `troupe train`. */
export type TrainFlags = FlagValues<typeof TRAIN_FLAGS>;

/** The values of those flags of `troupe train` that were given. */
export type GivenTrainFlags = GivenFlags<typeof TRAIN_FLAGS>;

/** The declaration of `troupe train`. */
export const TRAIN_SYNTAX: CommandSyntax = {
  name: "train",
  summary: "trains a model with a pipeline of stage actors",
  usage: ["[flags]"],
  groups: [
    { title: "The model (fixed once a run has begun):", flags: MODEL_FLAGS },
    {
      title: "A model of an ONNX file (fixed once a run has begun; the file is named again):",
      flags: ONNX_FLAGS,
    },
    {
      title: "What it learns from, and how (a resumed run inherits these):",
      flags: LEARNING_FLAGS,
    },
    {
      title: "Data of your own (a resumed run wants the same file named again):",
      flags: DATA_FILE_FLAGS,
    },
    { title: "Its schedule:", flags: SCHEDULE_FLAGS },
    { title: "What actions cost, for the schedule search:", flags: COST_FLAGS },
    { title: "How it runs:", flags: RUNNING_FLAGS },
  ],
  notes: [
    "In brackets: the default, the bounds, and the names that nanoGPT and Hugging Face have for it.",
    "Names may be written with _ for -, and --no-FLAG takes a switch back.",
    "NAME is of troupe.json, or comes with Troupe; MODULE begins with jsr:, npm:, https:, file:, ./ or ../",
    "and runs with all permissions of this program. A resumed run wants it named again.",
    "",
    "Exit codes: 0 done; 1 a run that failed; 2 bad input; 75 a worker thread hangs; 130 a signal.",
  ],
};
