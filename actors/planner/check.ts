/**
 * Compares predicted with measured steps.
 *
 * [Note: clock rate] The speed of a machine changes over time. So costs and steps are measured in the
 * same rounds: each round measures everything once, every other round in reverse order. Costs are
 * measured by probes, never on the predicted steps.
 *
 * @module
 */

import { cpus } from "node:os";
import { delay } from "@std/async/delay";
import type { DeviceName, Model } from "../../kernels/mod.ts";
import { resolveDevice } from "../../kernels/internal.ts";
import { parts as partsOf } from "../../schedules/internal.ts";
import { uniform } from "../../schedules/simulator/model.ts";
import type { StepOutcome } from "../pipeline/step.ts";
import { isolationFor } from "../run/devices.ts";
import { computes, readStep } from "../run/timeline.ts";
import type { PlaceName } from "../runtime/mod.ts";
import { mapFields, meansOfFields } from "./costs.ts";
import { type Meter, openMeter } from "./measure.ts";
import { type MeasuredOptions, type MeasuredRun, openMeasuredRun } from "./measure_links.ts";
import { lastEnd, type Prediction, predictStep, timedActions } from "./predict.ts";
import { meanOf, median } from "./profile.ts";

/**
 * Milliseconds of a step by use, as means of its workers: running actions; choosing the next action
 * whose inputs have arrived; waiting for messages in transit; waiting for inputs that are not computed
 * yet, or idle; and from the request to the first action, and from the last action to the answer. Also the
 * mean duration of actions, by stage and kind, such as `0F`.
 */
export type StepParts = ReturnType<typeof measuredParts>;

/** Returns the parts of a traced step of `stepMs` milliseconds. */
export function measuredParts(stepMs: number, traces: StepOutcome["traces"], replicas: number) {
  const { start, workers } = readStep(traces, replicas);
  const last = Math.max(start, lastEnd(workers));
  const actions = workers.flatMap(({ spans }) => spans).filter(computes)
    .map((span): NamedMs => [`${span.stages[0]}${span.kind}`, span.end - span.start]);
  const sum = { busyMs: 0, dispatchMs: 0, messageMs: 0 };
  for (const { busyMs, gaps } of workers) {
    sum.busyMs += busyMs / workers.length;
    for (const gap of gaps) {
      const ms = (Math.min(gap.end, last) - Math.min(gap.start, last)) / workers.length;
      if (gap.kind === "pause") sum.dispatchMs += ms;
      if (gap.kind === "message") sum.messageMs += ms;
    }
  }
  const computedMs = last - start;
  return {
    ...sum,
    bubbleMs: computedMs - sum.busyMs - sum.dispatchMs - sum.messageMs,
    closingMs: stepMs - computedMs,
    actions: meansOf(actions),
  };
}

/** Returns the parts of a prediction. */
function predictedParts({ stepMs, variationMs, simulated }: Prediction): StepParts {
  const { workers, computedMs } = simulated;
  const actions = Array.from(timedActions(simulated), ({ action, start, end }): NamedMs => {
    const isOne = partsOf(action).every(({ kind }) => kind === action.kind);
    return [`${action.stage}${isOne ? action.kind : "F&B"}`, end - start];
  });
  const { busyMs, dispatchMs, communicationMs: messageMs } = meansOfFields(workers);
  return {
    busyMs,
    dispatchMs,
    messageMs,
    // Varied durations lengthen waits.
    bubbleMs: computedMs + variationMs - busyMs - dispatchMs - messageMs,
    closingMs: stepMs - variationMs - computedMs,
    actions: meansOf(actions),
  };
}

/** Returns the means of the parts of several steps. */
export function meanParts(all: readonly StepParts[]): StepParts {
  const [{ actions }] = all as [StepParts];
  return {
    ...meansOfFields(all.map(({ actions: _, ...times }) => times)),
    actions: mapFields(actions, (_, name) => meanOf(all.map((one) => one.actions[name] ?? 0))),
  };
}

type NamedMs = readonly [name: string, ms: number];

const meansOf = (actions: readonly NamedMs[]) =>
  Object.fromEntries(
    [...Map.groupBy(actions, ([name]) => name)].sort(([a], [b]) => a < b ? -1 : 1)
      .map(([name, all]) => [name, meanOf(all.map(([, ms]) => ms))]),
  );

/** A predicted and measured step. Times are in milliseconds. */
export interface CheckedStep {
  /** Description of the run. */
  readonly configuration: string;
  /** Median of the repeats. */
  readonly measured: number;
  /** Largest distance of a repeat from the median. */
  readonly spread: number;
  /** The prediction. */
  readonly predicted: number;
  /** Relative error of the prediction, at least 0. */
  readonly error: number;
  /** Use of the time. */
  readonly parts: { readonly measured: StepParts; readonly predicted: StepParts };
  /** Reasons for a larger error. */
  readonly notes: readonly string[];
}

/** Compares a prediction with the repeats of a step. */
export function checkStep(
  repeats: readonly number[],
  predicted: number,
  about: Pick<CheckedStep, "configuration" | "parts" | "notes">,
): CheckedStep {
  const measured = median(repeats), error = Math.abs(predicted - measured) / measured;
  const spread = Math.max(...repeats.map((ms) => Math.abs(ms - measured)));
  return { ...about, measured, spread, predicted, error };
}

/** Bounds of the median error and of each error. */
const MEDIAN_ERROR_MAX = 0.05, ERROR_MAX = 0.12;

/** Returns whether a prediction is within 12 %. */
export const isNear = ({ error }: CheckedStep): boolean => error <= ERROR_MAX;

/**
 * Summarizes a check: its errors, and the steps whose errors are too large.
 *
 * @throws {RangeError} when there is no step.
 */
export function checkResult(steps: readonly CheckedStep[]) {
  if (steps.length === 0) throw new RangeError("Cannot check predictions: there must be a step");
  const errors = steps.map(({ error }) => error), medianError = median(errors);
  const missed = steps.filter((one) => !isNear(one));
  const isPassed = medianError <= MEDIAN_ERROR_MAX && missed.length === 0;
  return { medianError, worstError: Math.max(...errors), missed, isPassed };
}

/** Options of a checked run. */
interface Configuration {
  /** Samples of a micro-batch, B. */
  readonly microBatch: number;
  /** Options of `train`, apart from the model. */
  readonly options:
    & Required<Pick<MeasuredOptions, "schedule" | "workers">>
    & Omit<MeasuredOptions, "model">;
}

/** Micro-batches of a step unless given. */
const MICRO_BATCHES = 8;

const run = (
  schedule: string,
  workers: number,
  microBatch: number,
  more: Omit<Configuration["options"], "schedule" | "workers"> = {},
): Configuration => ({ microBatch, options: { schedule, workers, ...more } });

const CONFIGURATIONS: readonly Configuration[] = [
  run("1f1b", 1, 4),
  run("1f1b", 2, 4),
  run("gpipe", 2, 4),
  run("zb-h1", 2, 4),
  run("interleaved", 2, 4),
  run("1f1b", 2, 2),
  run("gpipe", 2, 2, { recomputeInterval: 1 }),
  run("chimera", 2, 2),
  run("message-driven", 2, 2, { scheduleOptions: { pipelineLimit: 3 } }),
  run("hanayo", 2, 2),
  run("1f1b", 2, 4, { layout: "E,3|1,H" }),
  run("gpipe", 2, 4, { layout: "E,1|3,H" }),
  run("zb-v", 2, 4, { recomputeInterval: 2 }),
  run("1f1b", 1, 4, { replicas: 2 }),
  run("1f1b", 4, 4),
  run("gpipe", 4, 2, { recomputeInterval: 1 }),
  run("chimera", 4, 4),
  run("message-driven", 4, 2),
  run("zb-h1", 4, 2),
  run("1f1b", 4, 4, { layout: "E,2|1|1|H" }),
  run("interleaved", 4, 4),
  run("1f1b", 2, 2, { replicas: 2 }),
];

/** Returns the runs for a machine, with at most `cores` workers. */
export const configurationsFor = (cores: number): readonly Configuration[] =>
  CONFIGURATIONS.filter(({ options }) => workersOf(options) <= cores);

/** Schedules with a stage on each worker, for which a layout is drawn. */
const PLAIN = ["1f1b", "gpipe", "zb-h1", "message-driven"] as const;

/** Values that held-out configurations are drawn from; the first of each is that of calibration. */
const DRAWN = {
  schedule: [...PLAIN, "chimera", "hanayo", "interleaved", "zb-v"],
  workers: [2, 1, 4],
  microBatches: [8, 4, 12, 16],
  microBatch: [4, 1, 2, 3],
  replicas: [1, 2],
  recomputeInterval: [0, 1, 2],
  layout: ["even", "E,1|3,H", "E,3|1,H"],
} as const;

/** Number of drawn configurations, and the fewest values in which each differs from calibration. */
const DRAWN_COUNT = 16, DIFFERENT_MIN = 2;

/**
 * Draws configurations that no cost was fitted to: the same ones for the same seed and cores. Cuts are
 * of a model of four layers, for two workers with one stage each.
 */
export function drawConfigurations(seed: number, cores: number): Configuration[] {
  const drawn = new Map<string, Configuration>();
  for (let draw = 0; drawn.size < DRAWN_COUNT; draw++) {
    const index = mapFields(DRAWN, ({ length }, name) => {
      const microBatch = Object.keys(DRAWN).indexOf(name);
      return Math.floor(length * uniform(seed, 0, { kind: "F", microBatch }, draw));
    });
    const pick = <K extends keyof typeof DRAWN>(name: K): (typeof DRAWN)[K][number] =>
      DRAWN[name][index[name]]!;
    const schedule = pick("schedule"), workers = pick("workers"), replicas = pick("replicas");
    const isPlain = workers === 2 && PLAIN.some((one) => one === schedule);
    const isServed = workers % 2 === 0 || ["1f1b", "gpipe"].includes(schedule);
    const different = Object.values(index).filter((at) => at > 0).length;
    if (different < DIFFERENT_MIN || !isServed || workers * replicas > cores) continue;
    if (index.layout > 0 && !isPlain) continue;
    const one = run(schedule, workers, pick("microBatch"), {
      microBatches: pick("microBatches"),
      ...replicas > 1 && { replicas },
      ...index.recomputeInterval > 0 && { recomputeInterval: pick("recomputeInterval") },
      ...index.layout > 0 && { layout: pick("layout") },
    });
    drawn.set(nameOf(one), one);
  }
  return [...drawn.values()];
}

/** Share of the machine that other programs may use during a check. */
export const OTHERS_LOAD_MAX = 0.05;

/** Returns the share of all cores that is used while this program waits for some milliseconds. */
export async function othersLoad(ms: number): Promise<number> {
  const read = () =>
    cpus().reduce(({ idle, all }, { times }) => ({
      idle: idle + times.idle,
      all: all + times.user + times.nice + times.sys + times.idle + times.irq,
    }), { idle: 0, all: 0 });
  const before = read();
  await delay(ms);
  const after = read(), all = after.all - before.all;
  return all > 0 ? 1 - (after.idle - before.idle) / all : 0;
}

/** Returns the workers of all replicas. */
const workersOf = ({ workers, replicas = 1 }: Configuration["options"]): number =>
  workers * replicas;

/** Formats a configuration, such as `1f1b D=2 B=4 layout E,3|1,H`. */
export function nameOf({ microBatch, options }: Configuration): string {
  const { schedule, workers, replicas, recomputeInterval, recompute, layout } = options;
  const { pipelineLimit } = options.scheduleOptions ?? {}, { microBatches } = options;
  const more = {
    ...{ "N=": microBatches, "W=": replicas, "limit ": pipelineLimit, "recompute ": recompute },
    ...{ "recompute-interval ": recomputeInterval, "layout ": layout },
  };
  const given = Object.entries(more).filter(([, value]) => value !== undefined);
  return [`${schedule} D=${workers} B=${microBatch}`, ...given.map((one) => one.join(""))].join(
    " ",
  );
}

/** Options of a check. */
interface CheckOptions {
  readonly configurations: readonly Configuration[];
  /** Makes the model for micro-batches of `microBatch` samples. */
  readonly modelOf: (microBatch: number) => Model;
  readonly device: DeviceName;
  /** Receives progress messages. */
  readonly announce: (line: string) => void;
}

/** Repeats of each step, steps of a repeat, steps before them, and rounds of warmup. */
const REPEATS = 7, STEPS = 3, WARM_STEPS = 3, WARMUP = 1;

/** Number of runs that are open together, each with an isolate for each worker. */
const GROUP = 8;

/** Minimum milliseconds of measuring each model under each load, in a round. */
const PROBE_MS = 400;

/** A running configuration. */
interface OpenConfiguration {
  readonly configuration: Configuration;
  readonly run: MeasuredRun;
  readonly repeats: number[];
  readonly parts: StepParts[];
}

/** Predicts and measures all configurations, and yields each result. */
export async function* checkProfile(options: CheckOptions): AsyncGenerator<CheckedStep, void> {
  const { configurations, modelOf, announce } = options;
  const device = await resolveDevice(options.device, announce);
  const isolate = isolationFor("workers", undefined, device.name);
  const sizes = [...new Set(configurations.map(({ microBatch }) => microBatch))];
  const workers = configurations.map(({ options }) => workersOf(options));
  await using meter = await openMeter({
    device,
    models: sizes.map((microBatch) => ({
      model: modelOf(microBatch),
      microBatch,
      recompute: "none",
    })),
    sizes: {},
    loads: [...new Set([1, ...workers])].sort((a, b) => a - b),
    isolate,
    links: [isolate],
  });
  for (let first = 0; first < configurations.length; first += GROUP) {
    const group = configurations.slice(first, first + GROUP);
    yield* checkGroup(meter, group, { ...options, device: device.name, isolate });
  }
}

async function* checkGroup(
  meter: Meter,
  group: readonly Configuration[],
  options: CheckOptions & { readonly isolate: PlaceName },
): AsyncGenerator<CheckedStep, void> {
  await using stack = new AsyncDisposableStack();
  const open: OpenConfiguration[] = [];
  for (const configuration of group) {
    const run = stack.use(await openMeasuredRun(runOptions(configuration, options)));
    open.push({ configuration, run, repeats: [], parts: [] });
  }
  for (let round = -WARMUP; round < REPEATS; round++) {
    if (round === 0) meter.reset();
    const order = round % 2 === 0 ? open : open.toReversed();
    // Costs are measured between the steps.
    const middle = Math.ceil(order.length / 2);
    await meter.step();
    await takeSteps(order.slice(0, middle), round);
    await meter.round(PROBE_MS);
    await takeSteps(order.slice(middle), round);
  }
  const profile = meter.profile();
  for (const { configuration, repeats, parts } of open) {
    const prediction = predictStep(profile, {
      ...runOptions(configuration, options),
      transport: options.isolate,
    });
    yield checkStep(repeats, prediction.stepMs, {
      configuration: nameOf(configuration),
      parts: { measured: meanParts(parts), predicted: predictedParts(prediction) },
      notes: prediction.notes,
    });
  }
}

/**
 * Takes steps of each run in a row. The first do not count: isolates that were idle have returned
 * memory and dropped compiled code, which doubles the end of a step with replicas.
 */
async function takeSteps(open: readonly OpenConfiguration[], round: number): Promise<void> {
  for (const { configuration: { options }, run, repeats, parts } of open) {
    for (let taken = -WARM_STEPS; taken < STEPS; taken++) {
      const { ms, traces } = await run.step();
      if (round < 0 || taken < 0) continue;
      repeats[round] = (repeats[round] ?? 0) + ms / STEPS;
      parts.push(measuredParts(ms, traces, options.replicas ?? 1));
    }
  }
}

const runOptions = (
  { microBatch, options }: Configuration,
  { modelOf, device }: CheckOptions,
) => ({
  microBatches: MICRO_BATCHES,
  ...options,
  model: modelOf(microBatch),
  device,
  runtime: "workers" as const,
  trace: true,
});
