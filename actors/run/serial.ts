/**
 * `--runtime serial`: the whole model on one device, one micro-batch after the other, no actors.
 *
 * This is the oracle: on a deterministic device the pipeline's losses and weights have the same bits
 * as these. Each copy of the model in the schedule takes its micro-batches in ascending order and sums
 * their gradients; the sums are added left to right in copy order.
 *
 * @module
 */

import {
  type Batch,
  type Device,
  type DropoutKey,
  type KeyedArrays,
  openDevice,
} from "../../kernels/mod.ts";
import { cutIntoStages, keyed, type StageState, withAliases } from "../../kernels/internal.ts";
import { type HeldState, readState } from "../checkpoints/tensors.ts";
import { sumsOf } from "../gradients/all_reduce.ts";
import { areFinite, clipFactor, type GradientSquares } from "../gradients/commit.ts";
import { pipelineCount } from "../pipeline/layout.ts";
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
  shareStep,
  type StepOutcome,
  StepPlanner,
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

/** Records the actions of a step, if the run is traced. */
class SerialTrace {
  readonly #now = realClock().now;
  #actions: TracedAction[] = [];

  constructor(private readonly isTraced: boolean) {}

  /** Runs an action and returns its result. */
  async run<T>(name: string, action: () => T | Promise<T>): Promise<T> {
    if (!this.isTraced) return await action();
    const start = this.#now(), result = await action();
    this.#actions.push({ name, start, end: this.#now() });
    return result;
  }

  /** Returns the actions since the last call, as those of one worker; empty if untraced. */
  take(): readonly (readonly TracedAction[])[] {
    const actions = this.#actions;
    this.#actions = [];
    return this.isTraced ? [actions] : [];
  }
}

/** The serial engine of a schedule with flushes. */
class SerialEngine implements Engine {
  readonly ahead = 0;
  readonly held: HeldState;
  readonly #whole: OpenCopy;
  readonly #trace: SerialTrace;
  readonly #tieGroups: readonly (readonly string[])[];

  constructor(
    private readonly options: EngineOptions,
    private readonly device: Device,
    private readonly copies: StageCopies,
  ) {
    const [whole] = copies.all as [OpenCopy];
    this.#whole = whole;
    this.#trace = new SerialTrace(options.isTraced);
    this.#tieGroups = tieGroups(trainedTies(options.model));
    this.held = {
      shapes: stateShapes(options.model.parameters, options),
      holderOf: () => 0,
      read: (parts) => whole.kernels.read(parts),
    };
  }

  async step(request: StepRequest): Promise<StepOutcome> {
    const { model, clip } = this.options, { kernels } = this.#whole, trace = this.#trace;
    kernels.zeroGradients();
    const { losses, isSafe } = await this.#sumGradients(request);
    const outcome = { losses, peakActivations: [1], weights: [1] };
    if (!isSafe || !areFinite(losses, [])) {
      return { ...outcome, updates: [], isCommitted: false, traces: trace.take() };
    }
    for (const names of this.#tieGroups) await sumsOf(kernels).tie(names);
    const squares = await kernels.gradientSquares();
    for (const [, alias] of model.ties) squares.delete(alias);
    const { update, learningRate, lossScale } = request;
    const scale = clipFactor(clip, squares, lossScale) / lossScale;
    await trace.run("optimizer", () => kernels.optimize(update, learningRate, scale));
    for (const [name, sum] of squares) squares.set(name, sum / lossScale ** 2);
    return { ...outcome, updates: [squares], isCommitted: true, traces: trace.take() };
  }

  /** Leaves the sum of all copies in the gradients. */
  async #sumGradients(request: StepRequest) {
    const { microBatches, lossScale, predictions } = request, options = this.options;
    const scale = lossScale / predictions;
    const { shares } = shareStep(options, microBatches.length);
    const { dropout } = dropoutOf(options, request);
    const { kernels } = this.#whole, pipes = pipelineCount(options.schedule);
    const copyCount = shares.length * pipes;
    const addends = copyCount * mostTied(trainedTies(options.model));
    const losses: Float32Array[] = [], sums = sumsOf(kernels);
    let isSafe = true;
    for (const [replica, { first, pipeOf }] of shares.entries()) {
      for (let pipe = 0; pipe < pipes; pipe++) {
        for (const [m] of pipeOf.entries().filter(([, one]) => one === pipe)) {
          const id = first + m, key = dropout && { ...dropout, microBatch: id };
          losses[id] = await this.#runMicroBatch({ m, id }, microBatches[id]!, scale, key);
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

  /** Runs a micro-batch forward and backward; returns its losses. */
  async #runMicroBatch(
    { m, id }: { readonly m: number; readonly id: number },
    fields: Batch,
    scale: number,
    key: DropoutKey | undefined,
  ): Promise<Float32Array> {
    const copies = this.copies, whole = this.#whole;
    const forward = () => copies.forward(whole, { microBatch: m }, { fields, dropout: key });
    const { output } = await this.#trace.run(`0F${id}`, forward);
    const action = { kind: "B", stage: 0, microBatch: m } as const;
    const backward = () => copies.backward(whole, action, { lossScale: scale });
    await this.#trace.run(`0B${id}`, backward);
    return output as Float32Array;
  }

  async evaluate(microBatches: readonly Batch[]): Promise<Float32Array[]> {
    const losses = [], copies = this.copies, whole = this.#whole;
    const age = this.options.stage.average ? -1 : 0;
    for (const fields of microBatches) {
      const { output } = await copies.forward(whole, { microBatch: 0 }, { fields, age });
      losses.push(output as Float32Array);
      copies.drop(whole, 0);
    }
    return losses;
  }

  async save(): Promise<StageState> {
    return withoutAliases(await this.#whole.kernels.save(), this.options.model.ties);
  }

  drain(): Promise<void> {
    return Promise.resolve();
  }

  async close(): Promise<void> {
    await this.device.close();
  }
}

/** A stage and its weights after the last updates, the newest first. */
interface AgedStage {
  readonly kernels: StageKernels;
  readonly history: StageState["weights"][];
}

const NO_MOMENTS = new Map<string, Float32Array>();

/** The serial engine of PipeDream or PipeDream-2BW. */
class UnflushedSerialEngine implements Engine {
  readonly ahead = 0;
  readonly #planner: StepPlanner;
  readonly #trace: SerialTrace;
  /** Micro-batches and updates since the last drain. */
  #microBatches = 0;
  #updates = 0;

  constructor(
    options: EngineOptions,
    private readonly device: Device,
    private readonly stages: readonly AgedStage[],
  ) {
    this.#planner = new StepPlanner(options);
    this.#trace = new SerialTrace(options.isTraced);
  }

  async step(request: StepRequest): Promise<StepOutcome> {
    const losses: Float32Array[] = [], sums: GradientSquares[] = [], stages = this.stages;
    const { lossScales, updates, dropout } = this.#planner.next(request);
    const { every, first, learningRate, version } = updates!;
    // In the pipeline, the weights of stage s are this number of updates old for the micro-batch.
    const ageOf = (s: number) =>
      version === undefined
        ? Math.min(this.#microBatches, stages.length - 1 - s)
        : this.#updates - version;
    for (const [m, fields] of request.microBatches.entries()) {
      for (const [s, stage] of stages.entries()) recall(stage, ageOf(s));
      const key = dropout && { ...dropout, microBatch: m };
      losses.push(await this.#forward(fields, this.#trace, key));
      await this.#backward(lossScales[m]!);
      this.#microBatches++;
      if ((m + 1) % every > 0) continue;
      const update = first + (m + 1) / every - 1;
      sums.push(await this.#trace.run("optimizer", () => this.#optimize(update, learningRate)));
      this.#updates++;
    }
    const held = { peakActivations: [1], weights: [1], traces: this.#trace.take() };
    return { losses, updates: sums, isCommitted: areFinite(losses, sums), ...held };
  }

  async #forward(
    fields: Batch,
    trace: SerialTrace,
    dropout?: DropoutKey,
  ): Promise<Float32Array> {
    // Values by key: a named value stays available for all stages that use it.
    let passed: KeyedArrays = {};
    for (const [s, { kernels }] of this.stages.entries()) {
      const run = () => kernels.forward(0, passed, fields, undefined, 0, dropout);
      const { output } = await trace.run(`${s}F${this.#microBatches}`, run);
      passed = { ...passed, ...keyed(output) };
    }
    return passed.x as Float32Array;
  }

  async #backward(lossScale: number): Promise<void> {
    let gradients: KeyedArrays = {};
    for (const [s, { kernels }] of [...this.stages.entries()].reverse()) {
      const run = () => kernels.backward(0, "B", gradients, lossScale);
      const found = await this.#trace.run(`${s}B${this.#microBatches}`, run);
      gradients = { ...gradients, ...found && keyed(found) };
    }
  }

  /** Steps the newest weights of all stages. */
  async #optimize(step: number, learningRate: number): Promise<GradientSquares> {
    const squares = new Map<string, number>();
    for (const stage of this.stages) {
      const { kernels, history } = stage;
      recall(stage, 0);
      for (const [name, sum] of await kernels.gradientSquares()) squares.set(name, sum);
      await kernels.optimize(step, learningRate);
      kernels.zeroGradients();
      history.unshift((await kernels.save()).weights);
      history.splice(this.stages.length + 1);
    }
    return squares;
  }

  drain(): Promise<void> {
    this.#microBatches = this.#updates = 0;
    this.#planner.drained();
    return Promise.resolve();
  }

  async evaluate(batches: readonly Batch[]): Promise<Float32Array[]> {
    const losses = [], untraced = new SerialTrace(false);
    for (const stage of this.stages) recall(stage, 0);
    for (const fields of batches) {
      losses.push(await this.#forward(fields, untraced));
      for (const { kernels } of this.stages) kernels.drop(0);
    }
    return losses;
  }

  async save(): Promise<StageState> {
    for (const stage of this.stages) recall(stage, 0);
    const parts: StageState[] = [];
    for (const { kernels } of this.stages) parts.push(await kernels.save());
    return joinStates(parts);
  }

  async close(): Promise<void> {
    await this.device.close();
  }
}

/** Loads the weights from before the last `age` updates. */
function recall({ kernels, history }: AgedStage, age: number): void {
  kernels.load({ weights: history[age]!, moments: NO_MOMENTS });
}

/** Opens the serial engine of a schedule. */
export async function openSerial(options: EngineOptions): Promise<Engine> {
  const { model, schedule, devices: [choice], halves } = options;
  // The loop has nothing to do while a kernel computes.
  const device = await openDevice(choice.name, { ...choice, isBlocking: true });
  const open = await stageOpener(options.kernels);
  if (!UPDATE_POLICIES[schedule.updates].isFlushed) {
    const stages: AgedStage[] = [];
    for (const program of cutIntoStages(model, schedule.stages)) {
      const kernels = await open(device, program, options.stage);
      const own = readState(stateOf(program, options.state));
      kernels.load(own);
      stages.push({ kernels, history: [own.weights] });
    }
    return new UnflushedSerialEngine(options, device, stages);
  }
  const state = withAliases(options.state, model.ties);
  const copy = { stage: 0, rank: 0, replica: 0, pipe: 0, worker: 0 };
  const collects = pipelineCount(schedule) * options.replicas > 1;
  const stage = { ...options.stage, backward: "whole" as const, collects };
  const init = { copy, program: model, laterFields: [], state };
  const copies = await openCopies(device, [init], stage, halves, open);
  return new SerialEngine(options, device, copies);
}
