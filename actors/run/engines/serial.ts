/**
 * `--runtime serial`: the whole model on one device, one micro-batch after the other, no actors.
 *
 * This is the oracle: whatever the pipeline does, on a deterministic device its losses and weights
 * have the same bits as these. Every copy of the model that the schedule has takes its micro-batches
 * in ascending order and sums their gradients; the sums are added left to right in copy order.
 *
 * @module
 */

import { openDevice, withAliases } from "../../../kernels/mod.ts";
import { clipFactor } from "../../commit/gradient_norm.ts";
import { sumsOf } from "../../commit/host_sums.ts";
import { areFinite } from "../../commit/non_finite.ts";
import { pipesOf } from "../../pipeline/layout.ts";
import type { StepRequest } from "../../pipeline/step.ts";
import { dropoutOf, shareStep, type StepPlan } from "../../pipeline/step_plan.ts";
import type { Engine, EngineOptions } from "./engine.ts";
import { stateShapes } from "./held_by_stages.ts";
import { openSerialTrace, type SerialTrace } from "./serial_trace.ts";
import { mostTied, tieGroups, trainedTies, withoutAliases } from "./tied_parameters.ts";
import { openCopies, type OpenCopy, type StageCopies } from "../../pipeline/stage_copies.ts";

/** Opens the serial engine. */
export async function openSerial(options: EngineOptions): Promise<Engine> {
  const { model, devices: [choice], halves } = options;
  const device = options.isRehearsed ? undefined : await openDevice(choice.name, choice);
  const state = withAliases(options.state, model.ties);
  const copy = { stage: 0, rank: 0, replica: 0, pipe: 0, worker: 0 };
  const pipes = pipesOf(options.schedule), ties = trainedTies(model), groups = tieGroups(ties);
  const collects = pipes * options.replicas > 1;
  const stage = { ...options.stage, backward: "whole" as const, collects };
  const copies = await openCopies(device, [{ copy, program: model, state }], stage, halves);
  const [whole] = copies.all as [OpenCopy], { kernels } = whole;
  const trace = openSerialTrace(options.isTraced);
  return {
    async step(request) {
      kernels.zeroGradients();
      const plan = {
        ...shareStep(options, request.microBatches.length),
        ...dropoutOf(options, request),
      };
      const { losses, isSafe } = await sumGradients(
        copies,
        request,
        plan,
        pipes,
        mostTied(ties),
        trace,
      );
      const outcome = { losses, peakActivations: [1], weights: [1] };
      if (!isSafe || !areFinite(losses, [])) {
        return { ...outcome, updates: [], isCommitted: false, traces: trace.take() };
      }
      for (const names of groups) await sumsOf(kernels).tie(names);
      const squares = await kernels.gradientSquares();
      for (const [, alias] of model.ties) squares.delete(alias);
      const { update, learningRate, lossScale } = request;
      const factor = clipFactor(options.clip, squares, lossScale);
      const scale = factor / lossScale;
      await trace.run("optimizer", () => kernels.optimize(update, learningRate, scale));
      for (const [name, sum] of squares) squares.set(name, sum / lossScale ** 2);
      return { ...outcome, updates: [squares], isCommitted: true, traces: trace.take() };
    },
    async evaluate(microBatches) {
      const losses = [];
      for (const fields of microBatches) {
        const { output } = await copies.forward(
          whole,
          { microBatch: 0 },
          undefined,
          fields,
          undefined,
          0,
        );
        losses.push(output as Float32Array);
        copies.drop(whole, 0);
      }
      return losses;
    },
    save: async () => withoutAliases(await kernels.save(), model.ties),
    held: {
      shapes: stateShapes(model.parameters, options),
      holderOf: () => 0,
      read: (parts) => kernels.read(parts),
    },
    close: () => Promise.resolve(device?.close()),
  };
}

/** Leaves the sum of all copies in the gradients. */
async function sumGradients(
  copies: StageCopies,
  { microBatches, lossScale, predictions }: StepRequest,
  { shares, dropout }: Pick<StepPlan, "shares" | "dropout">,
  pipes: number,
  tied: number,
  trace: SerialTrace,
): Promise<{ losses: Float32Array[]; isSafe: boolean }> {
  const [whole] = copies.all as [OpenCopy], { kernels } = whole;
  const copyCount = shares.length * pipes, addends = copyCount * tied;
  const losses: Float32Array[] = [], sums = sumsOf(kernels);
  let isSafe = true;
  for (const [replica, { first, pipeOf }] of shares.entries()) {
    for (let pipe = 0; pipe < pipes; pipe++) {
      for (const [m] of pipeOf.entries().filter(([, one]) => one === pipe)) {
        const fields = microBatches[first + m]!;
        const id = first + m, scale = lossScale / predictions;
        const key = dropout && { ...dropout, microBatch: id };
        const { output } = await trace.run(
          `0F${id}`,
          () => copies.forward(whole, { microBatch: m }, undefined, fields, undefined, 0, key),
        );
        losses[id] = output as Float32Array;
        const action = { kind: "B", stage: 0, microBatch: m } as const;
        await trace.run(
          `0B${id}`,
          () => copies.backward(whole, action, undefined, scale, undefined),
        );
      }
      isSafe &&= await kernels.checkGradients(addends);
      if (copyCount === 1) continue;
      const rank = replica * pipes + pipe;
      await sums.collect(rank, copyCount);
      if (rank < copyCount - 1) kernels.zeroGradients();
    }
  }
  return { losses, isSafe };
}
