/**
 * What Hanayo's paper prints and measures, beside the executed schedules and its four clusters by the
 * simulator.
 *
 * @module
 */

import {
  analyze,
  createSchedule,
  hanayoBubbleRatio,
  hanayoPrintedRatio,
} from "../../../../schedules/mod.ts";
import { HANAYO_MACHINES } from "../machines/hanayo_clusters.ts";
import { type PaperMachine } from "../machines/paper_machine.ts";
import { type PaperRow, type RowCells, rowsOf } from "./paper_row.ts";
import { simulatePlan } from "../paper_step.ts";
import { CHIMERA_WAVE, DAPPLE, GPIPE, hanayoOf, type PaperSystem } from "../systems.ts";
import { HANAYO_BERT } from "../transformer.ts";

const WAVES = [2, 4, 8] as const;

/**
 * Samples of a micro-batch: a batch of 2 on 8 workers (section 5.4), which cannot be that of all P
 * micro-batches of a step, is taken to be each of them.
 */
const MICRO_BATCH = 2;

/** P workers in each of D pipelines, as the paper writes them. */
interface Setting {
  readonly machine: PaperMachine;
  readonly depth: number;
  readonly width: number;
  readonly microBatch?: number;
}

/**
 * Samples per second. Memory is not asked, as the paper does not say what is kept, nor are all-reduces
 * counted, as its weak scaling (100.1 % and 99.8 %) leaves no time for any.
 */
function rate(system: PaperSystem, { machine, depth, width, microBatch = MICRO_BATCH }: Setting) {
  const options = { workers: depth, microBatches: depth, ...system.variants[0] };
  const plan = { machine, model: HANAYO_BERT, system, width, microBatch, options };
  const leftOut = { ignoresMemory: true, withoutReduce: true };
  return simulatePlan({ ...plan, recomputes: false }, leftOut)!.samplesPerSecond;
}

/** The number of waves that is best, and its throughput. */
function bestWaves(setting: Setting): { waves: number; rate: number } {
  const all = WAVES.map((waves) => ({ waves, rate: rate(hanayoOf(waves), setting) }));
  return all.reduce((a, b) => b.rate > a.rate ? b : a);
}

const gain = (setting: Setting, over: PaperSystem) =>
  100 * (bestWaves(setting).rate / rate(over, setting) - 1);

/** The rows. */
export function hanayoRows(): PaperRow[] {
  return [...ratios(), ...clusters(), ...scaling()];
}

/** Bubble ratios at T_B = 2T_F, without messages: Figure 1 and section 3.4. */
function ratios(): PaperRow[] {
  const P = 8, uniform = { workers: P, forward: 1, backward: 2 };
  const executed = (name: string, waves?: number) => {
    const options = { workers: P, microBatches: P, ...(waves && { waves }) };
    return 100 * analyze(createSchedule(name, options), { forward: 1, backward: 2 }).bubbleRatio;
  };
  return rowsOf("hanayo", "formula", [
    ...[1, 2, 4, 8].map((waves): RowCells => [
      "3.4",
      `bubble ratio of ${waves} waves, P = 8, by the printed (2P-2)/(3PW+P-1)`,
      "%",
      100 * hanayoPrintedRatio({ ...uniform, waves }),
      executed("hanayo", waves),
      "the printed ratio has T_B/2W where T_B/W must stand: its step is below a lower bound",
    ]),
    ...[1, 2, 4, 8].map((waves): RowCells => [
      "3.4, corrected",
      `bubble ratio of ${waves} waves, P = 8, by (2P-2)/(3PW+2P-2)`,
      "%",
      100 * hanayoBubbleRatio({ ...uniform, waves }),
      executed("hanayo", waves),
    ]),
    [
      "3.3",
      "idle time with twice the waves",
      "%",
      50,
      100 * idleOf(P, 2) / idleOf(P, 1),
    ],
  ]);
}

const idleOf = (workers: number, waves: number) =>
  analyze(createSchedule("hanayo", { workers, microBatches: workers, waves })).idle[0]!;

/** Figure 9: eight settings, two of each cluster in this order. */
const GAINS = [[15.7, 30.4], [23.2, 29.9], [8.2, 17.1], [24.6, 28.0]] as const;

const UNSTATED =
  "sequence length, precision and micro-batch are not stated; the bandwidth of NCCL is assumed";

function clusters(): PaperRow[] {
  const rows = HANAYO_MACHINES.flatMap((machine, i) =>
    [{ depth: 8, width: 1 }, { depth: 4, width: 2 }].map(({ depth, width }, j) => {
      const setting = { machine, depth, width };
      const isFitted = i === 1 && j === 0;
      return rowsOf("hanayo", isFitted ? "fitted" : "simulated", [[
        "5.2",
        `gain over Chimera-wave, ${machine.name}, P = ${depth}, D = ${width}`,
        "%",
        GAINS[i]![j]!,
        gain(setting, CHIMERA_WAVE),
        isFitted ? "sets what an action costs beside its kernels" : UNSTATED,
      ]])[0]!;
    })
  );
  const overDapple = HANAYO_MACHINES.flatMap((machine) =>
    [[8, 1], [4, 2]].map(([depth, width]) => {
      const setting = { machine, depth: depth!, width: width! };
      return 100 * (rate(CHIMERA_WAVE, setting) / rate(DAPPLE, setting) - 1);
    })
  );
  const mean = overDapple.reduce((a, b) => a + b, 0) / overDapple.length;
  const most = Math.max(
    ...rows.flatMap(({ predicted }) => typeof predicted === "number" ? [predicted] : []),
  );
  const [partly, fully, tacc, cloud] = HANAYO_MACHINES as [
    PaperMachine,
    PaperMachine,
    PaperMachine,
    PaperMachine,
  ];
  const waves = (machine: PaperMachine, depth: number, width: number) =>
    bestWaves({ machine, depth, width }).waves;
  const few = "by our count eight waves cut stages so short that what an action costs exceeds it";
  return [
    ...rows,
    ...rowsOf("hanayo", "simulated", [
      ["abstract", "the most over Chimera-wave", "%", 30.4, most, UNSTATED],
      ["5.2", "Chimera-wave over DAPPLE, mean of eight settings, about", "%", 20, mean, UNSTATED],
      ["5.2", "best waves, PC, P = 8", "", 4, waves(partly, 8, 1), few],
      ["5.2", "best waves, FC, P = 8", "", 8, waves(fully, 8, 1), few],
      ["5.2", "best waves, PC, P = 4", "", 8, waves(partly, 4, 2), few],
      ["5.2", "best waves, FC, P = 4", "", 8, waves(fully, 4, 2), few],
      ["5.2", "best waves, TC, P = 8", "", 8, waves(cloud, 8, 1), few],
      ["5.2", "best waves, TC, P = 4", "", 8, waves(cloud, 4, 2), few],
      ["5.3", "best waves, TACC, P = 8, D = 4", "", 2, waves(tacc, 8, 4), UNSTATED],
    ]),
  ];
}

/** Figures 11 and 12, on TACC with P = 8. */
function scaling(): PaperRow[] {
  const machine = HANAYO_MACHINES[2]!;
  const at = (width: number, microBatch = MICRO_BATCH) => ({
    machine,
    depth: 8,
    width,
    microBatch,
  });
  const weakly = [
    [1, 8.19, 33.7, 33.4],
    [2, 8.11, 33.2, 33.3],
    [4, 8.13, 33.1, 33.3],
  ] as const;
  const best = (width: number, microBatch?: number) => bestWaves(at(width, microBatch)).rate;
  const efficiency = (width: number) => 100 * best(width) / (width * best(1));
  const none = "sets that all-reduces are not counted";
  const strong = (width: number) => 100 * best(width, 4 / width) / best(1, 4);
  const fits = rowsOf("hanayo", "fitted", [
    ["5.4", "weak scaling: efficiency on 16 GPUs", "%", 100.1, efficiency(2), none],
    ["5.4", "weak scaling: efficiency on 32 GPUs", "%", 99.8, efficiency(4), none],
  ]);
  const simulated = rowsOf("hanayo", "simulated", [
    ...weakly.flatMap(([width, ...stated]): RowCells[] =>
      [CHIMERA_WAVE, DAPPLE, GPIPE].map((system, i): RowCells => [
        "5.4",
        `weak scaling: gain over ${system.name}, ${8 * width} GPUs`,
        "%",
        stated[i]!,
        gain(at(width), system),
        UNSTATED,
      ])
    ),
    ...[[1, 8.8], [2, 8.1], [4, 8.7]].map(([width, stated]): RowCells => [
      "5.5",
      `strong scaling: gain over Chimera-wave, ${8 * width!} GPUs`,
      "%",
      stated!,
      gain(at(width!, 4 / width!), CHIMERA_WAVE),
      UNSTATED,
    ]),
    ...([[GPIPE, 33.3], [DAPPLE, 33.8]] as const).map(([system, stated]): RowCells => [
      "5.5",
      `strong scaling: gain over ${system.name}, 16 and 32 GPUs`,
      "%",
      stated,
      (gain(at(2, 2), system) + gain(at(4, 1), system)) / 2,
      UNSTATED,
    ]),
    ["5.5", "strong scaling: speedup from 8 to 16 GPUs", "%", 188.4, strong(2), UNSTATED],
    ["5.5", "strong scaling: speedup from 8 to 32 GPUs", "%", 337.5, strong(4), UNSTATED],
  ]);
  return [...fits, ...simulated];
}
