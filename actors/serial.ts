/**
 * `--runtime serial`: the whole model on one device, one micro-batch after the other, no actors.
 *
 * This is the oracle: whatever the pipeline does, on a deterministic device its losses and weights
 * have the same bits as these.
 *
 * @module
 */

import { openDevice, openStage } from "../kernels/mod.ts";
import { type Engine, type EngineOptions, lossScaleOf } from "./engine.ts";

/** Opens the serial engine. */
export async function openSerial(options: EngineOptions): Promise<Engine> {
  const { model, state, device: choice, optimizer } = options;
  const device = await openDevice(choice.name, choice);
  const stage = await openStage(device, model, { optimizer, backward: "whole" });
  stage.load(state);
  const lossScale = lossScaleOf(options);
  return {
    async step(step, microBatches, learningRate) {
      stage.zeroGradients();
      const losses = [];
      for (const [m, fields] of microBatches.entries()) {
        losses.push((await stage.forward(m, undefined, fields)).output);
        await stage.backward(m, "B", undefined, lossScale);
      }
      const squares = await stage.gradientSquares();
      const isFinite = [...losses.flatMap((one) => [...one]), ...squares.values()].every(
        Number.isFinite,
      );
      if (isFinite) await stage.optimize(step, learningRate);
      return { losses, squares, isCommitted: isFinite, peakActivations: [1] };
    },
    async evaluate(microBatches) {
      const losses = [];
      for (const fields of microBatches) {
        losses.push((await stage.forward(0, undefined, fields)).output);
        stage.drop(0);
      }
      return losses;
    },
    save: () => stage.save(),
    close: () => Promise.resolve(device.close()),
  };
}
