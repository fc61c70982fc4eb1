/**
 * `troupe train`: trains a model with a pipeline of stage actors.
 *
 * @module
 */

import { train, type TrainOptions } from "../../actors/mod.ts";
import type { CommandContext } from "../command.ts";
import { answersItself } from "../flags/asked.ts";
import { printError } from "../print.ts";
import { checkpointConfig } from "../train/checkpoint_config.ts";
import { digitsTask } from "../train/digits_task.ts";
import { inJob } from "../train/in_job.ts";
import { consoleReport, jsonReport } from "../train/report.ts";
import { runOptions } from "../train/run_options.ts";
import type { Task } from "../train/task.ts";
import { textTask } from "../train/text_task.ts";
import { TRAIN_SYNTAX } from "../train/train_flags.ts";
import { readTrainFlags, type TrainRequest } from "../train/train_request.ts";

/** URL of the module that trains: what a journal knows the program by. */
export const TRAIN_MODULE = import.meta.url;

/** Trains as the flags say; returns the exit code. */
export async function trainCommand(
  args: readonly string[],
  context: CommandContext,
): Promise<number> {
  if (answersItself(args, TRAIN_SYNTAX)) return 0;
  return await inJob(args, () => trainAsAsked(args, context));
}

async function trainAsAsked(
  args: readonly string[],
  { begin, signal, system }: CommandContext,
): Promise<number> {
  const request = await readTrainFlags(args), { flags, start } = request;
  const task = await (flags.model === "mlp" ? digitsTask(request) : textTask(request));
  using report = flags.json ? jsonReport(flags.memory) : consoleReport(flags.steps, flags.memory);
  for await (const event of train({ ...optionsOf(request, task), signal, system })) {
    if (event.type === "plan") {
      begin("the step under way");
      if (start) printError(start);
    }
    report(event);
    if (event.type !== "end") continue;
    if (event.isInterrupted) return 130;
    begin(); // nothing is left to finish: Ctrl-C ends at once
    if (!flags.json) await task.show(event.weights, event.choice);
  }
  return 0;
}

function optionsOf(request: TrainRequest, task: Task): TrainOptions {
  const { flags, out } = request;
  const every = flags["eval-every"] ?? (flags.json || flags.tokens ? undefined : 50);
  const config = checkpointConfig(request, task.config);
  return {
    ...runOptions(request, TRAIN_MODULE),
    model: task.model,
    data: task.data,
    evaluation: every ? { every, batches: task.heldOut(), atStart: !flags.json } : undefined,
    checkpoint: out === undefined ? undefined : {
      directory: out,
      every: flags["checkpoint-every"],
      keep: flags.keep,
      config,
    },
    announce: printError,
  };
}
