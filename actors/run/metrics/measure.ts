/**
 * Metrics of a run under way, event by event.
 *
 * @module
 */

import { totalMemory } from "../memory/memory_plan.ts";
import type { Metrics } from "./metrics.ts";
import type { TrainEvent } from "../train_event.ts";
import type { TrainingRun } from "../training_run.ts";

/**
 * What an event measures.
 *
 * @returns undefined for an event that measures nothing.
 */
export function metricsOf(run: TrainingRun, event: TrainEvent): Metrics | undefined {
  if (event.type !== "step" && event.type !== "skip" && event.type !== "evaluation") return;
  const { step, loss } = event;
  const common = {
    step,
    time: Date.now(),
    seconds: (performance.now() - run.began) / 1000,
    tokens: run.progress.predictions,
    rss: Deno.memoryUsage().rss,
  };
  if (event.type === "evaluation") {
    return { type: event.type, ...common, evalLoss: loss, perplexity: Math.exp(loss) };
  }
  const { type, learningRate, lossScale, predictions, seconds } = event, { memory } = run.held;
  return {
    type,
    ...common,
    loss,
    ...type === "step" && { gradNorm: event.gradNorm },
    learningRate,
    lossScale,
    tokensPerSecond: predictions / seconds,
    ...memory && { memory: memory.map((held) => totalMemory([held])) },
  };
}
