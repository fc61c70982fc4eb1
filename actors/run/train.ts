/**
 * `train()`: the training loop.
 *
 * @module
 */

import { delay } from "@std/async/delay";
import { claimFolder, lockFolder } from "../checkpoints/lock.ts";
import type { TrainOptions } from "../options/train_options.ts";
import { watchHeap } from "../runtime/world.ts";
import { type FinishMark, finishMark } from "./checkpoint_writer.ts";
import { openRunData } from "./data.ts";
import type { TrainEvent } from "./events.ts";
import { metricsOf, openTrainTelemetry } from "./metrics.ts";
import { launchedRanks } from "../transports/mpi/library.ts";
import { abandonJob, checkShared, follow, isFollower, lead } from "./mpi_run.ts";
import { optionFacts, prepareRun } from "./prepare.ts";
import { WedgedError, WorkerLostError } from "./recovery.ts";
import { assertWritten } from "./run_journal.ts";
import {
  assertTrained,
  endEvent,
  endStep,
  evaluate,
  evaluatesAfter,
  lastWeights,
  lostEvents,
  openRun,
  runAhead,
  save,
  savesAfter,
  stepRequests,
  type TrainingRun,
} from "./training_run.ts";

/**
 * Ends one thing after the other, also when some of them fail.
 *
 * @param errors what has failed before, the first of it first.
 * @throws the first error of all; the later ones are its `suppressed`.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const ended: string[] = [];
 * const first = new Error("the run failed"), second = new Error("the file was gone");
 * const ending = endAll([first], [() => Promise.reject(second), () => void ended.push("workers")]);
 * await assert.rejects(ending, (error) => error === first);
 * assert.deepEqual(Object.assign({}, first), { suppressed: [second] });
 * assert.deepEqual(ended, ["workers"]);
 * ```
 */
export async function endAll(
  errors: readonly unknown[],
  ends: readonly (() => unknown)[],
): Promise<void> {
  const all = [...errors];
  for (const end of ends) {
    try {
      await end();
    } catch (error) {
      all.push(error);
    }
  }
  if (all.length === 0) return;
  const [first, ...suppressed] = all;
  if (suppressed.length > 0 && first instanceof Error && Object.isExtensible(first)) {
    Object.assign(first, { suppressed });
  }
  throw first;
}

export { NonFiniteError } from "../gradients/commit.ts";

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
 * @throws {RangeError} when another run has the folder for checkpoints, or has left some there and
 * neither `resume` nor `checkpoint.overwrite` says what becomes of them, before anything runs.
 * @throws {NonFiniteError} when a loss or gradient is not finite: the weights of the step before
 * stay, but not without flushes; or when a weight that would be saved is not: the checkpoints before
 * it stay. Where the data is not finite, the error names field, micro-batch and row.
 * @throws {RangeError} when the data ends before the run.
 * @throws {Error} when the data throws: an error of the same built-in class that names the step, with
 * the data's own as its `cause`.
 * @throws {TypeError} when a micro-batch is not what the model reads; of the first step, and of those
 * held out, before anything runs. Checkpoints of the steps before it stay.
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
  // What is no object is refused where all options are.
  if (options?.runtime !== "mpi" || !launchedRanks()) return yield* trainHere(options);
  const mpi = options.mpi ?? {}, facts = optionFacts(options);
  if (isFollower()) return void await follow(mpi, facts);
  await using _job = await lead(mpi, facts);
  yield* trainHere(options, finishMark(options));
}

/** Trains as a process that leads its run. */
async function* trainHere(
  options: TrainOptions,
  mark?: FinishMark,
): AsyncGenerator<TrainEvent, void> {
  const prepared = await prepareRun(options);
  await using data = openRunData(options, prepared);
  const { checkpoint, resume, weights } = options;
  yield* data.watch.until(data.begin());
  using folder = checkpoint && lockFolder(checkpoint.directory);
  if (checkpoint) await claimFolder(checkpoint.directory, { ...checkpoint, resume, weights });
  await mark?.begin();
  await checkShared(prepared);
  yield { type: "plan", plan: prepared.plan };
  using _heap = watchHeap();
  const run = await openRun(options, prepared, data), { engine, writer } = run;
  const newest = () => writer?.newest?.path ?? null;
  const closeData = () => data[Symbol.asyncDispose]();
  const written = async () => void await writer?.ended().catch(() => {});
  const trackers = [options.metrics, openTrainTelemetry()].filter((track) => track !== undefined);
  const errors: unknown[] = [];
  try {
    // The generator has nothing to close, so the loop may leave it while it waits.
    for (const events = trainToEnd(run);;) {
      const { value: event, done } = yield* data.watch.until(events.next());
      if (done) break;
      mark?.see(event);
      const metrics = trackers.length > 0 && metricsOf(run, event);
      if (metrics) trackers.forEach((track) => track(metrics));
      folder?.renew(prepared.announce);
      yield event;
    }
  } catch (error) {
    if (error instanceof WorkerLostError && error.lost.isWedged) {
      await written();
      errors.push(new WedgedError(error.message, newest()));
      abandonJob();
    } else errors.push(error);
  } finally {
    // A checkpoint that has begun becomes whole, however the run ends.
    await endAll(errors, [written, () => engine.close(), closeData, () => mark?.end()]);
  }
  // What was done last is written down last.
  assertWritten(prepared.journal, run.progress.step, newest());
}

/** The training loop: steps, with evaluations and checkpoints between them; then the end. */
async function* trainToEnd(run: TrainingRun): AsyncGenerator<TrainEvent, void> {
  const { prepared, engine, writer } = run;
  const pausesAfter = (step: number) => evaluatesAfter(run, step) || savesAfter(run, step);
  if (run.evaluation?.atStart) yield await evaluate(run, false);
  for await (const taken of runAhead(engine, stepRequests(run), pausesAfter)) {
    const event = endStep(run, taken);
    yield* lostEvents(run);
    yield event;
    if (writer) yield* await writer.soFar();
    const { step } = run.progress;
    if (evaluatesAfter(run, step)) yield await evaluate(run);
    if (writer && savesAfter(run, step)) {
      yield* await writer.ended();
      await save(run, writer);
    }
    if (run.signal && ["local", "serial"].includes(prepared.runtime)) await letSignalsIn();
  }
  if (writer) yield* await writer.ended();
  assertTrained(run);
  // Once more where the folder is removed meanwhile; a second time that is an error.
  for (let written: TrainEvent[] = []; writer && written.length === 0; yield* written) {
    await save(run, writer);
    written = await writer.ended();
  }
  const last = await lastWeights(run), event = endEvent(run, last);
  assertWritten(prepared.journal, run.progress.step, writer?.newest?.path ?? null);
  // What is done with the weights needs room of its own.
  await engine.close();
  yield event;
}

/**
 * Gives the event loop a whole turn where nothing else waits for it. Only a timer does: turns of
 * `setImmediate` can go by for a second before a signal is heard.
 */
const letSignalsIn = () => delay(0);
