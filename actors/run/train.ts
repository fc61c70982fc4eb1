/**
 * `train()`: the options that a script leaves to the run, and the training loop.
 *
 * @module
 */

import { assertInput, refusal } from "../../kernels/internal.ts";
import { fileURLToPath } from "node:url";
import { locateCheckpoint } from "../checkpoints/read.ts";
import { encodeConfig } from "../checkpoints/write.ts";
import type { Model } from "../../kernels/mod.ts";
import {
  buildModel,
  checkDataSizes,
  isSource,
  scriptModelOptions,
} from "../options/model_definition.ts";
import { flagName, type Options } from "../options/option.ts";
import { readOptions, TRAIN } from "../options/train_table.ts";
import { refuseBranch, runFolder, runToResume } from "../run_folder/read.ts";
import type { TrainEvent } from "../options/train_events.ts";
import { claimFolder, lockFolder } from "../checkpoints/lock.ts";
import type { Metrics, RunOptions, TrainOptions } from "../options/train_options.ts";
import { checkRunFiles, type RunFacts, RunWriter } from "../run_folder/write.ts";
import { watchHeap } from "../runtime/world.ts";
import { FinishedMarker } from "./checkpoint_writer.ts";
import { RunData } from "./data.ts";
import { metricsOf, openTrainTelemetry } from "./metrics.ts";
import { Jobs, withJobs } from "./jobs.ts";
import { launchedRanks } from "../transports/mpi/library.ts";
import { abandonJob, checkShared, follow, isFollower, lead } from "./mpi_run.ts";
import { gatherHosts } from "./nats_run.ts";
import { optionFacts, prepareRun } from "./prepare.ts";
import { WedgedError, WorkerLostError } from "./recovery.ts";
import { assertWritten, openBlackBox } from "./run_journal.ts";
import type { PreparedRun } from "./events.ts";
import { openRun } from "./training_run.ts";

/**
 * Calls functions one after the other, even if some of them fail.
 *
 * @param errors earlier errors, in order.
 * @throws the first error of all, with the later ones as its `suppressed`.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const ended: string[] = [];
 * const first = new Error("the run failed"), second = new Error("the file was gone");
 * const ending = closeAll([first], [() => Promise.reject(second), () => void ended.push("workers")]);
 * await assert.rejects(ending, (error) => error === first);
 * assert.deepEqual(Object.assign({}, first), { suppressed: [second] });
 * assert.deepEqual(ended, ["workers"]);
 * ```
 */
export async function closeAll(
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
 * With `pipedream` and `pipedream-2bw` the pipeline drains before every evaluation and checkpoint, and
 * later steps start with the newest weights only. So a resumed run has the bits of the run that wrote
 * the checkpoint, but a run with other pauses has other bits.
 *
 * @throws {RangeError} or {@linkcode TypeError} when an option cannot be served, before anything runs.
 * @throws {RangeError} when another run uses the folder of checkpoints, or the folder contains its
 * checkpoints and neither `resume` nor `checkpoint.overwrite` is given, before anything runs.
 * @throws {NonFiniteError} when a loss or gradient is not finite: with flushes the weights of the
 * previous step stay; or when a weight to save is not finite: earlier checkpoints stay. If the data is
 * not finite, the error names the field, the micro-batch and the row.
 * @throws {RangeError} when the data ends before the run.
 * @throws {Error} when the data throws: an error of the same built-in class that names the step, with
 * the data's own as its `cause`.
 * @throws {TypeError} when the model cannot read a micro-batch: before anything runs for the first step
 * and for held-out micro-batches, otherwise in its step. Earlier checkpoints stay.
 *
 * @example Your own model, split over two workers
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
  yield* trainAs(options);
}

/**
 * Trains a model as {@linkcode train} does.
 *
 * @param facts facts for `run.json` in the folder of the run. Default: those of a script.
 */
export async function* trainAs(
  options: TrainOptions,
  facts?: RunFacts,
): AsyncGenerator<TrainEvent, void> {
  // A value that is not an object is refused with all options.
  if (options?.runtime !== "mpi" || !launchedRanks()) {
    return yield* trainHere(await placeRun(options), facts);
  }
  const mpi = options.mpi ?? {}, shared = optionFacts(options);
  if (isFollower()) return void await follow(mpi, shared);
  await using _job = await lead(mpi, shared);
  const placed = await placeRun(options), { checkpoint } = placed;
  yield* trainHere(placed, facts, checkpoint && new FinishedMarker(checkpoint));
}

/** Milliseconds between two looks at the lock of the checkpoint folder. */
const LOOK_MS = 1000;

/** Trains as a process that leads its run. */
async function* trainHere(
  given: RunOptions,
  facts?: RunFacts,
  marker?: FinishedMarker,
): AsyncGenerator<TrainEvent, void> {
  const isInterruptible = given.out !== undefined && given.signal === undefined;
  using interrupt = isInterruptible ? onInterrupt(given.announce ?? (() => {})) : undefined;
  const options = interrupt ? { ...given, signal: interrupt.signal } : given;
  const prepared = await prepareRun(options);
  const box = openBlackBox({ ...options, ...prepared }, facts?.repeated);
  await using data = prepared.jobs ? new Jobs(prepared) : new RunData(prepared);
  const { checkpoint, resume, weights } = options, { announce } = prepared;
  yield* data.watch.until(data.begin());
  using folder = checkpoint && lockFolder(checkpoint.directory);
  if (checkpoint) await claimFolder(checkpoint.directory, { ...checkpoint, resume, weights });
  await marker?.begin();
  await checkShared(prepared);
  using files = openFiles(options, prepared, facts);
  await files?.begin(prepared.plan);
  yield { type: "plan", plan: prepared.plan };
  using _heap = watchHeap();
  using progress = options.progress
    ? (await import("./terminal.ts")).openRunProgress(options.steps)
    : undefined;
  await using lent = await gatherHosts(prepared);
  const run = await openRun(
    { ...prepared, box, ...lent && { transport: lent.transport, lent } },
    data,
  );
  const closeData = () => data[Symbol.asyncDispose]();
  const trackers = [
    files && ((metrics: Metrics) => files.metrics(metrics)),
    options.metrics,
    openTrainTelemetry(),
  ].filter((track) => track !== undefined);
  const errors: unknown[] = [];
  let looked = performance.now();
  try {
    // The generator has nothing to close, so the loop may leave it while it waits.
    for (const events = run.events();;) {
      const { value: event, done } = yield* data.watch.until(events.next());
      if (done) break;
      marker?.see(event);
      const metrics = trackers.length > 0 && metricsOf(run, event);
      if (metrics) { for (const track of trackers) await track(metrics); }
      const now = performance.now();
      if (event.type === "checkpoint" || now - looked > LOOK_MS) {
        folder?.renew(announce);
        looked = now;
      }
      await files?.see(event);
      progress?.(event);
      await callBack(options, event);
      yield event;
    }
  } catch (error) {
    if (error instanceof WorkerLostError && error.lost.isWedged) {
      await run.written();
      errors.push(new WedgedError(error.message, run.newest));
      abandonJob();
    } else errors.push(error);
  } finally {
    // A checkpoint that has begun is completed, regardless of how the run ends.
    const closing = [() => run.written(), () => run.close(), closeData, () => marker?.end()];
    await closeAll(errors, closing);
    box?.remove();
  }
  // Reported last, because closing writes to the journal.
  assertWritten(prepared.journal, run.progress.step, run.newest);
}

/** Calls the callback of an event, if there is one. */
async function callBack(options: RunOptions, event: TrainEvent): Promise<void> {
  if (event.type === "step") await options.onStep?.(event);
  else if (event.type === "evaluation") await options.onEvaluation?.(event);
  else if (event.type === "checkpoint") await options.onCheckpoint?.(event);
}

/** Opens the writer of the run's folder, if it has one. */
function openFiles(
  options: RunOptions,
  { schedule, announce }: PreparedRun,
  facts: RunFacts = scriptFacts(options),
): RunWriter | undefined {
  const { out: directory, resume, checkpoint } = options;
  if (directory === undefined) return undefined;
  const { overwrite } = checkpoint ?? {};
  return new RunWriter({ directory, facts, schedule, resume, overwrite, announce });
}

/** Options of a run with data, which are read before that is used. */
type DataOptions = TrainOptions & Pick<RunOptions, "data">;

/**
 * Builds a model from its definition, counts the steps of epochs, finds the checkpoint that `resume`
 * names, and sets the folder of checkpoints to `out`.
 *
 * @throws {TypeError} {@linkcode RangeError} {@linkcode SyntaxError} in one sentence for the user.
 */
async function placeRun(given: TrainOptions): Promise<RunOptions> {
  const options = given?.jobs ? withJobs(given) : given as DataOptions;
  const { resume: named, checkpoint, announce, out: folder } = readOptions(options);
  const { epochs: _, ...others } = options;
  const kept = keptData(options), own = checkpoint?.config ?? {};
  const config = kept ? { ...kept, ...encodeConfig(own) } : own;
  const sized = {
    ...{ ...others, steps: stepsOf(options), model: await modelOf(options) },
    ...kept && checkpoint && { checkpoint: { ...checkpoint, config } },
  };
  if (typeof named !== "string" && folder === undefined) return sized as RunOptions;
  const { overwrite, directory } = checkpoint ?? {};
  let resume: RunOptions["resume"], out = folder;
  if (typeof named === "string") {
    const path = runToResume(named, out);
    if (directory === undefined) out ??= runFolder(path);
    resume = await locateCheckpoint(path, announce);
    if (!resume) announce(`There is no checkpoint in ${path}: starting at step 1.`);
    else if (!overwrite) await refuseBranch(path, resume, out ?? directory!);
  } else resume = named;
  if (out === undefined) return { ...sized, resume } as RunOptions;
  checkRunFiles({ directory: out, resume, overwrite });
  return { ...sized, out, resume, checkpoint: { ...checkpoint, config, directory: out } };
}

/** Returns the steps of a run: as given, or the whole steps of its epochs. */
function stepsOf({ steps, epochs, data, microBatches = 4, replicas = 1 }: DataOptions): number {
  if (epochs === undefined) return steps!;
  const { length } = isSource(data) ? data : {}, ofStep = microBatches * replicas;
  // A length such as 49 / 3 is rounded, which must not cost a step.
  const count = Math.floor(epochs * (length ?? 0) / ofStep * (1 + 2 ** -50));
  const found = `${epochs} of ${length} micro-batches`, must = "epochs must have at least one step";
  const received = length === undefined ? "data without a length beside from()" : found;
  assertInput(count >= 1, "train", `${must}, of ${ofStep} micro-batches`, received);
  return count;
}

/** Returns the model of a run, built for the samples of its data. */
async function modelOf({ model, data }: DataOptions): Promise<Model> {
  if (!("build" in model)) return model;
  const { samples, sizes } = isSource(data) ? data : {};
  if (samples === undefined) {
    const received = isSource(data) ? "no samples" : "an iterable";
    const must = "its data must have from and samples";
    throw refusal(`train ${model.name}`, must, received, TypeError);
  }
  checkDataSizes(`train ${model.name}`, model, sizes);
  return await buildModel(model, scriptModelOptions(samples, sizes));
}

/** Returns what checkpoints keep of the data of a definition, for `loadModel()`. */
function keptData({ model, data }: DataOptions): Readonly<Record<string, unknown>> | undefined {
  if (!("build" in model) || !isSource(data)) return undefined;
  const { sizes = {}, classes = {} } = data;
  return { architecture: model.name, sizes, classes };
}

/** Returns the facts of a run of a script for its `run.json`. */
function scriptFacts(options: RunOptions): RunFacts {
  const { kind: optimizer = "adamw" } = options.optimizer ?? {}, { mainModule = "a worker" } = Deno;
  return {
    flags: {
      ...valuesOfFlags(TRAIN, readOptions(options)),
      optimizer,
      ...options.jobs && { jobs: options.jobs.map(({ name }) => name) },
    },
    command: [],
    script: mainModule.startsWith("file:") ? fileURLToPath(mainModule) : mainModule,
    data: { name: "script" },
  };
}

/** Returns the values of options by the names of their flags, without paths. */
function valuesOfFlags(table: Options, options: object): Readonly<Record<string, unknown>> {
  const given = options as Readonly<Record<string, unknown>>;
  const values = Object.entries(table).map(([option, { flag, fields }]) => {
    const value = given[option];
    if (value === undefined || typeof value === "function") return {};
    if (fields && typeof value === "object") return valuesOfFlags(fields, value!);
    if (option !== "learningRate" && (!flag || flag.isPath)) return {};
    const name = flag ? flagName(option, flag) : "lr";
    if (typeof value === "number") return { [name]: value / (flag?.factor ?? 1) };
    return { [name]: option === "schedule" ? nameOf(value) : value };
  });
  return Object.assign({}, ...values);
}

const nameOf = (schedule: unknown) =>
  typeof schedule === "string" ? schedule : (schedule as { readonly name: string }).name;

/** Milliseconds within which signals count as one: a terminal and a parent may both send it. */
const SAME_SIGNAL_MS = 1000;

/**
 * Returns a signal that SIGINT or SIGTERM aborts, until it is disposed of; the next one ends the
 * program.
 */
function onInterrupt(announce: (line: string) => void) {
  const controller = new AbortController();
  const names: Deno.Signal[] = Deno.build.os === "windows" ? ["SIGINT"] : ["SIGINT", "SIGTERM"];
  let first: number | undefined;
  const interrupt = () => {
    first ??= performance.now();
    if (performance.now() - first > SAME_SIGNAL_MS) Deno.exit(130);
    if (controller.signal.aborted) return;
    controller.abort();
    announce("Finishing the step under way; press Ctrl-C again to end immediately.");
  };
  for (const name of names) Deno.addSignalListener(name, interrupt);
  return {
    signal: controller.signal,
    [Symbol.dispose]() {
      for (const name of names) Deno.removeSignalListener(name, interrupt);
    },
  };
}
