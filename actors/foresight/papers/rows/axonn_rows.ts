/**
 * What AxoNN's paper counts and measures on Summit, beside its formulas and the simulator.
 *
 * @module
 */

import {
  checkpointedOutputs,
  mixedPrecisionBytes,
  printedOutputs,
  recomputedStepFlops,
} from "../../../../schedules/mod.ts";
import { type AxonnPlan, axonnStep, BUCKET_SIZE } from "../axonn_step.ts";
import { SUMMIT } from "../machines/summit.ts";
import { type PaperRow, rowsOf } from "./paper_row.ts";
import { AXONN_MODELS, edgeBytes, type PaperModel, parametersOf } from "../transformer.ts";

const MODEL = AXONN_MODELS[12], PARAMETERS = parametersOf(MODEL);

/** The tests of section V: 48 GPUs, 2,048 samples, micro-batches of one. */
const tested = (depth: number, more: Partial<AxonnPlan> = {}): AxonnPlan => ({
  model: MODEL,
  batch: 2048,
  depth,
  width: 48 / depth,
  microBatch: 1,
  offloads: false,
  ...more,
});

/** The rows. */
export function axonnRows(): PaperRow[] {
  return [...memory(), ...depths(), ...phases(), ...coarsening(), ...throughput()];
}

/**
 * The fewest stages, 3 times a power of two as in Table II, with which a GPU holds its states and the
 * checkpoints of micro-batches of one sample.
 */
function fewestStages(model: PaperModel, bucket?: number): number {
  const bytes = (depth: number) => {
    const perStage = model.layers / depth;
    const every = Array.from({ length: perStage }, (_, i) => i + 1).filter((ac) =>
      perStage % ac === 0
    );
    const outputs = every.map((ac) => checkpointedOutputs(model.layers, depth, ac));
    return mixedPrecisionBytes(parametersOf(model) / depth, bucket) +
      Math.min(...outputs) * edgeBytes(model, 1);
  };
  let depth = 3;
  while (bytes(depth) > SUMMIT.memoryBytes.value) depth *= 2;
  return depth;
}

function depths(): PaperRow[] {
  const stated = { 12: 6, 24: 12, 50: 24, 100: 48 } as const;
  return rowsOf("axonn", "formula", [
    ["V-B", "G_inter of 12 billion without offload", "", 24, fewestStages(MODEL)],
    ...([12, 24, 50, 100] as const).map((billions) =>
      [
        "Table II",
        `G_inter of ${billions} billion with offload: the fewest stages that fit`,
        "",
        stated[billions],
        fewestStages(AXONN_MODELS[billions], BUCKET_SIZE),
      ] as const
    ),
  ]);
}

function memory(): PaperRow[] {
  const layers = MODEL.layers, outputs = (count: number) => 48 * count * edgeBytes(MODEL, 1);
  const whole = 2 * mixedPrecisionBytes(PARAMETERS);
  const lean = 2 * mixedPrecisionBytes(PARAMETERS, 0) + 48 * mixedPrecisionBytes(0, BUCKET_SIZE);
  const [printed, mended] = [printedOutputs, checkpointedOutputs].map((count) =>
    outputs(count(layers, 24, 2))
  ) as [number, number];
  return rowsOf("axonn", "formula", [
    ...([12, 24, 50, 100] as const).map((billions) =>
      [
        "Table I",
        `parameters of the model of ${billions} billion`,
        "10⁹",
        billions,
        parametersOf(AXONN_MODELS[billions]) / 1e9,
      ] as const
    ),
    ["V-B", "GB of states on a GPU, G_inter = 6", "GB", 40, mixedPrecisionBytes(PARAMETERS) / 6e9],
    ["V-B", "that over a GPU's 16 GB", "×", 2.5, mixedPrecisionBytes(PARAMETERS) / 6 / 16e9],
    ["V-B", "states saved by offload", "×", 5, mixedPrecisionBytes(1) / mixedPrecisionBytes(1, 0)],
    [
      "V-B",
      "memory of 48 GPUs without offload, activations as printed",
      "GB",
      520,
      (whole + printed) / 1e9,
    ],
    [
      "V-B",
      "memory of 48 GPUs with offload, activations as printed",
      "GB",
      130.24,
      (lean + printed) / 1e9,
    ],
    [
      "V-B",
      "memory of 48 GPUs without offload, formula corrected",
      "GB",
      520,
      (whole + mended) / 1e9,
    ],
    [
      "V-B",
      "memory of 48 GPUs with offload, formula corrected",
      "GB",
      130.24,
      (lean + mended) / 1e9,
    ],
    ["abstract", "memory saved by offload", "×", 4, (whole + printed) / (lean + printed)],
  ]);
}

const PHASES =
  "what is saved is nearly what the two fitted phases are apart, 26 %: the paper's Figures 5 and 6 differ";
const LINKS =
  "links alone do not explain it: without a cost of a dispatch six stages wait longer, oldest message " +
  "first with as many micro-batches as stages in flight; that cost is fitted to Figure 6";
const OPTIMIZER =
  "the states are taken to cross NVLink at its peak; what else slows them, as the memory of the host " +
  "that three GPUs share, is not stated";

function phases(): PaperRow[] {
  const deep = axonnStep(tested(24)), flat = axonnStep(tested(6, { offloads: true }));
  const free = (depth: number) => axonnStep(tested(depth, { dispatchMs: 0 })).pipelineS;
  const optimizerS = flat.closingS - flat.reduceS;
  return [
    ...rowsOf("axonn", "fitted", [
      ["V-B", "pipeline, G_inter = 24", "s", 46.08, deep.pipelineS, "sets the cost of a dispatch"],
      ["V-B", "pipeline, G_inter = 6", "s", 34.05, flat.pipelineS, "sets the share of the peak"],
      ["V-B", "all-reduce, G_data = 2", "s", 0.62, deep.reduceS, "sets the bandwidth of NCCL"],
    ]),
    ...rowsOf("axonn", "simulated", [
      ["V-B", "all-reduce, G_data = 8", "s", 4.32, flat.reduceS],
      [
        "V-B, Figure 5",
        "time saved by G_inter = 6 for 24",
        "%",
        22,
        100 * (1 - flat.pipelineS / deep.pipelineS),
        PHASES,
      ],
      [
        "V-B, Figure 5",
        "time saved by G_inter = 6 for 24, no cost of a dispatch",
        "%",
        22,
        100 * (1 - free(6) / free(24)),
        LINKS,
      ],
      [
        "V-B, Figure 6",
        "time of a step saved by offload, G_inter = 6 for 24",
        "%",
        13,
        100 * (1 - flat.stepS / deep.stepS),
        "the stated phases give 14.1 % with the optimizer at 4.32 s ÷ 2.5; its step without offload is " +
        "not stated, and taken as nothing",
      ],
      [
        "V-B",
        "share of the pipeline in a step, G_inter = 24",
        "%",
        98,
        100 * deep.pipelineS / deep.stepS,
      ],
      ["V-C", "all-reduce over optimizer", "×", 2.5, flat.reduceS / optimizerS, OPTIMIZER],
    ]),
  ];
}

/** Figure 8: the data-parallel and optimizer phases over k. */
function coarsening(): PaperRow[] {
  const seconds = (k?: number) =>
    axonnStep(tested(6, { offloads: true, ...(k && { coarsening: k }) })).closingS;
  const all = [1, 2, 4, 8, 16, 32].map((k) => ({ k, s: seconds(k) }));
  const apart = seconds();
  const least = Math.min(...all.map(({ s }) => s));
  const best = all.filter(({ s }) => s <= 1.01 * least).map(({ k }) => k);
  const after = all.filter(({ k }) => k >= 4);
  const rises = after.every(({ s }, i) => i === 0 || s >= after[i - 1]!.s);
  const calls =
    "a call of the all-reduce costs its latency only: 125 of them cannot cost more than the " +
    "1.7 s that overlap wins, as k = 1 does in the paper; what NCCL takes from the copies is not stated";
  return rowsOf("axonn", "simulated", [
    [
      "V-C, Figure 8",
      "k = 1 against no overlap",
      "",
      "slower",
      all[0]!.s > apart ? "slower" : "faster",
      calls,
    ],
    ["V-C, Figure 8", "best k", "", "2, 4", best.join(", "), `within 1 %; ${calls}`],
    ["V-C, Figure 8", "beyond k = 4 time", "", "rises", rises ? "rises" : "falls"],
    [
      "V-C, Figure 8",
      "overlap at k = 4 against none",
      "",
      "faster",
      seconds(4) < apart ? "faster" : "slower",
    ],
  ]);
}

/** Table II and Figure 10. */
function throughput(): PaperRow[] {
  const runs = ([[12, 8, 6], [24, 4, 12], [50, 4, 24], [100, 2, 48]] as const).map(
    ([billions, microBatch, depth]) => {
      const model = AXONN_MODELS[billions], batch = 16_384;
      const plan = { model, batch, depth, width: 8, microBatch, offloads: true, coarsening: 4 };
      const perSecond = recomputedStepFlops(model, batch) / axonnStep(plan).stepS;
      return 100 * perSecond / (8 * depth) / SUMMIT.peakFlops.value;
    },
  );
  const why =
    "message-driven pipes of this many stages wait when no more micro-batches than stages " +
    "are in flight, oldest message first";
  return rowsOf("axonn", "simulated", [
    ["VII-B", "share of the peak, the highest of 12 to 100 billion", "%", 54.78, Math.max(...runs)],
    [
      "VII-B",
      "share of the peak, the lowest of 12 to 100 billion",
      "%",
      49.4,
      Math.min(...runs),
      why,
    ],
  ]);
}
