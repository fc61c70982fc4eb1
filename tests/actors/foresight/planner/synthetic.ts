/** A machine made up for tests of the planner: costs by formula, so that all is known of them. */

import type { Forecast } from "../../../../actors/foresight/planner/forecast.ts";
import type { Candidate, PlanSpace } from "../../../../actors/foresight/planner/candidate.ts";
import { type Schedule, simulateStep, type StepModel } from "../../../../schedules/mod.ts";

/** What a sample of a layer costs, and what comes on top of it for each micro-batch. */
const LAYER_MS = 1, MICRO_BATCH_MS = 0.3;

/** Layers of the model. */
export const LAYERS = 12;

/** The step of a candidate: layers in equal stages, a link, an all-reduce of each stage. */
export function stepModelOf(candidate: Candidate, schedule: Schedule): StepModel {
  const { microBatch, recompute, replicas, coarsening = 4 } = candidate;
  const layers = LAYERS / schedule.stages,
    forwardMs = layers *
      (LAYER_MS * microBatch + MICRO_BATCH_MS);
  const kept = { none: 100, cheap: 60, full: 10 }[recompute] * microBatch * layers;
  const stage = {
    forwardMs,
    backwardMs: 2 * forwardMs,
    recomputeMs: { none: 0, cheap: 0.1, full: 1 }[recompute] * forwardMs,
    outputBytes: 10 * microBatch,
    gradientBytes: 400 * layers,
    optimizerMs: 0.5 * layers,
    memory: {
      weightBytes: 400 * layers,
      gradientBytes: 400 * layers,
      optimizerBytes: 800 * layers,
      keptBytes: kept,
    },
  };
  return {
    schedule,
    replicas,
    dispatchMs: 0.02,
    stages: Array.from({ length: schedule.stages }, () => stage),
    network: { link: { latencyMs: 0.1, bytesPerMs: 100 } },
    closing: { bucketBytes: 100, coarsening, launchMs: 0.05 },
  };
}

/** Predicts by simulation, and counts how often it is asked to. */
export function syntheticForecast(): Forecast & { readonly simulated: Candidate[] } {
  const simulated: Candidate[] = [];
  return {
    simulated,
    least: stepModelOf,
    bytes: (candidate, schedule) => simulateStep(stepModelOf(candidate, schedule)).peakBytes,
    step(candidate, schedule) {
      simulated.push(candidate);
      const step = simulateStep(stepModelOf(candidate, schedule));
      return { stepMs: step.makespanMs, simulated: step };
    },
  };
}

/** A small space: four devices, sixteen samples. */
export const SMALL: PlanSpace = {
  devices: 4,
  batch: 16,
  layers: LAYERS,
  schedules: ["gpipe", "1f1b", "interleaved", "zb-h1", "chimera", "hanayo", "message-driven"],
  recompute: ["none", "cheap", "full"],
  precision: ["fp32"],
  offload: [false],
};
