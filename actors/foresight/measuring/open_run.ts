/**
 * A run that is only measured: steps on drawn micro-batches, one after the other.
 *
 * @module
 */

import { compileModel, type Model } from "../../../kernels/mod.ts";
import type { StepOutcome } from "../../pipeline/step.ts";
import { openPipeline } from "../../run/engines/pipeline.ts";
import { prepareRun } from "../../run/options/prepare_run.ts";
import type { TrainOptions } from "../../run/options/train_options.ts";
import { drawBatch } from "./probe_data.ts";

/** A run that takes a step when it is asked to. */
export interface MeasuredRun extends AsyncDisposable {
  /**
   * Takes the next step.
   *
   * @param microBatches of it; as many as the run has unless given.
   * @returns how long it took, from its request to its answer, and what the workers did.
   */
  step(
    microBatches?: number,
  ): Promise<{ readonly ms: number; readonly traces: StepOutcome["traces"] }>;
}

/** What is run: options of a run without data of its own. */
export type MeasuredOptions = Omit<TrainOptions, "data" | "steps"> & { readonly model: Model };

/** A rate at which nothing diverges, however long it is measured. */
const RATE = 1e-5;

/** Opens a run on drawn micro-batches. */
export async function openMeasuredRun(options: MeasuredOptions): Promise<MeasuredRun> {
  const prepared = await prepareRun({ ...options, data: [], steps: 1 });
  const engine = await openPipeline(prepared, prepared.isolation);
  // The model of a run in halves takes half a micro-batch.
  const fields = drawBatch(
    prepared.halves === 1 ? prepared.model : compileModel(options.model, "none"),
  );
  let taken = 0;
  return {
    async step(microBatches = prepared.microBatches) {
      const all = Array.from({ length: microBatches }, () => fields), step = ++taken;
      const predictions = all.reduce((sum, one) => sum + prepared.predictionsOf(one), 0);
      const request = {
        step,
        update: step,
        microBatches: all,
        predictions,
        learningRate: RATE,
        lossScale: 1,
      };
      const start = performance.now();
      const { isCommitted, traces } = await engine.step(request);
      const ms = performance.now() - start;
      if (!isCommitted) throw new Error(`Cannot measure step ${step}: its losses must be finite`);
      return { ms, traces };
    },
    [Symbol.asyncDispose]: () => engine.close(),
  };
}
