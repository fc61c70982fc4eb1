/**
 * Predicts steps and measures them, in one run.
 *
 * [Note: one clock rate for both] A machine is faster at one time than at another. So costs and steps
 * are measured in the same rounds, each round everything once, every other round backwards; and costs
 * are measured by probes, never on the steps that are predicted.
 *
 * @module
 */

import { type DeviceName, type Model, resolveDevice } from "../../../kernels/mod.ts";
import { isolationFor } from "../../run/options/run_devices.ts";
import type { PlaceName } from "../../runtime/mod.ts";
import { predictStep } from "../predict.ts";
import { type Meter, openMeter } from "../measuring/meter.ts";
import { type MeasuredRun, openMeasuredRun } from "../measuring/open_run.ts";
import { type CheckedStep, checkStep } from "./checked_step.ts";
import { type Configuration, MICRO_BATCHES, nameOf, workersOf } from "./configurations.ts";
import { meanParts, measuredParts, predictedParts, type StepParts } from "./step_parts.ts";

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
