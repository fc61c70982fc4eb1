/**
 * `troupe train`: trains a model with a pipeline of stage actors.
 *
 * @module
 */

import { join } from "node:path";
import { train, type TrainOptions } from "../../actors/mod.ts";
import { replaceFile } from "../../actors/checkpoints/durable_folder.ts";
import type { CommandContext } from "../command.ts";
import { inOneLine } from "../escape.ts";
import { answersItself } from "../flags/asked.ts";
import type { Task } from "../../actors/parts/mod.ts";
import type { Metrics } from "../../actors/run/metrics/metrics.ts";
import { openTraceFile } from "../trace/chrome_file.ts";
import { openTimeline, type TimelineFile } from "../trace/timeline_file.ts";
import { print, printError } from "../print.ts";
import { placeOf, type RunPlace } from "../run_files/run_place.ts";
import { RUN_FILES } from "../run_files/run_record.ts";
import { openRunWriter } from "../run_files/write_run.ts";
import { checkpointConfig } from "../train/checkpoint_config.ts";
import { openEventLog } from "../run_files/event_log.ts";
import { inJob } from "../train/in_job.ts";
import { consoleReport, jsonReport, printDone } from "../train/report.ts";
import { isTraced, runOptions } from "../train/run_options.ts";
import { importParts, keptParts, type RunParts, taskOf } from "../train/run_parts.ts";
import { TRAIN_SYNTAX, type TrainFlags } from "../train/train_flags.ts";
import { readTrainFlags, type TrainRequest } from "../train/train_request.ts";

/** URL of the module that trains: what a journal knows the program by. */
export const TRAIN_MODULE = import.meta.url;

/** Trains as the flags say; returns the exit code. */
export async function trainCommand(
  args: readonly string[],
  context: CommandContext,
): Promise<number> {
  if (answersItself(args, TRAIN_SYNTAX)) return 0;
  return await inJob(args, () => trainAsAsked(args, context), context.begin);
}

async function trainAsAsked(
  args: readonly string[],
  { begin, signal, system }: CommandContext,
): Promise<number> {
  const request = await readTrainFlags(args), { flags, start } = request;
  const parts = await importParts(request), task = await taskOf(request, parts);
  using made = new DisposableStack();
  const place = await placeOf(request, parts.model.value.name, made);
  using files = place && openRunWriter({ place, request, parts, announce: printError });
  using report = flags.json
    ? jsonReport(flags.memory, keptParts(parts))
    : consoleReport(flags.steps, task.unit, flags.memory);
  using trace = traceOf(flags), log = openEventLog(flags, place?.directory, printError);
  await using dashboard = flags.dashboard
    ? (await import("../dashboard/watch_run.ts")).openDashboard({ request, parts, place })
    : undefined;
  const metrics = (measured: Metrics) => {
    files?.metrics(measured);
    trace?.measured(measured);
    log?.(measured);
    dashboard?.metrics(measured);
  };
  let timeline: TimelineFile | undefined;
  const options = optionsOf(request, task, parts, place?.directory);
  const events = train({ ...options, metrics, signal, system });
  for await (const event of dashboard?.watch(events) ?? events) {
    if (event.type === "wait") continue; // announced
    trace?.see(event);
    if (event.type === "plan") {
      await files?.begin(event.plan);
      if (place && isTraced(flags)) timeline = made.use(timelineOf(request, place));
      begin("the step under way");
      if (start) printError(start);
    }
    await files?.see(event);
    timeline?.see(event);
    report(event);
    if (event.type !== "end") continue;
    if (!event.isInterrupted) {
      if (place && task.onnx) {
        const path = join(place.directory, RUN_FILES.onnx);
        await replaceFile(Deno, path, task.onnx(event.weights));
        if (!flags.json) print(`model ${inOneLine(path)}`);
      }
      begin(); // nothing is left to finish: Ctrl-C ends at once
      const shown = flags.json ? undefined : await task.show(event.weights, event.choice);
      if (shown !== undefined) print(`\n${shown}`);
    }
    // Who started ranks reads their last line, whatever is above it.
    if (flags.runtime === "mpi" && !flags.json) printDone(event, keptParts(parts));
    if (event.isInterrupted) return 130;
  }
  if (dashboard && flags["dashboard-stay"]) {
    begin(""); // what Ctrl-C ends is the dashboard: the run is done
    await dashboard.stay(signal);
  }
  return 0;
}

function traceOf(flags: TrainRequest["flags"]) {
  const { trace: path, "trace-steps": steps, "micro-batch-size": microBatch } = flags;
  if (path === undefined) return undefined;
  return openTraceFile({ path, steps, microBatch, announce: printError });
}

function timelineOf(
  { flags: { steps }, checkpoint }: TrainRequest,
  { directory, isInPlace }: RunPlace,
): TimelineFile {
  const path = join(directory, RUN_FILES.timeline);
  const goesOnAfter = isInPlace ? checkpoint!.step : undefined;
  return openTimeline({ path, steps, goesOnAfter, announce: printError });
}

function optionsOf(
  request: TrainRequest,
  task: Task,
  parts: RunParts,
  directory: string | undefined,
): TrainOptions {
  const { flags } = request, { heldOut } = task, asked = flags["eval-every"];
  const every = asked ?? (flags.json || flags.tokens || !heldOut ? undefined : 50);
  if (every && !heldOut) {
    throw new TypeError(
      `Cannot evaluate on ${parts.data.value.name}: --eval-every must be left out, as it holds nothing out, received ${every}`,
    );
  }
  if (!every) refuseWithoutEvaluations(flags, heldOut ? undefined : parts.data.value.name);
  if (flags["keep-best"] && directory === undefined) {
    throw new TypeError(
      "Cannot use --keep-best: --out must say where checkpoints go, received none",
    );
  }
  const config = checkpointConfig(request, task.config, keptParts(parts));
  return {
    ...runOptions(request, parts, TRAIN_MODULE),
    model: task.model,
    data: task.data,
    evaluation: every && heldOut
      ? { every, batches: heldOut(), atStart: !flags.json, patience: flags.patience }
      : undefined,
    checkpoint: directory === undefined ? undefined : {
      directory,
      overwrite: flags.overwrite,
      every: flags["checkpoint-every"],
      keep: flags.keep,
      keepBest: flags["keep-best"],
      config,
    },
    // Nobody would look at them.
    returnWeights: !flags.json,
    announce: printError,
  };
}

/** Refuses what needs evaluations where there are none, as data holds nothing out or nobody asked. */
function refuseWithoutEvaluations(flags: TrainFlags, data: string | undefined): void {
  const flag = flags["keep-best"] ? "keep-best" : "patience";
  if (flags[flag] === undefined) return;
  const how = data === undefined
    ? "--eval-every must say when held-out data is evaluated"
    : `there must be held-out data, and ${data} holds nothing out`;
  throw new TypeError(`Cannot use --${flag}: ${how}, received none`);
}
