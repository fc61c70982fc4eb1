/**
 * What a run prints: words for a person, or one JSON object a line.
 *
 * @module
 */

import { commandLine } from "../../actors/options/limits.ts";
import type { Task } from "../../actors/registry/task.ts";
import type { CoreShare } from "../../actors/run/devices.ts";
import type { TrainEvent } from "../../actors/run/events.ts";
import type { Plan } from "../../actors/run/plan.ts";
import { openProgress, print, printError } from "../terminal.ts";
import { openMemoryReport } from "./memory_report.ts";
import type { KeptComponents } from "../run_files/run_folder.ts";

/** Prints the events of a run; disposing of it leaves the terminal as it was, however a run ends. */
export type Report = ((event: TrainEvent) => void) & Disposable;

/**
 * One JSON object a line on standard output, and nothing else there.
 *
 * @param withMemory whether a line at the end says what each worker held.
 * @param parts the modules of the user's, which the last line tells.
 */
export function jsonReport(withMemory = false, parts: KeptComponents = {}): Report {
  const memory = withMemory ? openMemoryReport() : undefined;
  return disposable((event) => {
    switch (event.type) {
      case "plan":
        return void memory?.begin(event.plan);
      case "step": {
        const { step, loss, gradNorm, tokensPerSecond } = event;
        return printJson({ step, loss, gradNorm, tokensPerSecond });
      }
      case "skip": {
        const { step, loss, lossScale, nextLossScale } = event;
        return printJson({ step, loss, skipped: true, lossScale, nextLossScale });
      }
      case "evaluation":
        return printJson({ step: event.step, evalLoss: event.loss, best: event.best });
      case "end": {
        if (memory) printJson(memory.json(event.memory));
        printDone(event, parts);
        return sayHowToResume(event);
      }
    }
  }, () => memory?.[Symbol.dispose]());
}

/** Prints what a run came to, as one JSON object. */
export function printDone(event: EndEvent, parts: KeptComponents): void {
  // The weights may be read from a disk when they are asked for.
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

/** What a line of JSON leaves out of the last event, or says in other words. */
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
 * Words, and how far the run has come: on a terminal in a line that changes.
 *
 * @param unit what a model predicts.
 * @param withMemory whether tables say what each worker will hold, and what it held.
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
        return progress.step(event.step, event.loss, event.tokensPerSecond);
      case "skip":
        return print(
          `step ${event.step} skipped: gradients overflowed at loss scale ${event.lossScale}; the next scale is ${event.nextLossScale}`,
        );
      case "evaluation":
        return print(evaluationLine(event));
      case "checkpoint":
        // The last one is told at the end.
        if (event.step === steps) return;
        told = event.path;
        return print(`checkpoint ${told}${event.isBest ? ", the best so far" : ""}`);
      case "end": {
        progress[Symbol.dispose]();
        const seconds = event.seconds.toFixed(1);
        const { adapter } = event, on = adapter === undefined ? "" : `, ${adapter}`;
        const taken = event.steps - (before ?? event.steps);
        print(`${taken} steps in ${seconds} s on ${event.device}${on}`);
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

function evaluationLine({ step, loss, best }: TrainEvent & { type: "evaluation" }): string {
  const before = best && best.step < step
    ? `; ${best.loss.toFixed(3)} after step ${best.step} stays best`
    : "";
  return `after step ${step}: held-out loss ${loss.toFixed(3)}${before}`;
}

/** Which evaluation was the best, where it is kept, and whether it ended the run. */
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
    ? `go on with: ${
      commandLine("train", "--resume", event.checkpoint)
    } (and the same --steps and other flags of how it runs)`
    : "nothing was saved, since no --out was given";
  printError(`Interrupted after step ${event.steps}; ${how}`);
}

/** What is about to run. */
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

/** Threads of each worker, and whether there are cores for them. */
function coresLine({ threads, workersHere, cores }: CoreShare): string {
  const count = (n: number, what: string) => `${n} ${what}${n === 1 ? "" : "s"}`;
  const each = workersHere === 1 ? "" : " each", wanted = workersHere * threads;
  const who = `${count(workersHere, "worker")} with ${count(threads, "thread")}${each}`;
  return wanted <= cores
    ? `${who}, on ${count(cores, "core")}`
    : `${who} share ${count(cores, "core")}: more than there are, so they wait for each other`;
}
