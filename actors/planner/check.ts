/**
 * Predicts steps and measures them, in one run.
 *
 * [Note: one clock rate for both] A machine is faster at one time than at another. So costs and steps
 * are measured in the same rounds, each round everything once, every other round backwards; and costs
 * are measured by probes, never on the steps that are predicted.
 *
 * @module
 */

import { type DeviceName, type Model, resolveDevice } from "../../kernels/mod.ts";
import { parts as partsOf } from "../../schedules/mod.ts";
import type { TrainOptions } from "../options/train_options.ts";
import type { StepOutcome } from "../pipeline/step.ts";
import { isolationFor } from "../run/devices.ts";
import { readStep } from "../run/timeline.ts";
import type { PlaceName } from "../runtime/mod.ts";
import { mapNumbers } from "./costs.ts";
import { type Meter, openMeter } from "./measure.ts";
import { type MeasuredRun, openMeasuredRun } from "./measure_links.ts";
import { type Prediction, predictStep, timedActions } from "./predict.ts";
import { median } from "./profile.ts";

/** Milliseconds of a step, the mean of its workers. */
export interface StepParts {
  /** It ran actions. */
  readonly busyMs: number;
  /** It chose the next one, whose inputs were there. */
  readonly dispatchMs: number;
  /** It waited for messages that were on their way. */
  readonly messageMs: number;
  /** It waited for what was not computed yet, or had nothing to do any more. */
  readonly bubbleMs: number;
  /** From the last action of all workers to the answer, and from the request to the first action. */
  readonly closingMs: number;
  /** For each stage and kind of action the mean of its milliseconds: `0F`. */
  readonly actions: Readonly<Record<string, number>>;
}

/** The parts of a traced step that took so long from its request to its answer. */
export function measuredParts(
  stepMs: number,
  traces: StepOutcome["traces"],
  replicas: number,
): StepParts {
  const { start, workers } = readStep(traces, replicas);
  const actions: NamedMs[] = [];
  let last = start;
  for (const span of workers.flatMap(({ spans }) => spans)) {
    if (span.actions.length === 0) continue;
    last = Math.max(last, span.end);
    actions.push([`${span.stages[0]}${span.kind}`, span.end - span.start]);
  }
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

/** The parts of a prediction. */
function predictedParts({ stepMs, variationMs, simulated }: Prediction): StepParts {
  const { workers, computedMs } = simulated;
  const mean = (name: keyof typeof workers[number]) => meanOf(workers.map((one) => one[name]));
  const actions = Array.from(timedActions(simulated), ({ action, start, end }): NamedMs => {
    const isOne = partsOf(action).every(({ kind }) => kind === action.kind);
    return [`${action.stage}${isOne ? action.kind : "F&B"}`, end - start];
  });
  const busyMs = mean("busyMs"), dispatchMs = mean("dispatchMs");
  const messageMs = mean("communicationMs");
  return {
    busyMs,
    dispatchMs,
    messageMs,
    // They wait for what is late.
    bubbleMs: computedMs + variationMs - busyMs - dispatchMs - messageMs,
    closingMs: stepMs - variationMs - computedMs,
    actions: meansOf(actions),
  };
}

/** Returns the means of several steps' parts. */
export function meanParts(all: readonly StepParts[]): StepParts {
  const { actions, ...times } = all[0]!;
  return {
    ...mapNumbers(times, (_, name) => meanOf(all.map((one) => one[name]))),
    actions: mapNumbers(actions, (_, name) => meanOf(all.map((one) => one.actions[name] ?? 0))),
  };
}

type NamedMs = readonly [name: string, ms: number];

const meanOf = (all: readonly number[]) => all.reduce((sum, one) => sum + one, 0) / all.length;

const meansOf = (actions: readonly NamedMs[]) =>
  Object.fromEntries(
    [...Map.groupBy(actions, ([name]) => name)].sort(([a], [b]) => a < b ? -1 : 1)
      .map(([name, all]) => [name, meanOf(all.map(([, ms]) => ms))]),
  );

/** A step that was predicted and measured. Times are in milliseconds. */
export interface CheckedStep {
  /** What was run, in words. */
  readonly configuration: string;
  /** The median of the repeats. */
  readonly measured: number;
  /** How far the repeat that is farthest from it is away. */
  readonly spread: number;
  /** The prediction. */
  readonly predicted: number;
  /** How far that is from what was measured, as a fraction of it; never below 0. */
  readonly error: number;
  /** Where the time went. */
  readonly parts: { readonly measured: StepParts; readonly predicted: StepParts };
  /** What makes the prediction less certain. */
  readonly notes: readonly string[];
}

/** Compares a prediction with the repeats of a step. */
export function checkStep(
  repeats: readonly number[],
  predicted: number,
  about: Pick<CheckedStep, "configuration" | "parts" | "notes">,
): CheckedStep {
  const measured = median(repeats);
  const spread = Math.max(...repeats.map((ms) => Math.abs(ms - measured)));
  return {
    ...about,
    measured,
    spread,
    predicted,
    error: Math.abs(predicted - measured) / measured,
  };
}

/** The most that the median of all errors, and any of them, may be. */
const MEDIAN_ERROR_MAX = 0.05, ERROR_MAX = 0.1;

/** Whether one prediction is near enough: within 10 %, or the measured spread where that is larger. */
export const isNear = ({ error, spread, measured }: CheckedStep): boolean =>
  error <= Math.max(ERROR_MAX, spread / measured);

/** What the check comes to. */
export interface CheckResult {
  readonly medianError: number;
  readonly worstError: number;
  /** Those that are not near enough. */
  readonly missed: readonly CheckedStep[];
  /** Whether all bounds hold. */
  readonly isPassed: boolean;
}

/** Sums up a check. @throws {RangeError} when there is no step. */
export function checkResult(steps: readonly CheckedStep[]): CheckResult {
  if (steps.length === 0) throw new RangeError("Cannot check predictions: there must be a step");
  const medianError = median(steps.map(({ error }) => error));
  const missed = steps.filter((one) => !isNear(one));
  return {
    medianError,
    worstError: Math.max(...steps.map(({ error }) => error)),
    missed,
    isPassed: medianError <= MEDIAN_ERROR_MAX && missed.length === 0,
  };
}

/** A run whose step is predicted and measured. */
interface Configuration {
  /** Samples of a micro-batch, B. */
  readonly microBatch: number;
  /** What `train` is asked to do beside the model. */
  readonly options:
    & Required<Pick<TrainOptions, "schedule" | "workers">>
    & Pick<
      TrainOptions,
      "scheduleOptions" | "replicas" | "recomputeInterval" | "recompute" | "layout" | "sync"
    >;
}

/** Micro-batches of a step. */
const MICRO_BATCHES = 8;

const run = (
  schedule: string,
  workers: number,
  microBatch: number,
  more: Omit<Configuration["options"], "schedule" | "workers"> = {},
): Configuration => ({ microBatch, options: { schedule, workers, ...more } });

const ON_TWO: readonly Configuration[] = [
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
];

const ON_FOUR: readonly Configuration[] = [
  run("1f1b", 4, 4),
  run("gpipe", 4, 2, { recomputeInterval: 1 }),
  run("chimera", 4, 4),
  run("message-driven", 4, 2),
  run("zb-h1", 4, 2),
  run("1f1b", 4, 4, { layout: "E,2|1|1|H" }),
  run("interleaved", 4, 4),
  run("1f1b", 2, 2, { replicas: 2 }),
];

/** The runs for a machine with so many cores: never more workers than cores. */
export const configurationsFor = (cores: number): readonly Configuration[] =>
  (cores < 4 ? ON_TWO : [...ON_TWO, ...ON_FOUR]).filter(({ options }) =>
    workersOf(options) <= cores
  );

/** Workers of all replicas. */
const workersOf = ({ workers, replicas = 1 }: Configuration["options"]): number =>
  workers * replicas;

/** A configuration in words: `1f1b D=2 B=4 layout E,3|1,H`. */
export function nameOf({ microBatch, options }: Configuration): string {
  const { schedule, workers, replicas, recomputeInterval, recompute, layout } = options;
  const { pipelineLimit } = options.scheduleOptions ?? {};
  return [
    `${schedule} D=${workers} B=${microBatch}`,
    ...replicas === undefined ? [] : [`W=${replicas}`],
    ...pipelineLimit === undefined ? [] : [`limit ${pipelineLimit}`],
    ...recompute === undefined ? [] : [`recompute ${recompute}`],
    ...recomputeInterval === undefined ? [] : [`recompute-interval ${recomputeInterval}`],
    ...layout === undefined ? [] : [`layout ${layout}`],
  ].join(" ");
}

/** How much is measured. */
interface CheckOptions {
  readonly configurations: readonly Configuration[];
  /** Makes the model for so many samples. */
  readonly modelOf: (microBatch: number) => Model;
  readonly device: DeviceName;
  /** Told in words what is done. */
  readonly announce: (line: string) => void;
}

/** Repeats of each step, rounds of a step for each of them, and rounds before that do not count. */
const REPEATS = 5, STEPS = 4, WARMUP = 2;

/** Runs that are open together: an isolate for each worker is. */
const GROUP = 8;

/** How long each model is measured under each load, in a round, at least. */
const PROBE_MS = 200;

/** A configuration whose workers are there. */
interface OpenConfiguration {
  readonly configuration: Configuration;
  readonly run: MeasuredRun;
  readonly repeats: number[];
  readonly parts: StepParts[];
}

/** Predicts and measures all configurations; each is told when it is done. */
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
    loads: [...new Set(workers)].sort((a, b) => a - b),
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
  for (let round = -WARMUP; round < REPEATS * STEPS; round++) {
    if (round === 0) meter.reset();
    const order = round % 2 === 0 ? open : open.toReversed();
    // Costs are measured in the middle of the steps.
    const middle = Math.ceil(order.length / 2);
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

/** Takes a step of each; those of several rounds in a row are a repeat. */
async function takeSteps(open: readonly OpenConfiguration[], round: number): Promise<void> {
  for (const { configuration: { options }, run, repeats, parts } of open) {
    const { ms, traces } = await run.step();
    if (round < 0) continue;
    const repeat = Math.floor(round / STEPS);
    repeats[repeat] = (repeats[repeat] ?? 0) + ms / STEPS;
    parts.push(measuredParts(ms, traces, options.replicas ?? 1));
  }
}

const runOptions = (
  { microBatch, options }: Configuration,
  { modelOf, device }: CheckOptions,
) => ({
  ...options,
  model: modelOf(microBatch),
  microBatches: MICRO_BATCHES,
  device,
  runtime: "workers" as const,
  trace: true,
});
