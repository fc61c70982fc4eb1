/**
 * `troupe train`: trains a model with a pipeline of stage actors.
 *
 * @module
 */

import { join } from "node:path";
import { replaceFile } from "../../actors/checkpoints/write.ts";
import { commandLine } from "../../actors/options/limits.ts";
import type { CoreShare, Plan, TrainEvent } from "../../actors/options/train_events.ts";
import type { Metrics, TrainOptions } from "../../actors/options/train_options.ts";
import { TRAIN } from "../../actors/options/train_table.ts";
import type { Task } from "../../actors/registry/task.ts";
import { compileRun } from "../../actors/run/compile.ts";
import { limitedBytes } from "../../actors/run/memory.ts";
import { tensorboard, type Tracker } from "../../actors/run/metrics.ts";
import { follow, isFollower, lead, letLeaderSpeak } from "../../actors/run/mpi_run.ts";
import { trainAs } from "../../actors/run/train.ts";
import { type KeptComponents, RUN_FILES } from "../../actors/run_folder/metrics_file.ts";
import { launchedRanks } from "../../actors/transports/mpi/library.ts";
import { readCredentials } from "../../actors/transports/nats/connection.ts";
import { ifServed } from "../../schedules/internal.ts";
import type { CommandContext } from "../command.ts";
import { mergedWeights } from "../commands/trained.ts";
import { optionsOfFlags } from "../flag.ts";
import { answersItself, rawArguments } from "../parse.ts";
import { TraceFile } from "../run_files/chrome_trace.ts";
import { openTimeline, type TimelineFile } from "../run_files/timeline_file.ts";
import { shellWord } from "./data_files.ts";
import {
  count,
  ensure,
  evaluationText,
  inOneLine,
  metricTexts,
  openProgress,
  print,
  printError,
} from "../terminal.ts";
import { TRAIN_FLAGS, TRAIN_SYNTAX, type TrainFlags } from "./flags.ts";
import { openMemoryReport } from "./memory_report.ts";
import {
  factsOf,
  importComponents,
  isTraced,
  keptComponents,
  type RunComponents,
  runOptions,
  taskOf,
} from "./parts.ts";
import {
  checkpointConfig,
  placeOf,
  readTrainFlags,
  repeatedFlags,
  type RunPlace,
  type TrainRequest,
  withConfig,
} from "./request.ts";

/**
 * Opens the log of `--log`.
 *
 * @param directory Folder of the run, if it has one.
 * @param announce Called with the reason if the log cannot be written; the run continues.
 * @throws {TypeError} without a folder.
 */
function openEventLog(
  { log }: Pick<TrainFlags, "log">,
  directory: string | undefined,
  announce: (line: string) => void,
): Tracker | undefined {
  if (log === "none") return undefined;
  ensure(directory !== undefined, `use --log ${log}`, "--out must say where its files go");
  const tracker = tensorboard(directory);
  let isFailed = false;
  const attempt = (what: () => void) => {
    try {
      if (!isFailed) what();
    } catch (error) {
      isFailed = true;
      announce(`${(error as Error).message}; training continues without it`);
    }
  };
  return Object.assign((...[metrics]: Parameters<Tracker>) => attempt(() => tracker(metrics)), {
    [Symbol.dispose]: () => attempt(() => tracker[Symbol.dispose]()),
  });
}

/**
 * Runs a command where `--runtime mpi` says so as rank 0 of a job, or lends this rank to it.
 *
 * @param begin called where it is lent: launchers send signals to all ranks, and rank 0 ends them.
 */
async function inJob(
  typed: readonly string[],
  command: () => Promise<number>,
  begin: CommandContext["begin"],
): Promise<number> {
  let asked: ReturnType<typeof jobOf>;
  try {
    asked = jobOf(typed);
  } catch (error) {
    if (!isFollower()) throw error;
    await letLeaderSpeak();
    return 2;
  }
  if (!asked) return await command();
  const { options, facts } = asked;
  if (isFollower()) {
    begin("");
    return await follow(options, facts) ? 0 : 2;
  }
  await using job = await lead(options, facts);
  return await Promise.race([command(), job.lost.catch(lostJob)]);
}

/** Throws the error of a lost job. Another attempt may succeed: EX_TEMPFAIL of sysexits.h. */
function lostJob(error: Error): never {
  throw Object.assign(error, { exitCode: 75 });
}

/**
 * Returns the MPI options of the arguments, with which a rank joins, and the arguments that all ranks
 * must share; undefined without `--runtime mpi`.
 */
function jobOf(typed: readonly string[]) {
  const { flags, takenBack } = rawArguments(withConfig(typed).args, TRAIN_FLAGS);
  if (flags.runtime !== "mpi" || !launchedRanks()) return undefined;
  const text = (name: string) => flags[name] === undefined ? undefined : String(flags[name]);
  const facts = [...Object.entries(flags), ...takenBack.map((name) => [name, "false"] as const)]
    .filter(([name]) => !OF_A_HOST.includes(name))
    .map(([name, value]) => [`--${name}`, String(value)]);
  return {
    options: { library: text("mpi-library"), interface: text("mpi-interface") },
    facts: Object.fromEntries(facts),
  };
}

/** The flags that may differ from host to host. */
const OF_A_HOST: readonly string[] = ["mpi-library", "mpi-interface"];

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
  const { request, parts, task } = await readRun(args), { flags, start } = request;
  if (flags.runtime === "nats") await checkLeader(flags);
  using made = new DisposableStack();
  const place = await placeOf(request, parts.model.value.name, made);
  const facts = factsOf(request, parts);
  using memory = flags.memory ? openMemoryReport() : undefined;
  using progress = openProgress(flags.steps, task.unit);
  const report = flags.json
    ? jsonReport(memory, keptComponents(parts))
    : consoleReport(flags.steps, progress, memory);
  using trace = traceOf(flags), log = openEventLog(flags, place?.directory, printError);
  await using dashboard = flags.dashboard
    ? new (await import("../dashboard/follow.ts")).RunDashboard({ request, facts, place })
    : undefined;
  const metrics = (measured: Metrics) => {
    trace?.measured(measured);
    log?.(measured);
    dashboard?.metrics(measured);
  };
  let timeline: TimelineFile | undefined;
  const options = optionsOf(request, task, parts, place?.directory);
  const events = trainAs({ ...options, metrics, signal, system }, facts);
  for await (const event of dashboard?.watch(events) ?? events) {
    if (event.type === "wait") continue; // announced
    trace?.see(event);
    if (event.type === "plan") {
      if (place && isTraced(flags)) timeline = made.use(timelineOf(request, place));
      begin("the step under way");
      if (start) printError(start);
    }
    timeline?.see(event);
    report(event);
    if (event.type !== "end") continue;
    if (!event.isInterrupted) {
      if (place && task.onnx) {
        const path = join(place.directory, RUN_FILES.onnx);
        await replaceFile(Deno, path, task.onnx(event.weights));
        if (!flags.json) print(`model ${inOneLine(path)}`);
      }
      begin(); // nothing is left to finish: Ctrl-C ends immediately
      const weights = flags.json
        ? undefined
        : mergedWeights(task.config, options.lora, event.weights);
      const shown = weights && await task.show(weights, event.choice);
      if (shown !== undefined) print(`\n${shown}`);
    }
    // The launcher of the ranks shows their last line, regardless of earlier lines.
    if (flags.runtime === "mpi" && !flags.json) printDone(event, keptComponents(parts));
    if (event.isInterrupted) {
      sayHowToResume(event, request);
      return 130;
    }
  }
  if (dashboard && flags["dashboard-stay"]) {
    begin(""); // what Ctrl-C ends is the dashboard: the run is done
    await dashboard.stay(signal);
  }
  return 0;
}

/** Refuses to lead a run of hosts without a place where they meet, or without its credentials. */
async function checkLeader(flags: TrainFlags): Promise<void> {
  const missing = (["nats", "nats-creds", "run-name"] as const).find((name) => !flags[name]);
  ensure(!missing, "train with --runtime nats", `--${missing} must be given`);
  await readCredentials(flags["nats-creds"]!, flags["run-name"]!, true);
}

/** Reads the flags, and of the choices for `--schedule auto` takes the first that the run can hold. */
async function readRun(args: readonly string[]) {
  let request = await readTrainFlags(args);
  const { choices } = request;
  for (let i = 1;; i++) {
    const parts = await importComponents(request), task = await taskOf(request, parts);
    if (choices.length < 2 || canHold(request, parts, task)) return { request, parts, task };
    const must = `one of ${choices.length} must fit the layers of the model and --memory-limit`;
    ensure(i < choices.length, "choose a schedule", must, "none that does", RangeError);
    request = await readTrainFlags(args, choices[i]);
  }
}

/** Returns whether the model has layers for all stages of a schedule, and workers the memory. */
function canHold(request: TrainRequest, parts: RunComponents, { model }: Task): boolean {
  const options = runOptions(request, parts), { schedule } = request;
  const run = ifServed(() => compileRun({ ...options, model }, schedule));
  const { memoryLimitBytes = Infinity } = options;
  return run?.memory.every((one) => limitedBytes(one, "native") <= memoryLimitBytes) ?? false;
}

function traceOf(flags: TrainRequest["flags"]) {
  const { trace: path, "trace-steps": steps, "micro-batch-size": microBatch } = flags;
  if (path === undefined) return undefined;
  return new TraceFile({ path, steps, microBatch, announce: printError });
}

function timelineOf(
  { flags: { steps }, checkpoint }: TrainRequest,
  { directory, isInPlace }: RunPlace,
): TimelineFile {
  const path = join(directory, RUN_FILES.timeline);
  const goesOnAfter = isInPlace ? checkpoint!.step : undefined;
  return openTimeline({ path, steps, goesOnAfter, announce: printError });
}

/** Flags of checkpoints that have no effect without a folder. */
const CHECKPOINTS = ["checkpoint-every", "keep"];

function optionsOf(
  request: TrainRequest,
  task: Task,
  parts: RunComponents,
  directory: string | undefined,
): TrainOptions {
  const { flags } = request, { heldOut } = task, asked = flags["eval-every"];
  const every = asked ?? (flags.json || flags.tokens || !heldOut ? undefined : 50);
  const { name } = parts.data.value;
  const must = "--eval-every must be left out, because it has no held-out data";
  ensure(!every || heldOut, `evaluate on ${name}`, must, every);
  if (!every) refuseWithoutEvaluations(flags, heldOut ? undefined : name);
  const isPlaced = !flags["keep-best"] || directory !== undefined;
  ensure(isPlaced, "use --keep-best", "--out must name the folder of checkpoints");
  const unused = directory === undefined &&
    CHECKPOINTS.find((name) => request.given.includes(name));
  if (unused) {
    printError(`--${unused} has no effect: with --json, --out names the checkpoints' folder`);
  }
  const config = checkpointConfig(request, task.config, keptComponents(parts));
  return {
    ...runOptions(request, parts, TRAIN_MODULE),
    model: task.model,
    data: task.data,
    evaluation: every && heldOut
      ? {
        ...optionsOfFlags(TRAIN.evaluation.fields, flags),
        ...{ every, batches: heldOut(), atStart: !flags.json },
      }
      : undefined,
    out: directory,
    checkpoint: directory === undefined ? undefined : {
      ...optionsOfFlags(TRAIN.checkpoint.fields, flags),
      config,
    },
    // JSON output does not include them.
    returnWeights: !flags.json,
    announce: printError,
  };
}

/** Refuses flags that need evaluations if the run has none. */
function refuseWithoutEvaluations(flags: TrainFlags, data: string | undefined): void {
  const flag = (["keep-best", "eval-ema", "patience"] as const).find((name) => flags[name]);
  const how = data === undefined
    ? "--eval-every must say when held-out data is evaluated"
    : `the data must have held-out data, and ${data} has none`;
  ensure(flag === undefined, `use --${flag}`, how);
}

/** Prints the events of a run. */
type Report = (event: TrainEvent) => void;

type MemoryReport = ReturnType<typeof openMemoryReport> | undefined;

/**
 * Returns a report that prints one JSON object per line to standard output, and nothing else.
 *
 * @param memory prints the memory of each worker in a last line.
 * @param parts Records of the user's modules, for the last line.
 */
function jsonReport(memory: MemoryReport, parts: KeptComponents): Report {
  return (event) => {
    switch (event.type) {
      case "plan":
        return void memory?.begin(event.plan);
      case "step": {
        const { step, loss, gradNorm, tokensPerSecond, metrics } = event;
        return printJson({ step, loss, gradNorm, tokensPerSecond, metrics });
      }
      case "skip": {
        const { step, loss, lossScale, nextLossScale } = event;
        return printJson({ step, loss, skipped: true, lossScale, nextLossScale });
      }
      case "evaluation":
        return printJson({
          ...{ step: event.step, evalLoss: event.loss, metrics: event.metrics, best: event.best },
        });
      case "resize": {
        const { type, ...how } = event;
        return printJson({ [type]: true, ...how });
      }
      case "end": {
        if (memory) printJson(memory.json(event.memory));
        return printDone(event, parts);
      }
    }
  };
}

/** Prints the result of a run as one JSON object. */
function printDone(event: EndEvent, parts: KeptComponents): void {
  // Skip these before reading them: getting the weights may read a disk.
  const names = Object.keys(event).filter((name) => !UNSAID.includes(name));
  printJson({
    done: true,
    ...Object.fromEntries(names.map((name) => [name, event[name as keyof EndEvent]])),
    ...Object.keys(parts).length > 0 && { parts },
    ...event.isInterrupted && { interrupted: true },
    ...event.isStoppedEarly && { stoppedEarly: true },
  });
}

const printJson = (line: unknown) => print(JSON.stringify(line));

type EndEvent = Extract<TrainEvent, { type: "end" }>;

/** Fields of the last event that the JSON line omits or formats differently. */
const UNSAID: readonly string[] = [
  "type",
  "weights",
  "weightsHeld",
  "memory",
  "choice",
  "isInterrupted",
  "isStoppedEarly",
] satisfies (keyof EndEvent)[];

/**
 * Returns a report that prints text and the progress of the run, in a status line on a terminal.
 *
 * @param memory prints tables of the planned and the used memory of each worker.
 */
function consoleReport(
  steps: number,
  progress: ReturnType<typeof openProgress>,
  memory: MemoryReport,
): Report {
  let told: string | undefined, before: number | undefined; // steps of earlier starts
  return (event) => {
    if (event.type === "step" || event.type === "skip") before ??= event.step - 1;
    switch (event.type) {
      case "plan":
        return [...planLines(event.plan), ...memory?.begin(event.plan) ?? []].forEach(print);
      case "step":
        return progress.step(
          event.step,
          event.loss,
          event.tokensPerSecond,
          metricTexts(event.metrics),
        );
      case "skip":
        return print(
          `step ${event.step} skipped: gradients overflowed at loss scale ${event.lossScale}; the next scale is ${event.nextLossScale}`,
        );
      case "evaluation":
        return print(evaluationLine(event));
      case "checkpoint":
        // The last step is reported at the end.
        if (event.step === steps) return;
        told = event.path;
        return print(`checkpoint ${told}${event.isBest ? ", the best so far" : ""}`);
      case "end": {
        progress[Symbol.dispose]();
        const seconds = event.seconds.toFixed(1);
        const { device, adapter, matrix } = event;
        const on = [device, adapter, matrix].filter((one) => one !== undefined).join(", ");
        const taken = event.steps - (before ?? event.steps);
        print(`${count(taken, "step")} in ${seconds} s on ${on}`);
        memory?.end(event.memory).forEach(print);
        if (event.checkpoint && event.checkpoint !== told) print(`checkpoint ${event.checkpoint}`);
        return bestLines(event).forEach(print);
      }
    }
  };
}

function evaluationLine(event: TrainEvent & { type: "evaluation" }): string {
  const { step, best } = event;
  const before = best && best.step < step
    ? `; ${best.loss.toFixed(3)} after step ${best.step} stays best`
    : "";
  return evaluationText(event) + before;
}

/** Formats the best evaluation, its checkpoint, and whether training stopped early. */
function bestLines({ best, isStoppedEarly }: EndEvent): string[] {
  if (!best) return [];
  const { step, loss, checkpoint } = best, place = checkpoint === null ? "" : `: ${checkpoint}`;
  return [
    ...isStoppedEarly ? [`ended early, because no evaluation after step ${step} was better`] : [],
    `best held-out loss ${loss.toFixed(3)} after step ${step}${place}`,
  ];
}

function sayHowToResume(event: TrainEvent & { type: "end" }, { args }: TrainRequest): void {
  const how = event.checkpoint
    ? `resume with: ${
      commandLine("train", "--resume", ...[event.checkpoint, ...repeatedFlags(args)].map(shellWord))
    }`
    : "nothing was saved, since no --out was given";
  printError(`Interrupted after step ${event.steps}; ${how}`);
}

/** Formats the plan before the run. */
function planLines(plan: Plan): string[] {
  const { stages, replicas, parameters, trained } = plan;
  const copies = replicas > 1 ? `, ${replicas} replicas` : "";
  const part = trained < parameters ? ` (${trained.toLocaleString("en-US")} trained)` : "";
  const depth = count(stages.length, "stage"), each = count(plan.microBatches, "micro-batch");
  return [
    `${plan.model}: ${count(parameters, "parameter")}${part}, ${depth}${copies}`,
    ...stages.map(({ stage, workers, layers, parameters, costShare }) =>
      `  stage ${stage} on worker ${workers.join(", ")}: ${layers.join(", ")}` +
      ` (${count(parameters, "parameter")}, ${(100 * costShare).toFixed(0)} % of the work)`
    ),
    `schedule ${plan.schedule}, ${each} a step, device ${plan.device}, runtime ${plan.runtime}`,
    coresLine(plan.share),
  ];
}

/** Formats the threads of each worker, and whether there are enough cores. */
function coresLine({ threads, workersHere, cores }: CoreShare): string {
  const each = workersHere === 1 ? "" : " each", wanted = workersHere * threads;
  const who = `${count(workersHere, "worker")} with ${count(threads, "thread")}${each}`;
  return wanted <= cores
    ? `${who}, on ${count(cores, "core")}`
    : `${who} share ${count(cores, "core")}: more than there are, so they wait for each other`;
}
