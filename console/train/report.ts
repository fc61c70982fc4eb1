/**
 * Output of a run: text, or one JSON object per line.
 *
 * @module
 */

import type { CoreShare, Plan, TrainEvent } from "../../actors/options/train_events.ts";
import { commandLine } from "../../actors/options/limits.ts";
import type { Task } from "../../actors/registry/task.ts";
import { evaluationText, metricTexts, openProgress, print, printError } from "../terminal.ts";
import { openMemoryReport } from "./memory_report.ts";
import type { KeptComponents } from "../../actors/run_folder/metrics_file.ts";

/** Prints the events of a run. Disposing restores the terminal. */
export type Report = ((event: TrainEvent) => void) & Disposable;

/**
 * Returns a report that prints one JSON object per line to standard output, and nothing else.
 *
 * @param withMemory Prints the memory of each worker in a last line.
 * @param parts Records of the user's modules, for the last line.
 */
export function jsonReport(withMemory = false, parts: KeptComponents = {}): Report {
  const memory = withMemory ? openMemoryReport() : undefined;
  return disposable((event) => {
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
        printDone(event, parts);
        return sayHowToResume(event);
      }
    }
  }, () => memory?.[Symbol.dispose]());
}

/** Prints the result of a run as one JSON object. */
export function printDone(event: EndEvent, parts: KeptComponents): void {
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

const printLine = (line: string) => print(line);

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

const disposable = (report: (event: TrainEvent) => void, dispose = () => {}): Report =>
  Object.assign(report, { [Symbol.dispose]: dispose });

/**
 * Returns a report that prints text and the progress of the run, in a status line on a terminal.
 *
 * @param unit unit of the model's predictions.
 * @param withMemory whether to print tables of the planned and the used memory of each worker.
 */
export function consoleReport(steps: number, unit: Task["unit"], withMemory = false): Report {
  const memory = withMemory ? openMemoryReport() : undefined;
  const progress = openProgress(steps, unit);
  let told: string | undefined, before: number | undefined; // steps of earlier starts
  return disposable((event) => {
    if (event.type === "step" || event.type === "skip") before ??= event.step - 1;
    switch (event.type) {
      case "plan":
        return [...planLines(event.plan), ...memory?.begin(event.plan) ?? []].forEach(printLine);
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
        print(`${taken} steps in ${seconds} s on ${on}`);
        memory?.end(event.memory).forEach(printLine);
        if (event.checkpoint && event.checkpoint !== told) print(`checkpoint ${event.checkpoint}`);
        bestLines(event).forEach(printLine);
        return sayHowToResume(event);
      }
    }
  }, () => {
    progress[Symbol.dispose]();
    memory?.[Symbol.dispose]();
  });
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
  const { step, loss, checkpoint } = best;
  return [
    ...isStoppedEarly ? [`ended early, as no evaluation after step ${step} was better`] : [],
    `best held-out loss ${loss.toFixed(3)} after step ${step}${
      checkpoint === null ? "" : `: ${checkpoint}`
    }`,
  ];
}

function sayHowToResume(event: TrainEvent & { type: "end" }): void {
  if (!event.isInterrupted) return;
  const how = event.checkpoint
    ? `resume with: ${
      commandLine("train", "--resume", event.checkpoint)
    } (plus --steps and the other flags of "How it runs")`
    : "nothing was saved, since no --out was given";
  printError(`Interrupted after step ${event.steps}; ${how}`);
}

/** Formats the plan before the run. */
function planLines(plan: Plan): string[] {
  const { stages } = plan;
  const count = (n: number) => n.toLocaleString("en-US");
  return [
    `${plan.model}: ${count(plan.parameters)} parameters, ${stages.length} stages`,
    ...stages.map(({ stage, workers, layers, parameters, costShare }) =>
      `  stage ${stage} on worker ${workers.join(", ")}: ${layers.join(", ")}` +
      ` (${count(parameters)} parameters, ${(100 * costShare).toFixed(0)} % of the work)`
    ),
    `schedule ${plan.schedule}, ${plan.microBatches} micro-batches a step, device ${plan.device}, runtime ${plan.runtime}`,
    coresLine(plan.share),
  ];
}

/** Formats the threads of each worker, and whether there are enough cores. */
function coresLine({ threads, workersHere, cores }: CoreShare): string {
  const count = (n: number, what: string) => `${n} ${what}${n === 1 ? "" : "s"}`;
  const each = workersHere === 1 ? "" : " each", wanted = workersHere * threads;
  const who = `${count(workersHere, "worker")} with ${count(threads, "thread")}${each}`;
  return wanted <= cores
    ? `${who}, on ${count(cores, "core")}`
    : `${who} share ${count(cores, "core")}: more than there are, so they wait for each other`;
}
