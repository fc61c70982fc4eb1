/**
 * `--runtime serial`: the whole model on one device, one micro-batch after the other, no actors.
 *
 * This is the oracle: whatever the pipeline does, on a deterministic device its losses and weights
 * have the same bits as these. Every copy of the model that the schedule has takes its micro-batches
 * in ascending order and sums their gradients; the sums are added left to right in copy order.
 *
 * @module
 */

import { type Batch, type Device, openDevice } from "../../kernels/mod.ts";
import {
  cutIntoStages,
  type DropoutKey,
  keyed,
  type KeyedArrays,
  type StageState,
  withAliases,
} from "../../kernels/internal.ts";
import { readState } from "../checkpoints/tensors.ts";
import { sumsOf } from "../gradients/all_reduce.ts";
import { areFinite, clipFactor, type GradientSquares } from "../gradients/commit.ts";
import { pipesOf } from "../pipeline/layout.ts";
import {
  joinStates,
  openCopies,
  type OpenCopy,
  type StageCopies,
  type StageKernels,
  stageOpener,
} from "../pipeline/stage_copies.ts";
import {
  dropoutOf,
  openStepPlanner,
  shareStep,
  type StepPlan,
  type StepRequest,
  type TracedAction,
  UPDATE_POLICIES,
} from "../pipeline/step.ts";
import { realClock } from "../runtime/world.ts";
import {
  type Engine,
  type EngineOptions,
  mostTied,
  stateOf,
  stateShapes,
  tieGroups,
  trainedTies,
  withoutAliases,
} from "./engine.ts";

/** Writes down the actions of one step after the other. */
interface SerialTrace {
  /** Runs an action and gives what it gives. */
  run<T>(name: string, action: () => T | Promise<T>): Promise<T>;
  /** What has run since it was asked last, as that of one worker; empty unless the run is traced. */
  take(): readonly (readonly TracedAction[])[];
}

/** Opens the trace of an engine. */
function openSerialTrace(isTraced: boolean): SerialTrace {
  if (!isTraced) return { run: async (_, action) => await action(), take: () => [] };
  const { now } = realClock();
  let trace: TracedAction[] = [];
  return {
    async run(name, action) {
      const start = now(), result = await action();
      trace.push({ name, start, end: now() });
      return result;
    },
    take() {
      const taken = trace;
      trace = [];
      return [taken];
    },
  };
}

/** Opens the serial engine. */
export async function openSerial(options: EngineOptions): Promise<Engine> {
  const { model, devices: [choice], halves } = options;
  const device = await openDevice(choice.name, choice);
  const state = withAliases(options.state, model.ties);
  const copy = { stage: 0, rank: 0, replica: 0, pipe: 0, worker: 0 };
  const pipes = pipesOf(options.schedule), ties = trainedTies(model), groups = tieGroups(ties);
  const collects = pipes * options.replicas > 1;
  const stage = { ...options.stage, backward: "whole" as const, collects };
  const open = await stageOpener(options.kernels);
  const copies = await openCopies(device, [{ copy, program: model, state }], stage, halves, open);
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
    close: () => Promise.resolve(device.close()),
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

/** A stage and its weights of the last updates, the newest first. */
interface AgedStage {
  readonly kernels: StageKernels;
  readonly history: StageState["weights"][];
}

const NO_MOMENTS = new Map<string, Float32Array>();

/** Opens the serial engine of PipeDream or PipeDream-2BW. */
async function openSerialUnflushed(options: EngineOptions): Promise<Engine> {
  const { devices: [choice] } = options, device = await openDevice(choice.name, choice);
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
    close: () => Promise.resolve(device.close()),
  };
}

async function openStages(
  { model, schedule, stage: options, state, kernels: module }: EngineOptions,
  device: Device,
): Promise<AgedStage[]> {
  const stages: AgedStage[] = [], open = await stageOpener(module);
  for (const program of cutIntoStages(model, schedule.stages)) {
    const kernels = await open(device, program, options);
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

/** Opens the serial engine of a schedule, with or without flushes. */
export function openSerialOf(options: EngineOptions): Promise<Engine> {
  const { isFlushed } = UPDATE_POLICIES[options.schedule.updates];
  return isFlushed ? openSerial(options) : openSerialUnflushed(options);
}
