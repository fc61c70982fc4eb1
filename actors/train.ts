/**
 * `train()`: the training loop.
 *
 * @module
 */

import { delay } from "@std/async/delay";
import { type Batch, learningRateAt, type StageState } from "../kernels/mod.ts";
import { writeCheckpoint } from "./checkpoint.ts";
import { type Engine, gradientNorm, meanLoss } from "./engine.ts";
import { openPipeline } from "./pipeline.ts";
import { openSerial } from "./serial.ts";
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
 * @throws {RangeError} or {@linkcode TypeError} when an option cannot be served, before anything runs.
 * @throws {NonFiniteError} when a loss or gradient is not finite: the weights of the step before
 * stay; or when a weight that would be saved is not: the checkpoints before it stay.
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
  const { steps, microBatches, runtime, model, rate } = prepared;
  yield { type: "plan", plan: prepared.plan };
  const started = performance.now();
  const first = (options.resume?.step ?? 0) + 1;
  const batches = takeSteps(options.data, microBatches, first);
  const engine = await openEngine(prepared);
  let checkpoint: string | null = null, peakActivations: readonly number[] = [];
  let step = first - 1;
  const stateNow = async (): Promise<StageState> => {
    const state = await engine.save();
    assertFinite(state, step);
    return state;
  };
  const save = async (state: StageState): Promise<TrainEvent> => {
    const { directory, config } = to!, { parameters } = model;
    checkpoint = await writeCheckpoint(directory, { step, state, parameters, config });
    return { type: "checkpoint", step, path: checkpoint };
  };
  const { evaluation, checkpoint: to } = options;
  const evaluate = async (): Promise<TrainEvent> => {
    const losses = await engine.evaluate(evaluation!.batches);
    return { type: "evaluation", step, loss: meanLoss(losses, model.predictions) };
  };
  try {
    if (evaluation?.atStart) yield await evaluate();
    while (step < steps && !options.signal?.aborted) {
      const micro = await nextStep(batches, step + 1);
      const begun = performance.now();
      const outcome = await engine.step(step + 1, micro, learningRateAt(rate, step + 1));
      const loss = meanLoss(outcome.losses, model.predictions);
      const gradNorm = gradientNorm(outcome.squares);
      if (!outcome.isCommitted) throw notTaken(step + 1, loss, gradNorm);
      step++;
      peakActivations = outcome.peakActivations;
      const seconds = (performance.now() - begun) / 1000;
      const tokensPerSecond = model.predictions * microBatches / seconds;
      yield { type: "step", step, loss, gradNorm, tokensPerSecond };
      if (evaluation && step % evaluation.every === 0) yield await evaluate();
      if (to?.every && step % to.every === 0 && step < steps) yield await save(await stateNow());
      if (options.signal && runtime !== "workers") await letSignalsIn();
    }
    const state = await stateNow();
    if (to) yield await save(state);
    yield {
      type: "end",
      isInterrupted: step < steps,
      device: prepared.device.name,
      choice: prepared.device,
      runtime,
      schedule: prepared.schedule.name,
      workers: prepared.schedule.workers,
      steps: step,
      seconds: (performance.now() - started) / 1000,
      peakActivations,
      weightsHash: hashWeights(state.weights),
      checkpoint,
      weights: state.weights,
    };
  } finally {
    await batches.return?.();
    await engine.close();
  }
}

/**
 * Gives the event loop a whole turn where nothing else waits for it. Only a timer does: turns of
 * `setImmediate` can go by for a second before a signal is heard.
 */
const letSignalsIn = () => delay(0);

/** What helps a run whose numbers have left the floats. */
const REMEDY = "lower the learning rate, or resume from the last checkpoint";

const notTaken = (step: number, loss: number, gradNorm: number) =>
  new NonFiniteError(
    `Cannot take step ${step}: loss and gradient must be finite, received loss ${loss} and gradient norm ${gradNorm}; ${REMEDY}`,
  );

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
  const { runtime } = prepared;
  if (runtime === "serial") return await openSerial(prepared);
  return await openPipeline(prepared, runtime === "workers" ? "worker" : "local");
}

/** The micro-batches of each step from step `first` on. */
async function* takeSteps(
  data: TrainOptions["data"],
  microBatches: number,
  first: number,
): AsyncGenerator<Batch[], void> {
  let skip = (first - 1) * microBatches, step: Batch[] = [];
  for await (const batch of data) {
    if (skip-- > 0) continue;
    step.push(batch);
    if (step.length < microBatches) continue;
    yield step;
    step = [];
  }
}

async function nextStep(batches: AsyncGenerator<Batch[], void>, step: number): Promise<Batch[]> {
  const { value, done } = await batches.next();
  if (!done) return value;
  throw new RangeError(
    `Cannot run step ${step}: the data must have micro-batches for every step, received too few`,
  );
}
