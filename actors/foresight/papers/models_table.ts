/**
 * The analytic models of the papers beside the simulator, so that their errors can be seen.
 *
 * @module
 */

import {
  analyze,
  checkpointedOutputs,
  createSchedule,
  hanayoBubbleRatio,
  hanayoPrintedRatio,
  printedOutputs,
  recomputedStepFlops,
  simulateStep,
} from "../../../schedules/mod.ts";
import { axonnStep } from "./axonn_step.ts";
import { compareEquation1 } from "./equation_1.ts";
import { SUMMIT } from "./machines/summit.ts";
import { AXONN_MODELS, BERT_48, GPT2_64 } from "./transformer.ts";

/** One figure by a formula and by the simulator. */
export interface ModelRow {
  /** The formula. */
  readonly model: string;
  /** What it is asked for. */
  readonly configuration: string;
  /** What the figures are in. */
  readonly unit: string;
  /** By the formula. */
  readonly analytic: number;
  /** By the simulator, or by executing the schedule. */
  readonly simulated: number;
  /** analytic ÷ simulated - 1. */
  readonly difference: number;
}

type Cells = readonly [string, string, string, number, number];

/** All rows. */
export function modelsTable(): ModelRow[] {
  return [...equation1Cells(), ...hanayoCells(), ...axonnCells()].map(
    ([model, configuration, unit, analytic, simulated]) => ({
      model,
      configuration,
      unit,
      analytic,
      simulated,
      difference: analytic / simulated - 1,
    }),
  );
}

function equation1Cells(): Cells[] {
  return ([[BERT_48, 32, 256], [GPT2_64, 512, 512]] as const).flatMap(([model, workers, batch]) =>
    compareEquation1(model, workers, batch).map(({ plan, analyticMs, simulatedMs }): Cells => {
      const { width, options, microBatch, recomputes } = plan;
      const sizes = `W=${width} D=${options.workers} B=${microBatch}${recomputes ? " R" : ""}`;
      return ["Chimera Eq. 1", `${model.name}, ${sizes}`, "ms", analyticMs, simulatedMs];
    })
  );
}

/** One round of eight workers, a backward of two forwards, a message of a twentieth or a fifth. */
function hanayoCells(): Cells[] {
  const P = 8;
  return [0, 0.05, 0.2].flatMap((message) =>
    [1, 2, 4].flatMap((waves): Cells[] => {
      const step = { workers: P, waves, forward: 1, backward: 2, message };
      const schedule = createSchedule("hanayo", { workers: P, microBatches: P, waves });
      const { bubbleRatio } = analyze(schedule, { forward: 1, backward: 2, send: message });
      const sizes = `P=${P} W=${waves} T_C=${message}`;
      return [
        ["Hanayo Eq. 1, corrected", sizes, "%", 100 * hanayoBubbleRatio(step), 100 * bubbleRatio],
        ["Hanayo Eq. 1, as printed", sizes, "%", 100 * hanayoPrintedRatio(step), 100 * bubbleRatio],
      ];
    })
  );
}

function axonnCells(): Cells[] {
  const outputs = [[24, 2], [12, 4], [6, 8]].flatMap(([depth, every]): Cells[] => {
    const kept = heldOutputs(48, depth!, every!), sizes = `48 layers, G=${depth} ac=${every}`;
    const [mended, printed] = [checkpointedOutputs, printedOutputs].map((count) =>
      count(48, depth!, every!)
    ) as [number, number];
    return [
      ["AxoNN's activations, corrected", sizes, "", mended, kept],
      ["AxoNN's activations, as printed", sizes, "", printed, kept],
    ];
  });
  const rates = ([[12, 8, 6], [100, 2, 48]] as const).map(
    ([billions, microBatch, depth]): Cells => {
      const model = AXONN_MODELS[billions], batch = 16_384;
      const plan = { model, batch, depth, width: 8, microBatch, offloads: true, coarsening: 4 };
      const { peakFlops, topShare } = SUMMIT;
      const seconds = recomputedStepFlops(model, batch) /
        (8 * depth * peakFlops.value * topShare.value);
      return [
        "AxoNN's operations at 57 % of the peak",
        `${billions} billion`,
        "s",
        seconds,
        axonnStep(plan).stepS,
      ];
    },
  );
  return [...outputs, ...rates];
}

/** Layer outputs that a worker of a message-driven pipe holds at most, by the simulator's memory. */
function heldOutputs(layers: number, depth: number, every: number): number {
  const schedule = createSchedule("message-driven", { workers: depth, microBatches: 4 * depth });
  const memory = { keptBytes: layers / depth / every + 1, recomputedBytes: every };
  const stage = { forwardMs: 1, backwardMs: 3, memory };
  const { peakBytes } = simulateStep({
    schedule,
    stages: Array.from({ length: depth }, () => stage),
  });
  return Math.max(...peakBytes);
}
