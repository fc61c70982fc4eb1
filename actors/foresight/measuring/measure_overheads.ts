/**
 * Measures what a step takes beside its kernels: the dispatch of actions, its beginning and end, and
 * the sums of gradients.
 *
 * @module
 */

import { compileModel, elementCount, mlp, type Model } from "../../../kernels/mod.ts";
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

/** A model so small that its kernels take no time to speak of. */
const tiny = () => mlp({ inputs: 4, hidden: 4, layers: 1, classes: 2 }, 1);

/** What a step takes beside its kernels. */
export interface Overheads {
  /** For each action. */
  readonly dispatchMs: number;
  /** For each step, beside what messages of such a latency explain. */
  readonly stepMs: number;
}

/** Opens a run whose kernels take no time to speak of. */
export const openTinyRun = (options: PlaceOptions): Promise<MeasuredRun> =>
  openMeasuredRun({
    ...options,
    model: tiny(),
    workers: 1,
    microBatches: MANY,
    schedule: "1f1b",
    trace: true,
  });

/** What a short and a long step of a tiny run take beside their actions. */
export interface TinySteps {
  readonly fewMs: number;
  readonly manyMs: number;
}

/** Takes both. */
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

/** The overheads by which short and long steps of one worker are as long as they are. */
export function overheadsOf(steps: readonly TinySteps[], latencyMs: number): Overheads {
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

/** Two copies of a model, whose gradients are added. */
export interface CopiesRun extends AsyncDisposable {
  /** Takes a step; milliseconds of its all-reduce. */
  step(): Promise<number>;
  /** What that says of the cost of a sum. */
  costOf(times: readonly number[]): LinearCost;
}

/** Opens two copies of a model. */
export async function openCopiesRun(options: PlaceOptions, model: Model): Promise<CopiesRun> {
  const run = await openMeasuredRun({
    ...{ ...options, model },
    workers: 1,
    replicas: 2,
    microBatches: 1,
    schedule: "1f1b",
    trace: true,
  });
  const parameters = compileModel(model, "none").parameters.filter(({ isFrozen }) => !isFrozen)
    .reduce((sum, { shape }) => sum + elementCount(shape), 0);
  return {
    step: async () => reduceMs((await run.step()).traces),
    // Each of two copies adds one half.
    costOf: (times) => ({ ms: 0, msPerMillion: 2 * median(times) / (parameters / 1e6) }),
    [Symbol.asyncDispose]: () => run[Symbol.asyncDispose](),
  };
}

/** Milliseconds of the all-reduce on the last worker: the first also takes the norms. */
export function reduceMs(traces: StepOutcome["traces"]): number {
  return readStep(traces, traces.length).workers.at(-1)!.reduceMs;
}
