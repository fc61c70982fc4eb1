/**
 * Eq. 1 of Chimera's paper beside the simulator, for every width and depth of Figure 13.
 *
 * @module
 */

import { chimeraStep, createSchedule, messageMs, rabenseifnerMs } from "../../../schedules/mod.ts";
import { PIZ_DAINT } from "./machines/gloo_clusters.ts";
import { computeMs } from "./paper_profile.ts";
import { type PaperPlan, simulatePlan } from "./paper_step.ts";
import { CHIMERA } from "./systems.ts";
import { edgeBytes, headFlops, layerFlops, type PaperModel, parametersOf } from "./transformer.ts";

/** One configuration by the formula and by the simulator. */
export interface Equation1 {
  readonly plan: PaperPlan;
  readonly analyticMs: number;
  readonly simulatedMs: number;
  /** analytic ÷ simulated - 1. */
  readonly difference: number;
}

/**
 * All depths of Chimera with the largest micro-batch that fits, as the paper picks it (section 3.4),
 * with recomputation where nothing fits without.
 */
export function compareEquation1(
  model: PaperModel,
  workers: number,
  batch: number,
): Equation1[] {
  const found: Equation1[] = [];
  for (let depth = 2; depth <= model.layers; depth *= 2) {
    if (model.layers % depth > 0 || workers % depth > 0) continue;
    const one = greatest(model, workers, batch, depth, false) ??
      greatest(model, workers, batch, depth, true);
    if (one) found.push(one);
  }
  return found;
}

function greatest(
  model: PaperModel,
  workers: number,
  batch: number,
  depth: number,
  recomputes: boolean,
): Equation1 | undefined {
  const machine = PIZ_DAINT, width = workers / depth;
  for (let microBatch = batch / width; microBatch >= 1; microBatch /= 2) {
    const microBatches = batch / (width * microBatch);
    if (microBatches < depth) continue; // fewer than D keep not all stages active (section 3.1)
    const options = { workers: depth, microBatches };
    const plan = { machine, model, system: CHIMERA, width, microBatch, options, recomputes };
    const simulated = simulatePlan(plan);
    if (simulated === undefined) continue;
    const analyticMs = equation1(plan), simulatedMs = simulated.stepMs;
    return { plan, analyticMs, simulatedMs, difference: analyticMs / simulatedMs - 1 };
  }
  return undefined;
}

/** Milliseconds of a step of Chimera by Eq. 1. */
export function equation1({ machine, model, microBatch, width, options, recomputes }: PaperPlan) {
  const flops = model.layers * layerFlops(model, microBatch) + headFlops(model, microBatch);
  const linkModel = (
    { latencyMs, bytesPerMs = Infinity }: { latencyMs: number; bytesPerMs?: number | undefined },
  ) => ({ latencyMs, bytesPerMs });
  const { workers } = options;
  return chimeraStep({
    schedule: createSchedule("chimera", options),
    forwardMs: computeMs(machine, flops / workers, microBatch * model.sequence),
    backward: recomputes ? 3 : 2,
    messageMs: messageMs(edgeBytes(model, microBatch), linkModel(machine.link.value)),
    allReduceMs: rabenseifnerMs(
      4 * parametersOf(model) / workers,
      2 * width,
      linkModel((machine.reduceLink ?? machine.link).value),
    ),
  }).totalMs;
}
