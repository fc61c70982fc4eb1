/**
 * What Chimera's paper measures on Piz Daint, beside the best configuration of each system there by
 * the simulator (section 4.2).
 *
 * @module
 */

import { bestPlan, type PaperTask } from "../best_plan.ts";
import { PIZ_DAINT, V100_CLUSTER } from "../machines/gloo_clusters.ts";
import { type PaperStep, simulatePlan } from "../paper_step.ts";
import {
  CHIMERA,
  DAPPLE,
  GEMS,
  GPIPE,
  type PaperSystem,
  PIPEDREAM,
  PIPEDREAM_2BW,
} from "../systems.ts";
import { BERT_48, GPT2_64, type PaperModel } from "../transformer.ts";
import { type PaperRow, type RowCells, rowsOf } from "./paper_row.ts";

const BASELINES = [PIPEDREAM, PIPEDREAM_2BW, GPIPE, GEMS, DAPPLE] as const;
const SYNCHRONOUS = [GPIPE, GEMS, DAPPLE], ASYNCHRONOUS = [PIPEDREAM, PIPEDREAM_2BW];

/** A configuration in a few words, as the paper writes it. */
export function configurationOf({ plan }: PaperStep): string {
  const { width, microBatch, options, recomputes } = plan;
  return `W=${width} D=${options.workers} B=${microBatch}${recomputes ? " R" : ""}`;
}

/**
 * The best step of a system.
 *
 * @throws {RangeError} if nothing fits, which would be a wrong model.
 */
export function bestOf(system: PaperSystem, task: PaperTask): PaperStep {
  const best = bestPlan(system, task);
  if (best) return best;
  throw new RangeError(
    `Cannot predict ${system.name} on ${task.machine.name}: its memory must hold a configuration ` +
      `of ${task.model.name} on ${task.workers} workers, received none that does`,
  );
}

const taskOf = (model: PaperModel, workers: number, batch: number): PaperTask => ({
  machine: PIZ_DAINT,
  model,
  workers,
  batch,
});

const RANKS =
  "the bandwidth of all-reduces is fitted with 16 copies of a stage, here there are 64 and more; that " +
  "GLOO's falls with them would explain it, and no figure says by how much";

/** Where Bert-48's figures were looked at: GB/s of messages, and of all-reduces. */
const SCANNED = "from 0.1 to 0.8 GB/s of messages and 1.8 to 4 GB/s of all-reduces";

const NO_2BW =
  `no bandwidths explain it: it is 0.8 to 0.9 ${SCANNED}. 2BW needed recomputation in the paper, with ` +
  "B = 16; by our count of its memory B = 8 fits without";
const NO_BUBBLES =
  "nothing in the model makes 2BW so slow: with recomputation it takes 4 forwards for a micro-batch and " +
  "one all-reduce, Chimera with D = N = 32 takes 4.9 with its bubbles and two all-reduces of half the " +
  "size";
const BUBBLES =
  `no bandwidths explain it: it is at most 1.1 ${SCANNED}. More gain of B = 8 over B = 4 than the ` +
  "assumed (half of the efficiency at 128 tokens) would";
const MESSAGES =
  "messages as slow as for Bert-48 weigh on Chimera's 32 stages: with 1 GB/s it is 1.45 over GPipe and 1.33 over DAPPLE";
const NAMED =
  "of what fewer bubbles win, Chimera's all-reduces of two copies take more than those of one";
const GEMS_REASON = `it is 1.4 to 2.1 ${SCANNED}: ` +
  "by our count GEMS is best with fewer stages and smaller micro-batches than D = 4, B = 32";

/** Rows of the speedups over each baseline at one size. */
function speedups(
  task: PaperTask,
  where: string,
  stated: readonly number[],
  reasons: readonly string[],
): {
  readonly cells: RowCells[];
  readonly steps: readonly [PaperStep, ...PaperStep[]];
  readonly chimera: PaperStep;
} {
  const chimera = bestOf(CHIMERA, task);
  const [first, ...others] = BASELINES;
  const best = (system: PaperSystem) => bestOf(system, task);
  const steps: readonly [PaperStep, ...PaperStep[]] = [best(first), ...others.map(best)];
  const cells = steps.map((step, i): RowCells => [
    where,
    `speedup over ${BASELINES[i]!.name}, ${task.model.name}, ${task.workers} nodes`,
    "×",
    stated[i]!,
    chimera.samplesPerSecond / step.samplesPerSecond,
    [reasons[i], `${configurationOf(chimera)} for ${configurationOf(step)}`].filter(Boolean)
      .join("; "),
  ]);
  return { cells, steps, chimera };
}

/** The rows. */
export function chimeraRows(): PaperRow[] {
  const bert = speedups(taskOf(BERT_48, 64, 1024), "4.2.3", [1.94, 1.17, 1.32, 2.41, 1.19], [
    "sets the bandwidth of all-reduces",
    NO_2BW,
    "",
    GEMS_REASON,
    BUBBLES,
  ]);
  const gpt = speedups(taskOf(GPT2_64, 2048, 2048), "4.2.3", [2.01, 1.16, 1.42, 2.34, 1.38], [
    RANKS,
    NO_BUBBLES,
    MESSAGES,
    "",
    MESSAGES,
  ]);
  const [pipeDream, ...others] = bert.cells;
  const [namedPipeDream, namedOthers] = [named().slice(0, 1), named().slice(1)];
  return [
    ...rowsOf("chimera", "fitted", [pipeDream!]),
    ...rowsOf("chimera", "simulated", [
      ...others,
      ...gpt.cells,
      ...extremes(gpt),
      ...weak(gpt),
      ...recomputing(gpt),
      ...sizes(bert, gpt),
    ]),
    ...choices(),
    ...rowsOf("chimera", "fitted", namedPipeDream),
    ...rowsOf("chimera", "simulated", [...namedOthers, ...newerMachine()]),
  ];
}

type Speedups = ReturnType<typeof speedups>;

function extremes({ steps, chimera }: Speedups): RowCells[] {
  const over = (systems: readonly PaperSystem[]) =>
    steps.filter(({ plan }) => systems.includes(plan.system)).map((step) =>
      chimera.samplesPerSecond / step.samplesPerSecond
    );
  const where = "abstract", what = "speedup, GPT-2, 2,048 nodes:";
  return [
    [where, `${what} the least`, "×", 1.16, Math.min(...over(BASELINES)), NO_BUBBLES],
    [where, `${what} the most`, "×", 2.34, Math.max(...over(BASELINES))],
    [
      "1",
      `${what} the least over synchronous systems`,
      "×",
      1.38,
      Math.min(...over(SYNCHRONOUS)),
      MESSAGES,
    ],
  ];
}

function weak({ chimera }: Speedups): RowCells[] {
  const small = bestOf(CHIMERA, taskOf(GPT2_64, 512, 512));
  const efficiency = 100 * chimera.samplesPerSecond / (4 * small.samplesPerSecond);
  return [[
    "4.2.3",
    "weak scaling of GPT-2 from 512 to 2,048 nodes",
    "%",
    91.4,
    efficiency,
    "all-reduces over four times as many copies move as many bytes; what else grows with the number " +
    "of nodes, as stragglers and shared links of the Dragonfly, is not modelled",
  ]];
}

/** Who has to compute again at 2,048 nodes; the memory of Chimera and DAPPLE is fitted to it. */
function recomputing({ steps }: Speedups): RowCells[] {
  const stated: Readonly<Record<string, string>> = { GEMS: "no" };
  return steps.filter(({ plan }) => plan.system !== DAPPLE).map(({ plan }): RowCells => [
    "4.2.3",
    `${plan.system.name} recomputes for GPT-2 on 2,048 nodes`,
    "",
    stated[plan.system.name] ?? "yes",
    plan.recomputes ? "yes" : "no",
  ]);
}

/** B of Chimera, and the samples of a step of PipeDream, which is one micro-batch of each pipeline. */
function sizes(bert: Speedups, gpt: Speedups): RowCells[] {
  const batch = ({ steps: [{ plan }] }: Speedups) => plan.width * plan.microBatch;
  const fits = "as many samples as fit, by our count of memory, in the depth that is best here";
  return [
    ["4.2.3", "B of Chimera, Bert-48, 64 nodes", "", "B=8", `B=${bert.chimera.plan.microBatch}`],
    ["Figure 14", "B̂ of PipeDream, Bert-48, 64 nodes", "", 96, batch(bert), fits],
    ["Figure 15", "B̂ of PipeDream, GPT-2, 2048 nodes", "", 512, batch(gpt), fits],
  ];
}

/** Which configuration is best. */
function choices(): PaperRow[] {
  const task = taskOf(BERT_48, 32, 512);
  const cell = (system: PaperSystem, stated: string, reason = ""): RowCells => [
    "4.2.1",
    `best configuration of ${system.name}, Bert-48, 32 nodes`,
    "",
    stated,
    configurationOf(bestOf(system, task)),
    reason,
  ];
  return [
    ...rowsOf("chimera", "fitted", [
      cell(DAPPLE, "W=8 D=4 B=4", "sets the bandwidth of messages"),
      cell(GPIPE, "W=8 D=4 B=4 R", "sets the bandwidth of messages"),
    ]),
    ...rowsOf("chimera", "simulated", [
      cell(GEMS, "W=8 D=4 B=32", GEMS_REASON),
      cell(PIPEDREAM, "W=4 D=8 B=12", "by our count 11 samples fit, with fewer stages"),
      cell(PIPEDREAM_2BW, "W=8 D=4 B=16 R", NO_2BW),
    ]),
  ];
}

/** The speedups once more, each system in the configuration that section 4.2.1 names for it. */
function named(): RowCells[] {
  const at = (
    system: PaperSystem,
    [depth, microBatch, recomputes = false]: readonly [number, number, boolean?],
    scale?: "direct",
  ) => {
    const width = 64 / depth;
    const microBatches = system.reducesAlways ? 1 : 1024 / (width * microBatch);
    const options = { workers: depth, microBatches, ...(scale && { scale }) };
    const machine = PIZ_DAINT, model = BERT_48;
    return simulatePlan(
      { machine, model, system, width, microBatch, options, recomputes },
      { ignoresMemory: true },
    )!;
  };
  const chimera = at(CHIMERA, [4, 8], "direct");
  const all: readonly [PaperStep, number, string][] = [
    [at(PIPEDREAM, [8, 12]), 1.94, "the figure that sets the bandwidth of all-reduces"],
    [at(PIPEDREAM_2BW, [4, 16, true]), 1.17, NAMED],
    [at(GPIPE, [4, 4, true]), 1.32, NAMED],
    [at(GEMS, [4, 32]), 2.41, NAMED],
    [at(DAPPLE, [4, 4]), 1.19, NAMED],
  ];
  return all.map(([step, stated, reason]) => [
    "4.2.3",
    `the same over ${step.plan.system.name}, each as the paper configures it`,
    "×",
    stated,
    chimera.samplesPerSecond / step.samplesPerSecond,
    `${reason}; ${configurationOf(chimera)} for ${configurationOf(step)}`,
  ]);
}

function newerMachine(): RowCells[] {
  const model = { ...BERT_48, sequence: 512 };
  const task = { machine: V100_CLUSTER, model, workers: 32, batch: 256 };
  const chimera = bestOf(CHIMERA, task).samplesPerSecond;
  const over = (systems: readonly PaperSystem[]) =>
    systems.map((system) => chimera / bestOf(system, task).samplesPerSecond);
  const [sync, async] = [over(SYNCHRONOUS), over(ASYNCHRONOUS)];
  const what = "speedup, Bert-48, 32 V100:", where = "4.2.3";
  return [
    [where, `${what} the least over synchronous systems`, "×", 1.10, Math.min(...sync), BUBBLES],
    [where, `${what} the most over synchronous systems`, "×", 2.39, Math.max(...sync), GEMS_REASON],
    [where, `${what} the least over asynchronous systems`, "×", 1.05, Math.min(...async), NO_2BW],
    [
      where,
      `${what} the most over asynchronous systems`,
      "×",
      1.89,
      Math.max(...async),
      RANKS,
    ],
  ];
}
