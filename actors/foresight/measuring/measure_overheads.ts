/**
 * Measures what a step takes beside its kernels: the dispatch of actions, its beginning and end, and
 * the sums of gradients.
 *
 * @module
 */

import { elementCount, mlp, type Model, type ModelProgram } from "../../../kernels/mod.ts";
import { createSchedule, simulateStep } from "../../../schedules/mod.ts";
import type { StepOutcome } from "../../pipeline/step.ts";
import { readStep } from "../../run/timeline/mod.ts";
import { median } from "../profile/median.ts";
import { type MeasuredOptions, type MeasuredRun, openMeasuredRun } from "./open_run.ts";
import type { LinearCost } from "../profile/profile.ts";

/** Micro-batches of a short and of a long step: what lies between is that of their actions. */
const FEW = 4, MANY = 68;

/** Where a step is measured, and with what. */
export type PlaceOptions = Pick<MeasuredOptions, "device" | "runtime" | "isolation">;

/** Opens a run whose kernels take no time to speak of. */
export const openTinyRun = (options: PlaceOptions): Promise<MeasuredRun> =>
  openMeasuredRun({
    ...options,
    model: mlp({ inputs: 4, hidden: 4, layers: 1, classes: 2 }, 1),
    workers: 1,
    microBatches: MANY,
    schedule: "1f1b",
    trace: true,
  });

/** Milliseconds of a short and of a long step of a tiny run beside their actions. */
export interface TinySteps {
  readonly fewMs: number;
  readonly manyMs: number;
}

/** Takes a short and a long step. */
export async function takeTinySteps(run: MeasuredRun): Promise<TinySteps> {
  const few = await run.step(FEW), many = await run.step(MANY);
  return { fewMs: besideActions(few), manyMs: besideActions(many) };
}

/** Milliseconds of a step in which its one worker ran no action. */
export function besideActions(
  { ms, traces }: { readonly ms: number; readonly traces: StepOutcome["traces"] },
): number {
  return ms - readStep(traces).workers[0]!.busyMs;
}

/**
 * Returns the milliseconds that each action, and each step, takes beside its kernels and messages of
 * such a latency.
 */
export function overheadsOf(
  steps: readonly TinySteps[],
  latencyMs: number,
): { readonly dispatchMs: number; readonly stepMs: number } {
  const fewMs = median(steps.map((one) => one.fewMs));
  const manyMs = median(steps.map((one) => one.manyMs));
  const dispatchMs = Math.max(0, manyMs - fewMs) / (2 * (MANY - FEW));
  const schedule = createSchedule("1f1b", { workers: 1, microBatches: FEW });
  const { makespanMs } = simulateStep({
    schedule,
    stages: [{ forwardMs: 0, backwardMs: 0 }],
    dispatchMs,
    controlMs: latencyMs,
    closing: {},
  });
  return { dispatchMs, stepMs: Math.max(0, fewMs - makespanMs) };
}

/** Opens a run of two copies of a model, whose gradients are added. */
export const openCopiesRun = (options: PlaceOptions, model: Model): Promise<MeasuredRun> =>
  openMeasuredRun({
    ...{ ...options, model },
    workers: 1,
    replicas: 2,
    microBatches: 1,
    schedule: "1f1b",
    trace: true,
  });

/** Returns the cost of a sum by the milliseconds of the all-reduces of two copies of a model. */
export function sumCost({ parameters }: ModelProgram, times: readonly number[]): LinearCost {
  const count = parameters.filter(({ isFrozen }) => !isFrozen)
    .reduce((sum, { shape }) => sum + elementCount(shape), 0);
  // Each of two copies adds one half.
  return { ms: 0, msPerMillion: 2 * median(times) / (count / 1e6) };
}

/** Milliseconds of the all-reduce on the last worker: the first also takes the norms. */
export function reduceMs(traces: StepOutcome["traces"]): number {
  return readStep(traces, traces.length).workers.at(-1)!.reduceMs;
}
