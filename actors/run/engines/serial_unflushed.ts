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
  type Device,
  type DropoutKey,
  keyed,
  type KeyedArrays,
  openDevice,
  openStage,
  type StageState,
} from "../../../kernels/mod.ts";
import type { GradientSquares } from "../../commit/gradient_norm.ts";
import { areFinite } from "../../commit/non_finite.ts";
import type { StageKernels } from "../../pipeline/stage_kernels.ts";
import { joinStates } from "../../pipeline/stage_states.ts";
import { openStepPlanner } from "../../pipeline/step_plan.ts";
import { openStandIn } from "../../pipeline/stand_in.ts";
import type { Engine, EngineOptions } from "./engine.ts";
import { openSerialTrace, type SerialTrace } from "./serial_trace.ts";
import { readState } from "../../checkpoints/tensors/tensor_source.ts";
import { stateOf } from "./stage_parameters.ts";

/** A stage and its weights of the last updates, the newest first. */
interface AgedStage {
  readonly kernels: StageKernels;
  readonly history: StageState["weights"][];
}

const NO_MOMENTS = new Map<string, Float32Array>();

/** Opens the serial engine of PipeDream or PipeDream-2BW. */
export async function openSerialUnflushed(options: EngineOptions): Promise<Engine> {
  const { devices: [choice], isRehearsed } = options;
  const device = isRehearsed ? undefined : await openDevice(choice.name, choice);
  const stages = await openStages(options, device), depth = stages.length;
  const planner = openStepPlanner(options), trace = openSerialTrace(options.isTraced);
  /** Since the pipe would have been empty. */
  let microBatches = 0, updates = 0;
  /** How many updates the weights of stage s are behind when the pipe has got to a micro-batch. */
  const ageOf = (s: number, version: number | undefined) =>
    version === undefined ? Math.min(microBatches, depth - 1 - s) : updates - version;
  return {
    async step(request) {
      const losses: Float32Array[] = [], sums: GradientSquares[] = [];
      const { lossScales, updates: own, dropout } = planner.next(request);
      const { every, first, learningRate, version } = own!;
      for (const [m, fields] of request.microBatches.entries()) {
        for (const [s, stage] of stages.entries()) recall(stage, ageOf(s, version));
        const key = dropout && { ...dropout, microBatch: m };
        losses.push(await forward(stages, fields, microBatches, trace, key));
        await backward(stages, lossScales[m]!, microBatches, trace);
        microBatches++;
        if ((m + 1) % every > 0) continue;
        const update = first + (m + 1) / every - 1;
        sums.push(await trace.run("optimizer", () => optimize(stages, update, learningRate)));
        updates++;
      }
      const held = { peakActivations: [1], weights: [1], traces: trace.take() };
      return { losses, updates: sums, isCommitted: areFinite(losses, sums), ...held };
    },
    drain() {
      microBatches = updates = 0;
      planner.drained();
      return Promise.resolve();
    },
    async evaluate(batches) {
      const losses = [];
      for (const stage of stages) recall(stage, 0);
      for (const fields of batches) {
        losses.push(await forward(stages, fields, 0, openSerialTrace(false)));
        for (const { kernels } of stages) kernels.drop(0);
      }
      return losses;
    },
    async save() {
      for (const stage of stages) recall(stage, 0);
      const parts: StageState[] = [];
      for (const { kernels } of stages) parts.push(await kernels.save());
      return joinStates(parts);
    },
    close: () => Promise.resolve(device?.close()),
  };
}

async function openStages(
  { model, schedule, stage: options, state }: EngineOptions,
  device: Device | undefined,
): Promise<AgedStage[]> {
  const stages: AgedStage[] = [];
  for (const program of cutIntoStages(model, schedule.stages)) {
    const kernels = device
      ? await openStage(device, program, options)
      : openStandIn(program, options);
    const own = readState(stateOf(program, state));
    kernels.load(own);
    stages.push({ kernels, history: [own.weights] });
  }
  return stages;
}

/** Computes with the weights as they were some updates ago. */
function recall({ kernels, history }: AgedStage, age: number): void {
  kernels.load({ weights: history[age]!, moments: NO_MOMENTS });
}

async function forward(
  stages: readonly AgedStage[],
  fields: Batch,
  microBatch: number,
  trace: SerialTrace,
  dropout?: DropoutKey,
): Promise<Float32Array> {
  // By key: what is given by name stays for those that take it.
  let passed: KeyedArrays = {};
  for (const [s, { kernels }] of stages.entries()) {
    const run = () => kernels.forward(0, passed, fields, undefined, 0, dropout);
    const { output } = await trace.run(`${s}F${microBatch}`, run);
    passed = { ...passed, ...keyed(output) };
  }
  return passed.x as Float32Array;
}

async function backward(
  stages: readonly AgedStage[],
  lossScale: number,
  microBatch: number,
  trace: SerialTrace,
): Promise<void> {
  let gradients: KeyedArrays = {};
  for (const [s, { kernels }] of [...stages.entries()].reverse()) {
    const run = () => kernels.backward(0, "B", gradients, lossScale);
    const found = await trace.run(`${s}B${microBatch}`, run);
    gradients = { ...gradients, ...found && keyed(found) };
  }
}

/** Steps the newest weights of all stages, which become those of before. */
async function optimize(
  stages: readonly AgedStage[],
  step: number,
  learningRate: number,
): Promise<GradientSquares> {
  const squares = new Map<string, number>();
  for (const stage of stages) {
    const { kernels, history } = stage;
    recall(stage, 0);
    for (const [name, sum] of await kernels.gradientSquares()) squares.set(name, sum);
    await kernels.optimize(step, learningRate);
    kernels.zeroGradients();
    history.unshift((await kernels.save()).weights);
    history.splice(stages.length + 1);
  }
  return squares;
}
