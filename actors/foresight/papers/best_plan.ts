/**
 * The configuration that a system runs best in: W, D and B, and whether to compute again.
 *
 * @module
 */

import type { PaperMachine } from "./machines/paper_machine.ts";
import { computeMs } from "./paper_profile.ts";
import { type PaperPlan, type PaperStep, simulatePlan } from "./paper_step.ts";
import type { PaperSystem } from "./systems.ts";
import { headFlops, layerFlops, type PaperModel } from "./transformer.ts";

/** What a search is given. */
export interface PaperTask {
  readonly machine: PaperMachine;
  readonly model: PaperModel;
  /** P: all workers. */
  readonly workers: number;
  /** B̂: samples of a step; of PipeDream, whose step is one micro-batch, as memory allows. */
  readonly batch: number;
  /** Depths to choose from; all powers of two up to the number of layers unless given. */
  readonly depths?: readonly number[];
  /** Micro-batch sizes to choose from; all powers of two unless given. */
  readonly microBatches?: readonly number[];
}

/**
 * The plan of the highest throughput that fits, among all widths, depths and micro-batch sizes that
 * are powers of two, as Chimera's section 4.2.1 searches; undefined where none fits.
 */
export function bestPlan(system: PaperSystem, task: PaperTask): PaperStep | undefined {
  const plans = plansOf(system, task);
  if (!system.reducesAlways) return bestOf(plans);
  // PipeDream takes the largest micro-batch that fits, and computes again only where none does.
  return bestOf(plans.filter(({ recomputes }) => !recomputes)) ?? bestOf(plans);
}

function bestOf(plans: readonly PaperPlan[]): PaperStep | undefined {
  let best: PaperStep | undefined;
  for (const plan of plans) {
    if (best && mostPerSecond(plan) <= best.samplesPerSecond) continue;
    const step = simulatePlan(plan);
    if (step && step.samplesPerSecond > (best?.samplesPerSecond ?? 0)) best = step;
  }
  return best;
}

/** All plans, the one with the highest bound on its throughput first. */
function plansOf(system: PaperSystem, task: PaperTask): PaperPlan[] {
  const { machine, model, workers, batch } = task;
  const { depths = powers(model.layers).filter((depth) => depth > 1) } = task;
  const plans: PaperPlan[] = [];
  for (
    const depth of depths.filter((depth) => workers % depth === 0 && model.layers % depth === 0)
  ) {
    const width = workers / depth;
    const sizes = task.microBatches ?? (system.reducesAlways ? upTo(64) : powers(batch));
    for (const microBatch of sizes) {
      const microBatches = system.reducesAlways ? 1 : batch / (width * microBatch);
      if (!Number.isInteger(microBatches)) continue;
      for (const recomputes of [false, true]) {
        for (
          const variant of microBatches > depth ? system.variants : system.variants.slice(0, 1)
        ) {
          const options = { workers: depth, microBatches, ...variant };
          plans.push({ machine, model, system, width, microBatch, options, recomputes });
        }
      }
    }
  }
  return plans.sort((a, b) => mostPerSecond(b) - mostPerSecond(a));
}

/** Samples per second without bubbles and messages: no plan has more. */
function mostPerSecond({ machine, model, microBatch, width, options, recomputes }: PaperPlan) {
  const flops = layerFlops(model, microBatch) * model.layers + headFlops(model, microBatch);
  const forwardMs = computeMs(machine, flops, microBatch * model.sequence);
  return 1000 * width * options.workers * microBatch / (forwardMs * (recomputes ? 4 : 3));
}

const powers = (most: number): number[] => {
  const all: number[] = [];
  for (let power = 1; power <= most; power *= 2) all.push(power);
  return all;
};

const upTo = (most: number) => Array.from({ length: most }, (_, i) => i + 1);
