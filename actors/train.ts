/**
 * `train()`: the training loop.
 *
 * @module
 */

import { delay } from "@std/async/delay";
import { type Batch, learningRateAt, type StageState } from "../kernels/mod.ts";
import type { Schedule } from "../schedules/mod.ts";
import { openAsyncPipeline } from "./async_pipeline.ts";
import { writeCheckpoint } from "./checkpoint.ts";
import { type Engine, meanLoss, meanNorm } from "./engine.ts";
import { firstLossScale, type LossScaleState, nextLossScale, SKIPS_MAX } from "./loss_scale.ts";
import { openPipeline } from "./pipeline.ts";
import type { StepOutcome, StepRequest } from "./protocol.ts";
import { openRecovering } from "./recovery.ts";
import { runAhead } from "./run_ahead.ts";
import { openSerial } from "./serial.ts";
import { openSerialAsync } from "./serial_async.ts";
import type { TrainEvent } from "./train_event.ts";
import { type PreparedRun, prepareRun, type TrainOptions } from "./train_options.ts";
import { hashWeights } from "./weights.ts";

/** A run that cannot go on: a loss, a gradient or a weight that is not finite. */
export class NonFiniteError extends Error {
  /** `NonFiniteError`. */
  override name = "NonFiniteError";
}

/**
 * Trains a model with a pipeline of stage actors.
 *
 * Nothing runs before the first event is asked for; leaving the loop early ends the run and frees
 * everything.
 *
 * With `pipedream` and `pipedream-2bw` the pipe runs empty before every evaluation and checkpoint,
 * and what follows is computed with the newest weights alone. So a run that goes on from a checkpoint
 * has the bits of the run that wrote it, but a run with other pauses has others.
 *
 * @throws {RangeError} or {@linkcode TypeError} when an option cannot be served, before anything runs.
 * @throws {NonFiniteError} when a loss or gradient is not finite: the weights of the step before
 * stay, but not without flushes; or when a weight that would be saved is not: the checkpoints before
 * it stay.
 * @throws {RangeError} when the data ends before the run.
 *
 * @example A model of one's own, split over two workers
 * ```ts
 * import assert from "node:assert/strict";
 * import { type Layer, train } from "@troupe/troupe";
 *
 * const dense = (name: string, inputs: number, outputs: number): Layer => ({
 *   name,
 *   build: (g, x) =>
 *     g.tanh(g.gemm(x ?? g.batch("points", [8, inputs]), g.parameter("weight", [inputs, outputs]))),
 * });
 * const head: Layer = {
 *   name: "head",
 *   build: (g, x) =>
 *     g.crossEntropy(g.gemm(x!, g.parameter("weight", [16, 2])), g.batch("labels", [8], "i32")),
 * };
 * async function* circles() {
 *   for (;;) {
 *     const points = Float32Array.from({ length: 16 }, () => Math.random() * 2 - 1);
 *     const labels = Int32Array.from({ length: 8 }, (_, i) =>
 *       Number(points[2 * i]! ** 2 + points[2 * i + 1]! ** 2 < 0.6));
 *     yield { points, labels };
 *   }
 * }
 *
 * const losses = [];
 * for await (
 *   const event of train({
 *     model: { name: "circles", layers: [dense("hidden", 2, 16), head], predictions: 8 },
 *     data: circles(),
 *     steps: 3,
 *     workers: 2,
 *     schedule: "1f1b",
 *     runtime: "local",
 *     device: "reference",
 *   })
 * ) {
 *   if (event.type === "step") losses.push(event.loss);
 * }
 * assert.equal(losses.length, 3);
 * ```
 */
export async function* train(options: TrainOptions): AsyncGenerator<TrainEvent, void> {
  const prepared = await prepareRun(options);
  const { steps, runtime, model, rate, predictionsOf } = prepared;
  yield { type: "plan", plan: prepared.plan };
  const started = performance.now();
  let { step, update, lossScale } = progressOf(options.resume, prepared.lossScaling);
  const batches = takeSteps(options.data, prepared.microBatches, step, options.dropLast ?? false);
  const engine = await openEngine(prepared);
  let checkpoint: string | null = null;
  let peakActivations: readonly number[] = [], weights: readonly number[] = [];
  let memory: StepOutcome["memory"];
  const stateNow = async (): Promise<StageState> => {
    const state = await engine.save();
    assertFinite(state, step);
    return state;
  };
  const save = async (state: StageState): Promise<TrainEvent> => {
    const { directory, config } = to!, { parameters } = model;
    const progress: Progress = { step, update, lossScale };
    const content = { step, state, parameters, config: { ...config, progress } };
    checkpoint = await writeCheckpoint(directory, content);
    return { type: "checkpoint", step, path: checkpoint };
  };
  const { evaluation, checkpoint: to } = options;
  const countPredictions = (micro: readonly Batch[]) =>
    micro.reduce((sum, batch) => sum + predictionsOf(batch), 0);
  const evaluate = async (): Promise<TrainEvent> => {
    const { batches } = evaluation!, losses = await engine.evaluate(batches);
    return { type: "evaluation", step, loss: meanLoss(losses, countPredictions(batches)) };
  };
  const evaluatesAfter = (step: number) => evaluation && step % evaluation.every === 0;
  const savesAfter = (step: number) => to?.every && step % to.every === 0 && step < steps;
  const pausesAfter = (step: number) => Boolean(evaluatesAfter(step) || savesAfter(step));
  async function* requests(): AsyncGenerator<StepRequest, void> {
    for (let next = step + 1; next <= steps && !options.signal?.aborted; next++) {
      const microBatches = await nextStep(batches, next);
      if (!microBatches) return;
      const predictions = countPredictions(microBatches), learningRate = learningRateAt(rate, next);
      const request = { step: next, update: update + next - step, microBatches, predictions };
      yield { ...request, learningRate, lossScale: lossScale.scale };
    }
  }
  try {
    if (evaluation?.atStart) yield await evaluate();
    for await (const { request, outcome, seconds } of runAhead(engine, requests(), pausesAfter)) {
      const { predictions, lossScale: scale } = request, isTaken = outcome.isCommitted;
      const loss = meanLoss(outcome.losses, predictions);
      if (!isTaken) {
        assertScaled(prepared.schedule, prepared.lossScaling, lossScale, step + 1, loss);
      }
      lossScale = nextLossScale(prepared.lossScaling ?? 1, lossScale, isTaken);
      step++;
      ({ peakActivations, weights, memory } = outcome);
      if (isTaken) {
        update++;
        const tokensPerSecond = predictions / seconds;
        const gradNorm = meanNorm(outcome.updates);
        yield { type: "step", step, loss, gradNorm, tokensPerSecond, traces: outcome.traces };
      } else yield { type: "skip", step, loss, lossScale: scale, nextLossScale: lossScale.scale };
      if (evaluatesAfter(step)) yield await evaluate();
      if (savesAfter(step)) yield await save(await stateNow());
      if (options.signal && runtime !== "workers") await letSignalsIn();
    }
    const state = await stateNow();
    if (to) yield await save(state);
    yield {
      type: "end",
      isInterrupted: options.signal?.aborted === true && step < steps,
      device: prepared.device.name,
      choice: prepared.device,
      runtime,
      schedule: prepared.schedule.name,
      workers: prepared.schedule.workers,
      steps: step,
      seconds: (performance.now() - started) / 1000,
      peakActivations,
      weightsHeld: weights,
      memory,
      weightsHash: hashWeights(state.weights),
      checkpoint,
      weights: state.weights,
    };
  } finally {
    await batches.return?.();
    await engine.close();
  }
}

/** Where a run stands, as a checkpoint keeps it. */
interface Progress {
  /** Steps of the data that are done. */
  readonly step: number;
  /** Steps of the optimizer that were taken. */
  readonly update: number;
  readonly lossScale: LossScaleState;
}

function progressOf(
  resume: TrainOptions["resume"],
  lossScale: PreparedRun["lossScaling"] = 1,
): Progress {
  const step = resume?.step ?? 0;
  const kept = resume?.config?.["progress"] as Partial<Progress> | undefined;
  const state = lossScale === "dynamic" ? kept?.lossScale : undefined;
  return { step, update: kept?.update ?? step, lossScale: state ?? firstLossScale(lossScale) };
}

/**
 * Gives the event loop a whole turn where nothing else waits for it. Only a timer does: turns of
 * `setImmediate` can go by for a second before a signal is heard.
 */
const letSignalsIn = () => delay(0);

/** What helps a run whose numbers have left the floats. */
const REMEDY = "lower the learning rate, or resume from the last checkpoint";

/** The same, where the numbers have reached the weights before anybody could see them. */
const REMEDY_WHEN_LOST = "the weights are lost: resume from the last checkpoint";

/** A step that was not taken is an error, unless a loss scale may have been too high. */
function assertScaled(
  { updates }: Schedule,
  lossScale: PreparedRun["lossScaling"],
  { skipped }: LossScaleState,
  step: number,
  loss: number,
): void {
  if (lossScale !== undefined && skipped + 1 < SKIPS_MAX) return;
  const remedy = updates === "flush" ? REMEDY : REMEDY_WHEN_LOST;
  const before = skipped === 0 ? "" : ` after ${skipped} skipped steps`;
  throw new NonFiniteError(
    `Cannot take step ${step}${before}: loss and gradients must be finite, received loss ${loss}; ${remedy}`,
  );
}

function assertFinite({ weights, moments }: StageState, step: number): void {
  for (const [name, values] of [...weights, ...moments]) {
    const wrong = values.find((value) => !Number.isFinite(value));
    if (wrong === undefined) continue;
    throw new NonFiniteError(
      `Cannot keep step ${step}: weights and moments must be finite, received ${wrong} in "${name}"; ${REMEDY}`,
    );
  }
}

async function openEngine(prepared: PreparedRun): Promise<Engine> {
  const { runtime, schedule } = prepared, isolate = runtime === "workers" ? "worker" : "local";
  if (schedule.updates !== "flush") {
    if (runtime === "serial") return await openSerialAsync(prepared);
    // No step is ever committed by all workers, so there is none to go on from when one is lost.
    return await openAsyncPipeline(prepared, isolate);
  }
  if (runtime === "serial") return await openSerial(prepared);
  const open = (state: StageState) => openPipeline({ ...prepared, state }, isolate);
  return await openRecovering(open, prepared);
}

/** The micro-batches of each step after `done`; the last step may have fewer. */
async function* takeSteps(
  data: TrainOptions["data"],
  microBatches: number,
  done: number,
  dropLast: boolean,
): AsyncGenerator<Batch[], void> {
  let skip = done * microBatches, step: Batch[] = [];
  for await (const batch of data) {
    if (skip-- > 0) continue;
    step.push(batch);
    if (step.length < microBatches) continue;
    yield step;
    step = [];
  }
  if (step.length === 0) return;
  // An empty step says that what was left was dropped.
  yield dropLast ? [] : step;
}

/** The micro-batches of a step; none where the last, smaller step was dropped. */
async function nextStep(
  batches: AsyncGenerator<Batch[], void>,
  step: number,
): Promise<Batch[] | undefined> {
  const { value, done } = await batches.next();
  if (!done) return value.length > 0 ? value : undefined;
  throw new RangeError(
    `Cannot run step ${step}: the data must have micro-batches for every step, received too few`,
  );
}
