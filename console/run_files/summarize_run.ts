/**
 * What a run has come to, in a few numbers.
 *
 * @module
 */

import { basename, resolve } from "node:path";
import { readMetrics } from "./read_metrics.ts";
import { readConfig, type RunFolder } from "./read_run.ts";

/** A run in a few numbers; what nobody has noted is absent. */
export interface RunSummary {
  /** The name of its folder. */
  readonly name: string;
  readonly path: string;
  readonly state: "running" | "finished" | "stopped";
  readonly model?: string;
  /** Trained numbers. */
  readonly parameters?: number;
  /** Steps that were taken. */
  readonly steps: number;
  /** Steps of the whole run. */
  readonly asked?: number;
  /** Of the last step, in nats a prediction. */
  readonly loss?: number;
  /** The lowest held-out loss. */
  readonly bestEvalLoss?: number;
  /** Predictions a second in the middle of all steps: half were faster. */
  readonly tokensPerSecond?: number;
  /** When it was begun, as ISO 8601 has it. */
  readonly started?: string;
}

/** Summarizes a run: all it has measured is read once. */
export function summarizeRun(run: RunFolder): RunSummary {
  const { path, record, checkpoints, isRunning } = run, config = record ? {} : readConfig(run);
  const { steps: asked } = (record?.flags ?? config.run ?? {}) as { steps?: unknown };
  const measured = measure(path);
  const steps = Math.max(measured.steps, record?.end?.step ?? 0, checkpoints[0]?.step ?? 0);
  // What ran out of patience has come to its end, too.
  const isFinished = record
    ? record.end !== undefined && record.end.reason !== "interrupted"
    : steps === asked;
  const model = record?.model ?? (config.flags as { model?: unknown } | undefined)?.model;
  const parameters = record?.plan.parameters;
  return {
    name: basename(resolve(path)),
    path,
    state: isRunning ? "running" : isFinished ? "finished" : "stopped",
    ...measured,
    steps,
    ...typeof model === "string" && { model },
    ...Number.isSafeInteger(parameters) && { parameters: parameters! },
    ...Number.isSafeInteger(asked) && { asked: asked as number },
    ...record && { started: record.started },
  };
}

/** Speeds of the last steps that are kept. */
const SPEEDS_MAX = 1000;

function measure(path: string) {
  let steps = 0, count = 0, loss: number | undefined, bestEvalLoss: number | undefined;
  const speeds: number[] = [];
  for (const { metrics } of readMetrics(path)) {
    const { type, step, evalLoss, tokensPerSecond } = metrics;
    steps = Math.max(steps, step);
    if (type === "step") loss = metrics.loss ?? loss;
    if (evalLoss !== undefined) bestEvalLoss = Math.min(bestEvalLoss ?? Infinity, evalLoss);
    if (tokensPerSecond !== undefined) speeds[count++ % SPEEDS_MAX] = tokensPerSecond;
  }
  const tokensPerSecond = speeds.sort((a, b) => a - b)[Math.floor(speeds.length / 2)];
  return {
    steps,
    ...loss !== undefined && { loss },
    ...bestEvalLoss !== undefined && { bestEvalLoss },
    ...tokensPerSecond !== undefined && { tokensPerSecond },
  };
}
