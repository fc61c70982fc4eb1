/**
 * Predicts the figures of the papers. A figure names its prediction as a call, an array of a name of
 * `CALLS` and its arguments, which may be calls themselves.
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
} from "../../schedules/analysis/paper_models.ts";
import {
  type AxonnPlan,
  axonnStep,
  bestPlan,
  BUCKET_SIZE,
  compareEquation1,
  edgeBytes,
  type Equation1,
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
  const key = JSON.stringify(call);
  if (!computed.has(key)) computed.set(key, compute(...values.slice(1) as never[]));
  return computed.get(key);
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
