/**
 * A whole model as one stage, on one device.
 *
 * @module
 */

import {
  ADAMW_DEFAULTS,
  compileModel,
  type Device,
  openStage,
  type Precision,
  type Stage,
} from "../../kernels/mod.ts";
import {
  benchBatches,
  benchModel,
  firstWeights,
  LEARNING_RATE,
  SMALL,
  tokensOf,
} from "./workload.ts";

/** A stage with its first weights and a micro-batch. */
export interface BenchStage {
  readonly stage: Stage;
  /** Trained numbers. */
  readonly parameters: number;
  /** Forward and backward of the micro-batch, computed to the end; its mean loss. */
  readonly forwardBackward: () => Promise<number>;
  /** What a worker does for a step of so many micro-batches, one by default, computed to the end. */
  readonly step: (microBatches?: number) => Promise<void>;
}

/** Resolves when a device has done all that it was given: what is read was computed after that. */
export function drainOf(device: Device): () => Promise<void> {
  const last = device.alloc("f32", []), into = new Float32Array(1);
  return async () => void await device.read(last, into);
}

/** Opens a model on a device. */
export async function openBenchStage(
  device: Device,
  workload = SMALL,
  precision: Precision = "fp32",
): Promise<BenchStage> {
  const program = compileModel(benchModel(workload), "none", { precision });
  const stage = await openStage(device, program, { optimizer: ADAMW_DEFAULTS, backward: "whole" });
  const weights = firstWeights(workload);
  stage.load({ weights, moments: new Map() });
  const drain = drainOf(device), tokens = tokensOf(workload);
  const [fields] = benchBatches(1, 1, workload);
  const queue = async () => {
    const { output } = await stage.forward(0, undefined, fields!);
    await stage.backward(0, "B", undefined, 1 / tokens);
    return (output as Float32Array).reduce((sum, loss) => sum + loss, 0) / tokens;
  };
  let steps = 0;
  return {
    stage,
    parameters: [...weights.values()].reduce((sum, { length }) => sum + length, 0),
    async forwardBackward() {
      const loss = await queue();
      await drain();
      return loss;
    },
    async step(microBatches = 1) {
      stage.zeroGradients();
      for (let m = 0; m < microBatches; m++) await queue();
      await stage.checkGradients(1);
      await stage.gradientSquares();
      await stage.optimize(++steps, LEARNING_RATE);
      await drain();
    },
  };
}
