/**
 * What Chimera's paper counts: bubbles, weights, activations and parameters, which no machine is
 * needed for.
 *
 * @module
 */

import {
  analyze,
  createSchedule,
  criticalPath,
  type ScheduleOptions,
} from "../../../../schedules/mod.ts";
import { type PaperRow, type RowCells, rowsOf } from "./paper_row.ts";
import { BERT_48, GPT2_64, parametersOf } from "../transformer.ts";

const D = 8, N = 8;

/** A schedule executed at these durations; a backward takes two forwards unless given. */
function executed(name: string, more: Partial<ScheduleOptions> = {}, backward = 2) {
  const schedule = createSchedule(name, { workers: D, microBatches: N, ...more });
  return analyze(schedule, { forward: 1, backward });
}

const percent = (ratio: number) => 100 * ratio;
const range = (values: readonly number[]) => `${Math.min(...values)}..${Math.max(...values)}`;

/** The rows. */
export function chimeraFormulas(): PaperRow[] {
  return rowsOf("chimera", "formula", [...bubbleCells(), ...memoryCells(), ...pathCells()]);
}

/** Parameters and bubbles. */
function bubbleCells(): RowCells[] {
  const deep = { workers: 32, microBatches: 32 };
  const half = executed("chimera", deep, 1).idle[0]! / executed("dapple", deep, 1).idle[0]!;
  const kept = executed("dapple", deep).peakActivations;
  const mean = kept.reduce((a, b) => a + b, 0) / kept.length;
  return [
    ["Table 4", "parameters of Bert-48", "", 669_790_012, parametersOf(BERT_48)],
    ["Table 4", "parameters of GPT-2", "", 1_389_327_360, parametersOf(GPT2_64)],
    ["abstract", "bubbles fewer than DAPPLE's by up to, D = 32", "%", 50, percent(1 - half)],
    ["1", "use of activation memory in 1F1B, D = 32", "%", 50, percent(mean / Math.max(...kept))],
    ["2", "bubbles of GPipe, D = 8: 2(D-1)", "", 2 * (D - 1), executed("gpipe", {}, 1).idle[0]!],
    ["2", "bubbles of Chimera, D = 8: D-2", "", D - 2, executed("chimera", {}, 1).idle[0]!],
    [
      "Table 2",
      "bubble ratio of GPipe, D = N = 8: (D-1)/(N+D-1)",
      "%",
      percent(7 / 15),
      percent(executed("gpipe").bubbleRatio),
    ],
    [
      "Table 2",
      "bubble ratio of DAPPLE, D = N = 8",
      "%",
      percent(7 / 15),
      percent(executed("dapple").bubbleRatio),
    ],
    [
      "Table 2",
      "bubble ratio of GEMS, D = 8, N = 64: about (D-1)/(D+1/2)",
      "%",
      percent(7 / 8.5),
      percent(executed("gems", { microBatches: 64 }).bubbleRatio),
    ],
    [
      "2",
      "bubble ratio of Chimera, D = N = 8: (D-2)/(3N/2+D-2)",
      "%",
      percent(6 / 18),
      percent(executed("chimera").bubbleRatio),
    ],
    [
      "Table 2",
      "bubble ratio of Chimera without middle bubbles, D = 8, N = 16: (D-2)/(2N+D-2)",
      "%",
      percent(6 / 38),
      percent(executed("chimera", { microBatches: 16, scale: "doubling" }).bubbleRatio),
      "forward doubling; the printed ratio holds for pairs that are not fused",
    ],
  ];
}

/** Activations and weights of Table 2. */
function memoryCells(): RowCells[] {
  return [
    [
      "Table 2",
      "activations of DAPPLE in Ma, D = 8",
      "",
      "1..8",
      range(executed("dapple").peakActivations),
    ],
    [
      "Table 2",
      "activations of GPipe, N = 8",
      "",
      "8..8",
      range(executed("gpipe").peakActivations),
    ],
    ["Table 2", "activations of GEMS", "", "1..1", range(executed("gems").peakActivations)],
    [
      "Table 2",
      "activations of Chimera, D = 8: D/2+1 to D",
      "",
      "5..8",
      range(executed("chimera").peakActivations),
    ],
    [
      "3.5",
      "activations of forward doubling, D = 8, N = 16, over direct",
      "×",
      2,
      Math.max(...executed("chimera", { microBatches: 16, scale: "doubling" }).peakActivations) /
      Math.max(...executed("chimera", { microBatches: 16 }).peakActivations),
    ],
    ["Table 2", "weights of PipeDream, D = 8", "", "1..8", range(executed("pipedream").weights)],
    ["Table 2", "weights of PipeDream-2BW", "", "2..2", range(executed("pipedream-2bw").weights)],
    ["Table 2", "weights of Chimera", "", "2..2", range(executed("chimera").weights)],
  ];
}

/** The critical path, and more than two pipelines. */
function pathCells(): RowCells[] {
  const { forwards, backwards } = criticalPath(
    createSchedule("chimera", { workers: 6, microBatches: 6 }),
  );
  const f2 = { pipelines: 2 };
  return [
    ["3.4, Figure 6", "C_f at D = N = 6", "", 6, forwards],
    ["3.4, Figure 6", "C_b at D = N = 6", "", 10, backwards],
    [
      "3.6",
      "bubbles with f = 2, D = 8: 2(D/f-1)",
      "",
      6,
      executed("chimera", f2, 1).idle[0]!,
      "the text has another count than the paper's own Table 3, which the schedule agrees with",
    ],
    [
      "Table 3",
      "bubble ratio with f = 2, D = N = 8: (D-2f)/(2fN+D-2f)",
      "%",
      percent(4 / 36),
      percent(executed("chimera", f2, 1).bubbleRatio),
    ],
    [
      "Table 3",
      "activations with f = 2, D = 8: D-D/2f+1 to D",
      "",
      "7..8",
      range(executed("chimera", f2).peakActivations),
    ],
    ["Table 3", "weights with f = 2", "", "4..4", range(executed("chimera", f2).weights)],
  ];
}
