/**
 * `--runtime serial` of a schedule without flushes: a model of its staleness, with no actors.
 *
 * Every stage has a history of its weights on the host. A micro-batch runs forward and backward
 * through all stages, each with the version that it would see in the pipe, and then the newest
 * weights are stepped. On a deterministic device the losses and weights of the pipeline have the
 * same bits.
 *
 * @module
 */

import {
  type Batch,
  cutIntoStages,
  type MessageArray,
  openDevice,
  openStage,
  type Stage,
  type StageState,
} from "../../../kernels/mod.ts";
import type { Update, UpdateTerms } from "../../pipeline/async_protocol.ts";
import { areFinite, type Engine, type EngineOptions } from "./engine.ts";
import { stateOf } from "./pipeline.ts";
import { openTerms } from "../../pipeline/update_terms.ts";

type Weights = StageState["weights"];

/** A stage and its weights of the last updates, the newest first. */
interface AgedStage {
  readonly kernels: Stage;
  readonly history: Weights[];
}

const NO_MOMENTS = new Map<string, Float32Array>();

/** Computes with the weights as they were some updates ago. */
const recall = ({ kernels, history }: AgedStage, age: number) =>
  kernels.load({ weights: history[age]!, moments: NO_MOMENTS });

/** Opens the serial engine of PipeDream or PipeDream-2BW. */
export async function openSerialAsync(options: EngineOptions): Promise<Engine> {
  const { model, schedule: { stages: depth }, device: choice } = options;
  const device = await openDevice(choice.name, choice);
  const stages: AgedStage[] = [];
  for (const program of cutIntoStages(model, depth)) {
    const kernels = await openStage(device, program, options.stage);
    const state = stateOf(program, options.state);
    kernels.load(state);
    stages.push({ kernels, history: [state.weights] });
  }
  const terms = openTerms(options);
  /** Since the pipe would have been empty. */
  let microBatches = 0, updates = 0;

  /** How many updates the weights of stage s are behind when the pipe has got to a micro-batch. */
  const ageOf = (s: number, { version }: UpdateTerms) =>
    version === undefined ? Math.min(microBatches, depth - 1 - s) : updates - version;
  const forward = async (fields: Batch) => {
    let passed: MessageArray | undefined;
    for (const { kernels } of stages) {
      ({ output: passed } = await kernels.forward(0, passed, fields));
    }
    return passed as Float32Array;
  };
  const update = async ({ step, learningRate }: Update) => {
    const squares = new Map<string, number>();
    for (const stage of stages) {
      const { kernels, history } = stage;
      recall(stage, 0);
      for (const [name, sum] of await kernels.gradientSquares()) squares.set(name, sum);
      await kernels.optimize(step, learningRate);
      kernels.zeroGradients();
      history.unshift((await kernels.save()).weights);
      history.splice(depth + 1);
    }
    updates++;
    return squares;
  };

  return {
    async step(request) {
      const losses: Float32Array[] = [], sums: Map<string, number>[] = [];
      const all = terms.next(request);
      for (const [m, fields] of request.microBatches.entries()) {
        for (const [s, stage] of stages.entries()) recall(stage, ageOf(s, all[m]!));
        losses.push(await forward(fields));
        let gradient: MessageArray | undefined;
        for (const { kernels } of stages.toReversed()) {
          gradient = await kernels.backward(0, "B", gradient, all[m]!.lossScale);
        }
        microBatches++;
        if (all[m]!.update) sums.push(await update(all[m]!.update!));
      }
      const held = { peakActivations: [1], weights: [1], traces: [] };
      return { losses, updates: sums, isCommitted: areFinite(losses, sums), ...held };
    },
    drain() {
      microBatches = updates = 0;
      terms.drained();
      return Promise.resolve();
    },
    async evaluate(batches) {
      const losses = [];
      for (const stage of stages) recall(stage, 0);
      for (const fields of batches) {
        losses.push(await forward(fields));
        for (const { kernels } of stages) kernels.drop(0);
      }
      return losses;
    },
    async save() {
      const weights = new Map<string, Float32Array>(), moments = new Map<string, Float32Array>();
      for (const stage of stages) {
        recall(stage, 0);
        const part = await stage.kernels.save();
        for (const [name, values] of part.weights) weights.set(name, values);
        for (const [name, values] of part.moments) moments.set(name, values);
      }
      return { weights, moments };
    },
    close: () => Promise.resolve(device.close()),
  };
}
