/**
 * `train()`: the training loop.
 *
 * @module
 */

import { delay } from "@std/async/delay";
import { type Batch, learningRateAt, type StageState } from "../../kernels/mod.ts";
import { lockFolder } from "../checkpoints/checkpoint_lock.ts";
import { openCheckpointWriter } from "../checkpoints/checkpoint_writer.ts";
import { endAll } from "./end_all.ts";
import { meanLoss, meanNorm } from "./engines/engine.ts";
import { nextLossScale } from "../commit/loss_scale.ts";
import { allSkipped, assertScaled } from "../commit/non_finite.ts";
import { openEngine } from "./engines/open_engine.ts";
import type { StepOutcome, StepRequest } from "../pipeline/protocol.ts";
import { WedgedError, WorkerLostError } from "./recovery/retries.ts";
import { type Progress, progressOf } from "./options/resumed.ts";
import { assertWritten } from "./run_journal.ts";
import { runAhead } from "./run_ahead.ts";
import { copyBatch, nextStep, takeSteps } from "./step_data.ts";
import type { TrainEvent } from "./train_event.ts";
import { prepareRun } from "./options/prepare_run.ts";
import type { TrainOptions } from "./options/train_options.ts";
import { hashWeights } from "../checkpoints/weights.ts";

export { NonFiniteError } from "../commit/non_finite.ts";

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
 * @throws {RangeError} when another run has the folder for checkpoints, before anything runs.
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
  using _folder = options.checkpoint && lockFolder(options.checkpoint.directory);
  const { steps, runtime, model, rate, predictionsOf } = prepared;
  yield { type: "plan", plan: prepared.plan };
  const started = performance.now();
  let { step, update, lossScale } = progressOf(options.resume, prepared.lossScaling);
  const batches = takeSteps(options.data, prepared.microBatches, step, options.dropLast ?? false);
  const engine = await openEngine(prepared);
  let peakActivations: readonly number[] = [], weights: readonly number[] = [];
  let memory: StepOutcome["memory"];
  const { checkpoint: to } = prepared;
  const evaluation = options.evaluation && copyEvaluation(options.evaluation);
  const first = { step, update };
  const writer = openCheckpointWriter(to, model.parameters, prepared.announce);
  const errors: unknown[] = [];
  const written = () => writer.ended().catch(() => {});
  const save = async (): Promise<StageState> => {
    const state = await engine.save(), isDynamic = prepared.lossScaling === "dynamic";
    // A scale that was given is an option of this run, no progress for the next.
    const progress: Partial<Progress> = { step, update, ...isDynamic && { lossScale } };
    writer.begin({ step, state, config: { ...to?.config, progress } });
    return state;
  };
  const countPredictions = (micro: readonly Batch[]) => {
    const count = micro.reduce((sum, batch) => sum + predictionsOf(batch), 0);
    if (count > 0 && count < Infinity) return count;
    throw new RangeError(
      `Cannot train: the model's predictions of a step must be a positive number, received ${count}`,
    );
  };
  const evaluate = async (): Promise<TrainEvent> => {
    const { batches } = evaluation!, losses = await engine.evaluate(batches);
    return { type: "evaluation", step, loss: meanLoss(losses, countPredictions(batches)) };
  };
  const evaluatesAfter = (step: number) => evaluation && step % evaluation.every === 0;
  const savesAfter = (step: number) => to?.every && step % to.every === 0 && step < steps;
  const pausesAfter = (step: number) => Boolean(evaluatesAfter(step) || savesAfter(step));
  const isToEnd = () => options.signal?.aborted || prepared.journal?.ended.aborted;
  async function* requests(): AsyncGenerator<StepRequest, void> {
    for (let next = step + 1; next <= steps && !isToEnd(); next++) {
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
      yield* await writer.soFar();
      if (evaluatesAfter(step)) yield await evaluate();
      if (savesAfter(step)) {
        yield* await writer.ended();
        await save();
      }
      if (options.signal && runtime !== "workers") await letSignalsIn();
    }
    yield* await writer.ended();
    const isInterrupted = options.signal?.aborted === true && step < steps;
    if (step > first.step && update === first.update && !isInterrupted) {
      throw allSkipped(step - first.step, prepared.lossScaling, lossScale);
    }
    const state = await save();
    yield* await writer.ended();
    assertWritten(prepared.journal, step, writer.newest);
    yield {
      type: "end",
      isInterrupted,
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
      checkpoint: writer.newest,
      weights: state.weights,
    };
  } catch (error) {
    errors.push(error);
    if (error instanceof WorkerLostError && error.lost.isWedged) {
      await written();
      errors[0] = new WedgedError(error.message, writer.newest);
    }
  } finally {
    // A checkpoint that has begun becomes whole, however the run ends.
    await endAll(errors, [written, engine.close, () => batches.return()]);
  }
  // What was done last is written down last.
  assertWritten(prepared.journal, step, writer.newest);
}

/** Held-out micro-batches are copied like others: they may share their buffers with the data. */
const copyEvaluation = (evaluation: NonNullable<TrainOptions["evaluation"]>) => ({
  ...evaluation,
  batches: evaluation.batches.map(copyBatch),
});

/**
 * Gives the event loop a whole turn where nothing else waits for it. Only a timer does: turns of
 * `setImmediate` can go by for a second before a signal is heard.
 */
const letSignalsIn = () => delay(0);
