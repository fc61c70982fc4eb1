/**
 * Whole optimizer steps of a GPT-2, as a run takes them.
 *
 * @module
 */

import { openPipeline } from "../../actors/run/engines/pipeline.ts";
import { openSerial } from "../../actors/run/engines/serial.ts";
import { type PreparedRun, prepareRun } from "../../actors/run/options/prepare_run.ts";
import type { StepOutcome } from "../../actors/pipeline/step.ts";
import { ADAMW_DEFAULTS, type DeviceName } from "../../kernels/mod.ts";
import { benchBatches, benchModel, SMALL, stepRequest, type Workload } from "./workload.ts";

/** What runs. */
export interface BenchRun {
  readonly device: DeviceName;
  /** Workers of the pipeline; 0: the serial loop. */
  readonly workers: number;
  /** Micro-batches of a step, N. */
  readonly microBatches: number;
  /** Default: 1F1B. */
  readonly schedule?: string;
  /** Default: the small GPT-2. */
  readonly workload?: Workload;
  /** Whether outcomes tell what each worker did when. Default false. */
  readonly isTraced?: boolean;
}

/** A run that takes one optimizer step after the other. */
export interface BenchEngine extends AsyncDisposable {
  /** What it was made from. */
  readonly prepared: PreparedRun;
  /** Takes the next step. */
  readonly outcome: () => Promise<StepOutcome>;
  /** Takes the next step; the mean loss of its tokens. */
  readonly step: () => Promise<number>;
}

/** Starts a run, whose workers are threads. */
export async function openBenchEngine(
  { device, workers, microBatches, schedule = "1f1b", workload = SMALL, isTraced = false }:
    BenchRun,
): Promise<BenchEngine> {
  const micro = benchBatches(microBatches, 1, workload);
  const prepared = await prepareRun({
    model: benchModel(workload),
    data: [],
    steps: 1,
    microBatches,
    workers: Math.max(1, workers),
    runtime: workers === 0 ? "serial" : "workers",
    schedule,
    device,
    optimizer: ADAMW_DEFAULTS,
    trace: isTraced,
  });
  // As in a worker: what is compared is the runtime, not on which thread kernels run.
  const blocking = { ...prepared.devices[0], isBlocking: true };
  const engine = workers === 0
    ? await openSerial({ ...prepared, devices: [blocking] })
    : await openPipeline(prepared, "worker");
  let steps = 0;
  const outcome = async () => {
    const result = await engine.step(stepRequest(++steps, micro));
    if (!result.isCommitted) throw new Error(`Cannot measure step ${steps}: it must be finite`);
    return result;
  };
  return {
    prepared,
    outcome,
    async step() {
      const { losses } = await outcome();
      const sum = losses.reduce((all, one) => all + one.reduce((part, x) => part + x, 0), 0);
      return sum / micro.reduce((count, { targets }) => count + targets.length, 0);
    },
    [Symbol.asyncDispose]: () => engine.close(),
  };
}
