/**
 * The figures of the papers on Chimera, Hanayo and AxoNN beside the predictions for their machines,
 * the analytic models beside the simulator, and the source of every figure of a machine, as the page
 * `docs/papers.md`:
 *
 *     deno task bench papers > docs/papers.md
 *
 * It takes about twenty seconds. A figure names its prediction as a call, an array of a name of `CALLS`
 * and its arguments, which may be calls themselves.
 *
 * @module
 */

import {
  analyze,
  createSchedule,
  criticalPath,
  type ScheduleOptions,
  simulateStep,
} from "../../schedules/mod.ts";
import {
  checkpointedOutputs,
  hanayoBubbleRatio,
  hanayoPrintedRatio,
  mixedPrecisionBytes,
  printedOutputs,
  recomputedStepFlops,
} from "./formulas.ts";
import {
  type AxonnPlan,
  axonnStep,
  bestPlan,
  BUCKET_SIZE,
  compareEquation1,
  edgeBytes,
  type Equation1,
  FACTS,
  machineOf,
  MODELS,
  parametersOf,
  type Plan,
  simulatePlan,
  type Step,
  stepModel,
  SYSTEMS,
  TASKS,
} from "./simulate.ts";
import { markdownTable } from "../report.ts";
import figures from "./figures.json" with { type: "json" };
import models from "./models.json" with { type: "json" };

/** A figure or a choice. */
export type Value = number | string;

/** A prediction with the configurations that it compares. */
export interface Noted {
  readonly value: number;
  readonly note: string;
}

const computed = new Map<string, unknown>();

/** Returns the prediction that `call` names, computed once, or `call` itself if it is a value. */
export function predict(call: unknown): unknown {
  if (!Array.isArray(call)) return call;
  const values = call.map(predict), compute = CALLS[values[0] as string];
  if (compute === undefined) return values;
  const result = () => compute(...values.slice(1) as never[]);
  return computed.getOrInsertComputed(JSON.stringify(call), result);
}

const mean = (values: readonly number[]) => values.reduce((a, b) => a + b, 0) / values.length;

/** Executes a schedule of 8 workers with backwards of two forwards, unless `options` differ. */
function executed(
  name: string,
  { backward = 2, send = 0, ...options }: Partial<
    ScheduleOptions & Record<"backward" | "send", number>
  >,
) {
  const schedule = createSchedule(name, { workers: 8, microBatches: 8, ...options });
  return analyze(schedule, { forward: 1, backward, send });
}

/** Returns a configuration as the papers write it. */
export const configurationOf = (
  { width, microBatch, options, recomputes }: Plan,
): string => `W=${width} D=${options.workers} B=${microBatch}${recomputes ? " R" : ""}`;

/** A plan on Piz Daint; for Bert-48 on 64 nodes by default. */
type DaintPlan = Partial<Pick<Plan, "width" | "microBatch" | "recomputes">> & {
  readonly system: string;
  readonly options: ScheduleOptions;
  readonly model?: string;
};

const daintPlan = ({ options, system, model = "Bert-48", ...more }: DaintPlan): Plan => ({
  machine: machineOf("daint"),
  model: MODELS[model]!,
  system: SYSTEMS[system]!,
  width: 64 / options.workers,
  microBatch: 1,
  recomputes: false,
  ...more,
  options,
});

/** A step of Bert-48 on 64 nodes with the eager all-reduce of these stages. */
function eagerMs(eagerStages: readonly number[]): number {
  const options = { workers: 4, microBatches: 8, scale: "direct" } as const;
  const plan = daintPlan({ system: "Chimera", options, microBatch: 8 });
  const model = stepModel(plan, createSchedule("chimera", options));
  return simulateStep({ ...model, closing: { ...model.closing, eagerStages } }).makespanMs;
}

/** Returns the width and depth that Eq. 1 picks, its error, and the cost of the choice. */
function equation1(model: string, workers: number, batch: number) {
  const all = compareEquation1(model, workers, batch);
  const least = (of: "analyticMs" | "simulatedMs") =>
    all.reduce((best, one) => one[of] < best[of] ? one : best);
  const named = ({ plan: { width, options } }: Equation1) => `W=${width} D=${options.workers}`;
  const msOf = (name: string) => all.find((one) => named(one) === name)?.simulatedMs ?? NaN;
  const picked = least("analyticMs"), best = least("simulatedMs");
  const error = 100 *
    Math.max(...all.map(({ analyticMs, simulatedMs }) => Math.abs(analyticMs / simulatedMs - 1)));
  return {
    choice: named(picked),
    best: named(best),
    loss: 100 * (picked.simulatedMs / best.simulatedMs - 1),
    faster: 100 * (1 - msOf("W=64 D=8") / msOf("W=16 D=32")),
    error: error <= 10 ? "within 10 %" : `up to ${error.toFixed(1)} %`,
  };
}

/** The best number of pipelines of a GPT-2 of 32 layers on 64 nodes with 64 samples (Figure 19). */
function bestPipelines(depth: number): number {
  const rates = [0, 1, 2, 4].map((pipelines) => {
    const options = { workers: depth, microBatches: depth, ...(pipelines > 0 && { pipelines }) };
    const system = pipelines === 0 ? "DAPPLE" : "Chimera", model = "GPT-2, 32 layers";
    const step = simulatePlan(daintPlan({ system, options, model })) ??
      simulatePlan(daintPlan({ system, options, model, recomputes: true }));
    return { pipes: Math.max(1, 2 * pipelines), rate: step?.samplesPerSecond ?? 0 };
  });
  return rates.reduce((a, b) => b.rate > a.rate ? b : a).pipes;
}

/** A machine, workers of a pipeline, pipelines, and samples of a micro-batch (2 by default). */
type Waves = [machine: string, depth: number, width: number, microBatch?: number];

/**
 * Samples per second of Hanayo's model. Its paper does not give the kept bytes, so memory is ignored,
 * and its weak scaling leaves no time for all-reduces, so they are not counted. A batch of 2 on 8
 * workers (section 5.4) is taken to be each micro-batch.
 *
 * Chimera-wave on 8 workers is two pipelines of 4 with one wave (section 3.2, Figure 5). With P = 4 it
 * is one pipeline of 4: section 5.2 has no shorter ones, for want of memory.
 */
function waveSystemRate(name: string, ...waves: Waves): number {
  const [machine, depth, width, microBatch = 2] = waves;
  const system = SYSTEMS[name]!;
  const options = { workers: depth, microBatches: depth, ...system.variants[0] };
  const model = MODELS["BERT-style"]!;
  return simulatePlan(
    { machine: machineOf(machine), model, system, width, microBatch, options, recomputes: false },
    { ignoresMemory: true, withoutReduce: true },
  )!.samplesPerSecond;
}

const bestWaves = (...waves: Waves) =>
  [2, 4, 8].map((count) => ({ count, rate: waveSystemRate(`Hanayo, ${count} waves`, ...waves) }))
    .reduce((a, b) => b.rate > a.rate ? b : a);

/** A run of AxoNN's section V: 48 GPUs, 2,048 samples, micro-batches of one. */
const axonn = ({ depth, ...more }: Partial<AxonnPlan> & { readonly depth: number }) =>
  axonnStep({
    model: "12 billion",
    batch: 2048,
    microBatch: 1,
    offloads: false,
    depth,
    width: 48 / depth,
    ...more,
  });

/** The coarsening factors of Figure 8 whose phases after the pipeline are within 1 % of the best. */
function bestCoarsening(factors: readonly number[]): string {
  const seconds = factors.map((coarsening) =>
    axonn({ depth: 6, offloads: true, coarsening }).closingS
  );
  return factors.filter((_, i) => seconds[i]! <= 1.01 * Math.min(...seconds)).join(", ");
}

/** A run of Table II: its seconds, those by its operations, and its share of the peak. */
function tableRun(model: string, microBatch: number, depth: number) {
  const batch = 16_384, { peakFlops, topShare } = machineOf("summit");
  const plan = { model, batch, depth, width: 8, microBatch, offloads: true, coarsening: 4 };
  const seconds = recomputedStepFlops(MODELS[model]!, batch) / (8 * depth * peakFlops);
  const { stepS } = axonnStep(plan);
  return { stepS, analyticS: seconds / topShare, peakShare: 100 * seconds / stepS };
}

/** The most layer outputs that a worker of a message-driven pipeline holds. */
function heldOutputs(layers: number, depth: number, every: number): number {
  const schedule = createSchedule("message-driven", { workers: depth, microBatches: 4 * depth });
  const memory = { keptBytes: layers / depth / every + 1, recomputedBytes: every };
  const stages = Array.from({ length: depth }, () => ({ forwardMs: 1, backwardMs: 3, memory }));
  return Math.max(...simulateStep({ schedule, stages }).peakBytes);
}

/**
 * The fewest stages, 3 times a power of two as in Table II, with which a GPU holds its states and the
 * checkpoints of micro-batches of one sample.
 */
function fewestStages(name: string, offloads = false): number {
  const model = MODELS[name]!;
  const bytes = (depth: number) => {
    const perStage = model.layers / depth;
    const every = Array.from({ length: perStage }, (_, i) => i + 1)
      .filter((count) => perStage % count === 0);
    const outputs = every.map((count) => checkpointedOutputs(model.layers, depth, count));
    return mixedPrecisionBytes(parametersOf(model) / depth, offloads ? BUCKET_SIZE : undefined) +
      Math.min(...outputs) * edgeBytes(model, 1);
  };
  let depth = 3;
  while (bytes(depth) > machineOf("summit").memoryBytes) depth *= 2;
  return depth;
}

/** Gigabytes of states and activations on 48 GPUs. */
function memoryOf48(formula: "printed" | "corrected", offloads: boolean): number {
  const model = MODELS["12 billion"]!, parameters = parametersOf(model);
  const outputs = formula === "printed" ? printedOutputs : checkpointedOutputs;
  const states = offloads
    ? 2 * mixedPrecisionBytes(parameters, 0) + 48 * mixedPrecisionBytes(0, BUCKET_SIZE)
    : 2 * mixedPrecisionBytes(parameters);
  return (states + 48 * outputs(model.layers, 24, 2) * edgeBytes(model, 1)) / 1e9;
}

const CALLS: Readonly<Record<string, (...args: never[]) => unknown>> = {
  times: (a: number, b: number) => a * b,
  ratio: (a: number, b: number) => a / b,
  percent: (a: number, b: number) => 100 * a / b,
  gain: (a: number, b: number) => 100 * (a / b - 1),
  saved: (a: number, b: number) => 100 * (1 - a / b),
  least: (values: readonly number[]) => Math.min(...values),
  most: (values: readonly number[]) => Math.max(...values),
  mean,
  range: (values: readonly number[]) => `${Math.min(...values)}..${Math.max(...values)}`,
  text: (...values: readonly Value[]) => values.join(""),
  ifMore: (a: number, b: number, yes: string, no: string) => a > b ? yes : no,
  riseOrFall: (values: readonly number[]) =>
    values.every((value, i) => i === 0 || value >= values[i - 1]!) ? "rises" : "falls",
  get: (value: unknown, path: string) =>
    path.split(".").reduce((one, key) => (one as Record<string, unknown>)[key], value),
  parameters: (model: string) => parametersOf(MODELS[model]!),
  executed,
  criticalPath: (workers: number) =>
    criticalPath(createSchedule("chimera", { workers, microBatches: workers })),
  bestPlan: (task: string, system: string) => bestPlan(SYSTEMS[system]!, TASKS[task]!),
  configuration: configurationOf,
  configured: (plan: DaintPlan) => simulatePlan(daintPlan(plan), { ignoresMemory: true }),
  speedup: (a: Step, b: Step): Noted => ({
    value: a.samplesPerSecond / b.samplesPerSecond,
    note: `${configurationOf(a.plan)} for ${configurationOf(b.plan)}`,
  }),
  eagerMs,
  equation1,
  bestPipelines,
  hanayoBubbleRatio,
  hanayoPrintedRatio,
  bestWaves,
  waveSystemRate,
  axonn,
  bestCoarsening,
  tableRun,
  heldOutputs,
  checkpointedOutputs,
  printedOutputs,
  fewestStages,
  mixedPrecisionBytes,
  memory: memoryOf48,
};

/** A figure of a paper. */
interface Figure {
  readonly paper: "chimera" | "hanayo" | "axonn";
  /** Section, figure or table. */
  readonly where: string;
  readonly claim: string;
  readonly unit?: string;
  readonly stated: Value;
  /**
   * `formula`: counted or executed, no machine in it; `simulated`: on a machine built from what the
   * paper states; `fitted`: a constant was set by this figure, so that it predicts nothing.
   */
  readonly by: "formula" | "simulated" | "fitted" | "not covered";
  /** The call that predicts it; see `predict`. */
  readonly here?: unknown;
  /** The reason of a difference, or of a missing prediction. */
  readonly reason?: string;
  readonly predicted?: Value;
  /** The configurations that the prediction compares. */
  readonly note?: string;
  /** predicted ÷ stated - 1, of two numbers. */
  readonly difference?: number;
}

/** All figures of the papers. */
export const FIGURES = figures as unknown as readonly Figure[];

/** Predicts a figure. */
export function predicted(figure: Figure): Figure {
  const { here, stated } = figure;
  const found = predict(here) as Value | Noted | undefined;
  const { value = undefined, note = undefined } = typeof found === "object"
    ? found
    : { value: found };
  const isFigure = typeof stated === "number" && typeof value === "number";
  return {
    ...figure,
    ...(value !== undefined && { predicted: value }),
    ...(isFigure && { difference: value / stated - 1 }),
    ...note && { note },
  };
}

/** Returns true if a prediction is another choice, or a number that is off by more than a tenth. */
export function isMiss({ by, stated, predicted, difference }: Figure): boolean {
  if (by === "not covered" || by === "fitted") return false;
  return difference === undefined ? stated !== predicted : Math.abs(difference) > 0.1;
}

/** Returns the error of a figure, and why it is missed, fitted or not covered. */
function outcomeOf(row: Figure): string {
  const { by, difference, reason, note } = row;
  const off = difference === undefined ? [] : [percent(difference)];
  const isMet = (by === "simulated" || by === "formula") && !isMiss(row);
  if (isMet) return [...off, note ?? []].flat().join("; ");
  const what = [by === "fitted" || by === "not covered" ? by : "miss", ...off].join(" ");
  return [`${what}: ${reason}`, note ?? []].flat().join("; ");
}

/** Returns a table for each paper. */
function describeRows(rows: readonly Figure[]): string[] {
  const head = ["section", "claim", "printed", "ours", "from", "error or reason"];
  const titles = { chimera: "Chimera", hanayo: "Hanayo", axonn: "AxoNN" };
  return Object.entries(titles).flatMap(([paper, title]) => {
    const cells = rows.filter((row) => row.paper === paper).map((row) => [
      row.where,
      row.claim,
      figureText(row.stated, row.unit),
      row.predicted === undefined ? "" : figureText(row.predicted, row.unit),
      row.by === "formula" ? "formula" : row.predicted === undefined ? "" : "simulation",
      outcomeOf(row),
    ]);
    return [`## ${title}`, markdownTable([head, ...cells])];
  });
}

/** Returns the numbers of figures that are met. */
function describeCounts(rows: readonly Figure[]): string {
  const met = (by: Figure["by"]) => {
    const all = rows.filter((row) => row.by === by);
    return `${all.filter((row) => !isMiss(row)).length} of ${all.length}`;
  };
  const count = (by: Figure["by"]) => rows.filter((row) => row.by === by).length;
  const asRatio = (percent = 0) => 1 + percent / 100;
  const nearly = rows.filter((row) =>
    row.claim.includes("gain over") && isMiss(row) &&
    Math.abs(asRatio(Number(row.predicted)) / asRatio(Number(row.stated)) - 1) <= 0.1
  );
  return `Within 10 %, or the same choice: ${met("simulated")} simulated figures, and ${
    met("formula")
  } that formulas and schedules give without a machine. ${count("fitted")} more are fitted, ${
    count("not covered")
  } are not covered. Gains are compared in %, as printed; ${nearly.length} of the misses are within 10 % as ratios of throughput, as Chimera's paper prints them.`;
}

function figureText(value: Value, unit = ""): string {
  const isRounded = typeof value === "number" && !Number.isInteger(value);
  const text = isRounded ? String(Number(value.toPrecision(4))) : String(value);
  return unit === "" ? text : `${text} ${unit}`;
}

const percent = (ratio: number) =>
  `${ratio < 0 ? "-" : "+"}${(100 * Math.abs(ratio)).toFixed(1)} %`;

/** Returns a table of the papers' formulas beside the simulator. */
function describeModels(): string[] {
  const equation1 = ([["Bert-48", 32, 256], ["GPT-2", 512, 512]] as const).flatMap((
    [name, workers, batch],
  ) =>
    compareEquation1(name, workers, batch).map(({ plan, analyticMs, simulatedMs }) => ({
      model: "Chimera Eq. 1",
      configuration: `${name}, ${configurationOf(plan)}`,
      unit: "ms",
      analytic: analyticMs,
      simulated: simulatedMs,
    }))
  );
  // Of the formula and the simulation each has the call, or the value.
  const cells = [...equation1, ...models].map(
    ({ model, configuration, ...one }) => {
      const analytic = predict(one.analytic) as number,
        simulated = predict(one.simulated) as number;
      const texts = [analytic, simulated].map((value) => figureText(value, one.unit));
      return [model, configuration, ...texts, percent(analytic / simulated - 1)];
    },
  );
  const head = ["model", "configuration", "analytic", "simulated", "off by"];
  return ["## Analytic models beside the simulator", markdownTable([head, ...cells])];
}

function describeFacts(): string[] {
  const cells = Object.values(FACTS).flatMap(({ name, facts }) =>
    Object.entries(facts).map(([field, { value, by, source }]) => {
      const text = typeof value === "object" ? JSON.stringify(value) : String(value);
      return [name, field, text, by, source];
    })
  );
  const head = ["machine", "figure", "value", "how", "source"];
  return ["## Machines", markdownTable([head, ...cells])];
}

/** Returns the page with all figures, the models and the machines. */
export function papersPage(): string {
  const rows = FIGURES.map(predicted);
  return [
    "<!-- deno-fmt-ignore-file -->\n\n# Figures of papers",
    `What the papers on Chimera, Hanayo and AxoNN print, and what this package predicts for their
machines. \`deno task bench papers > docs/papers.md\` writes this page from
[bench/papers/](../bench/papers/mod.ts).`,
    describeCounts(rows),
    `A miss is another choice, or off by more than 10 %. A fitted figure sets a constant of a machine,
so that it predicts nothing: the last table names every constant, and what it is fitted to. The
model itself (which messages overlap, which stage has the head, how all-reduces slow above 64 copies,
which figures set constants) was chosen with all figures in view, so the counts say how well it
describes these papers, not how well it predicts others.`,
    `Chimera's paper cuts layers evenly (section 4.2.3), so that the last stage has the head besides its
layers, which for GPT-2 takes the time of three layers. Hanayo's and AxoNN's papers do not say how they cut, and
their stages are taken to be equally long: with the head on the last of 48 stages, AxoNN's lowest
share of the peak would be 43 %, where the paper measured 49 %.`,
    `Chimera-wave on 8 workers is taken as two one-wave pipelines of 4 workers, as Figure 5 of Hanayo's
paper turns Chimera into waves; with P = 4 it is one pipeline of 4, because the model is too large
for shorter ones (section 5.2). One pipeline of 8 is at most 18 % faster than DAPPLE, where the paper
measured 24 % (section 5.4).`,
    ...describeRows(rows),
    ...describeModels(),
    ...describeFacts(),
  ].map((part) => part.trim()).join("\n\n");
}
