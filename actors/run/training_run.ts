/**
 * A training run under way: what it is made of, where it stands, and what brings it on.
 *
 * @module
 */

import { createHash } from "node:crypto";
import type { Batch } from "../../kernels/mod.ts";
import { elementCount, hasThreads } from "../../kernels/internal.ts";
import { bytesOf, hashWeights } from "../checkpoints/format.ts";
import {
  type FileKind,
  type HeldState,
  readPieces,
  readTensors,
  type TensorSource,
} from "../checkpoints/tensors.ts";
import {
  allSkipped,
  assertFiniteData,
  assertScaled,
  meanLoss,
  meanNorm,
} from "../gradients/commit.ts";
import type { TrainOptions } from "../options/train_options.ts";
import type { WorkerLost } from "../pipeline/protocol.ts";
import type { StepOutcome, StepRequest } from "../pipeline/step.ts";
import { type CheckpointWriter, finiteOnly, openCheckpointWriter } from "./checkpoint_writer.ts";
import type { RunData } from "./data.ts";
import { adapterNames, computedOn } from "./devices.ts";
import type { Engine } from "./engine.ts";
import {
  firstProgress,
  keptProgress,
  nextBest,
  nextProgress,
  type Progress,
  type TrainEvent,
} from "./events.ts";
import { openEngine } from "./pipeline.ts";

import type { Recovery } from "./recovery.ts";
import type { PreparedRun } from "./prepared_run.ts";

/** A step that has been taken. */
interface TakenStep {
  readonly request: StepRequest;
  readonly outcome: StepOutcome;
  /** Time from its beginning, or the end of the step before if that came later, to its end. */
  readonly seconds: number;
}

/**
 * Takes the steps that are requested. A request is asked for when the engine has room for its step:
 * of an engine that does not run ahead, when whoever reads has done with the step before.
 *
 * @param pausesAfter whether a step must have ended before the next begins, as before a checkpoint;
 * the last one always has.
 */
export async function* runAhead(
  engine: Pick<Engine, "step" | "ahead" | "drain">,
  requests: AsyncIterable<StepRequest>,
  pausesAfter: (step: number) => boolean,
): AsyncGenerator<TakenStep, void> {
  const { ahead } = engine, begun: ReturnType<typeof begin>[] = [];
  let lastEnd = 0;
  const begin = (request: StepRequest) => {
    const began = performance.now();
    const ending = engine.step(request).then((outcome) => ({ outcome, end: performance.now() }));
    // A failure is met in order, when the outcome is asked for.
    ending.catch(() => {});
    return { request, began, ending };
  };
  const oldest = async (): Promise<TakenStep> => {
    const { request, began, ending } = begun.shift()!, { outcome, end } = await ending;
    const seconds = (end - Math.max(began, lastEnd)) / 1000;
    lastEnd = end;
    return { request, outcome, seconds };
  };
  for await (const request of requests) {
    begun.push(begin(request));
    if (ahead === 0) await begun[0]!.ending;
    const isPause = pausesAfter(request.step);
    if (isPause) await engine.drain();
    while (begun.length > (isPause ? 0 : ahead)) yield await oldest();
  }
  await engine.drain();
  while (begun.length > 0) yield await oldest();
}

/** What workers held at the most, each its own. */
type Held = Pick<
  Extract<TrainEvent, { type: "end" }>,
  "peakActivations" | "weightsHeld" | "memory"
>;

/** A run under way. */
export interface TrainingRun {
  /** What it was made from. */
  readonly prepared: PreparedRun;
  /** Takes its steps. */
  readonly engine: Recovery;
  /** The micro-batches of each step. */
  readonly data: RunData;
  /** Writes its checkpoints, where there are to be some. */
  readonly writer: CheckpointWriter | undefined;
  /** Held-out micro-batches, and after how many steps they are evaluated. */
  readonly evaluation: TrainOptions["evaluation"];
  /** Ends it early. */
  readonly signal: AbortSignal | undefined;
  /** When it began, by `performance.now()`. */
  readonly began: number;
  /** Where it began. */
  readonly first: Progress;
  /** Where it stands. */
  progress: Progress;
  /** What its workers held in the last step. */
  held: Held;
  /** Workers that were lost since the last step. */
  readonly lost: Pick<FailureEvent, "actor" | "reason" | "time">[];
}

type FailureEvent = Extract<TrainEvent, { type: "failure" }>;

/**
 * Opens the engine of a run, and what else it needs.
 *
 * @throws {WorkerLostError} when its workers cannot be started.
 */
export async function openRun(
  options: TrainOptions,
  prepared: PreparedRun,
  data: RunData,
): Promise<TrainingRun> {
  const began = performance.now();
  const { checkpoint, announce, lossScaling } = prepared;
  const first = firstProgress(options.resume, lossScaling);
  const evaluation = options.evaluation && { ...options.evaluation, batches: data.heldOut };
  const lost: TrainingRun["lost"] = [];
  const onLost = ({ worker: actor, message: reason }: WorkerLost) =>
    void lost.push({ actor, reason, time: Date.now() });
  return {
    prepared,
    engine: await openEngine(prepared, onLost),
    data,
    writer: checkpoint && openCheckpointWriter(checkpoint, announce),
    evaluation,
    signal: options.signal,
    began,
    first,
    progress: first,
    held: { peakActivations: [], weightsHeld: [], memory: undefined },
    lost,
  };
}

/** The steps that are still to be taken, until the last, or until the run is to end. */
export async function* stepRequests(run: TrainingRun): AsyncGenerator<StepRequest, void> {
  const { steps, rate, journal } = run.prepared;
  const isToEnd = () => run.signal?.aborted || journal?.ended.aborted || isOutOfPatience(run);
  for (let next = run.progress.step + 1; next <= steps && !isToEnd(); next++) {
    const microBatches = await run.data.next();
    if (!microBatches) return;
    const { step, update, lossScale } = run.progress;
    yield {
      step: next,
      // Some of the steps before it may not have ended.
      update: update + next - step,
      microBatches,
      predictions: countPredictions(run, microBatches),
      learningRate: rate(next),
      lossScale: lossScale.scale,
    };
  }
}

function countPredictions({ prepared }: TrainingRun, microBatches: readonly Batch[]): number {
  const count = microBatches.reduce((sum, batch) => sum + prepared.predictionsOf(batch), 0);
  if (count > 0 && count < Infinity) return count;
  throw new RangeError(
    `Cannot train: the model's predictions of a step must be a positive number, received ${count}`,
  );
}

/** Whether held-out micro-batches are evaluated after a step. */
export function evaluatesAfter({ evaluation }: TrainingRun, step: number): boolean {
  return evaluation !== undefined && step % evaluation.every === 0;
}

/** Whether a checkpoint is written after a step; one is after the last in any case. */
export function savesAfter(
  { prepared: { checkpoint, steps }, progress: { best } }: TrainingRun,
  step: number,
): boolean {
  const { every, keepBest } = checkpoint ?? {};
  const isDue = every !== undefined && step % every === 0;
  return (isDue || keepBest === true && best?.step === step) && step < steps;
}

/**
 * A step has been taken, or was skipped: the run stands one further.
 *
 * @throws {NonFiniteError} when it was not taken and the loss scale cannot be why.
 */
export function endStep(run: TrainingRun, { request, outcome, seconds }: TakenStep): TrainEvent {
  const { schedule, lossScaling, model } = run.prepared, { lossScale } = run.progress;
  const { predictions } = request, { isCommitted, updates, traces } = outcome;
  const step = run.progress.step + 1, loss = meanLoss(outcome.losses, predictions);
  if (!isCommitted) {
    const what = `take step ${step}: loss and gradients`;
    const how = { isScaled: lossScaling !== undefined, isLost: schedule.updates !== "flush" };
    assertFiniteData(model, request.microBatches, what, loss, how);
    assertScaled(schedule, lossScaling, lossScale, step, loss);
  }
  const taken = { isTaken: isCommitted, predictions };
  run.progress = nextProgress(run.progress, taken, lossScaling);
  const { peakActivations, weights: weightsHeld, memory } = outcome;
  run.held = { peakActivations, weightsHeld, memory };
  const { learningRate, lossScale: scale } = request;
  const common = { step, loss, learningRate, lossScale: scale, predictions, seconds };
  if (!isCommitted) {
    return { type: "skip", ...common, nextLossScale: run.progress.lossScale.scale, traces };
  }
  const gradNorm = meanNorm(updates), tokensPerSecond = predictions / seconds;
  return { type: "step", ...common, gradNorm, tokensPerSecond, traces };
}

/** The workers that were lost since it was asked last, as events of the step just taken. */
export const lostEvents = ({ lost, progress: { step } }: TrainingRun): TrainEvent[] =>
  lost.splice(0).map((one) => ({ type: "failure", step, ...one }));

/**
 * Evaluates the held-out micro-batches with the weights of now.
 *
 * @param isCounted whether this may be the best: not before the first step, as the weights are those
 * that the run begins with, and a run that goes on has evaluated them before.
 */
export async function evaluate(run: TrainingRun, isCounted = true): Promise<TrainEvent> {
  const { batches } = run.evaluation!, { step } = run.progress;
  const losses = await run.engine.evaluate(batches);
  const loss = meanLoss(losses, countPredictions(run, batches));
  if (!Number.isFinite(loss)) {
    assertFiniteData(run.prepared.model, batches, `evaluate after step ${step}: the loss`, loss);
  }
  if (!isCounted || !asksForBest(run)) return { type: "evaluation", step, loss };
  const best = nextBest(run.progress.best, { step, loss });
  run.progress = { ...run.progress, best };
  return { type: "evaluation", step, loss, ...best && { best } };
}

/** Whether the run asks which evaluation is the best. */
const asksForBest = ({ evaluation, prepared: { checkpoint } }: TrainingRun): boolean =>
  evaluation !== undefined && (checkpoint?.keepBest === true || evaluation.patience !== undefined);

/** Whether the last evaluations were no better than the best, as many as are waited for. */
function isOutOfPatience({ evaluation, progress: { best } }: TrainingRun): boolean {
  return evaluation?.patience !== undefined && (best?.since ?? 0) >= evaluation.patience;
}

/**
 * Begins to write a checkpoint; the one before must have been waited for. Where workers write their
 * shards, it is written in the end.
 */
export async function save(
  { prepared, engine, progress, data }: TrainingRun,
  writer: CheckpointWriter,
): Promise<void> {
  const { step } = progress, { checkpoint, devices, lossScaling } = prepared;
  const config = {
    ...checkpoint?.config,
    progress: {
      ...keptProgress(progress, lossScaling),
      ...data.state !== undefined && { data: data.state },
    },
    computedOn: computedOn(devices),
  };
  const best = checkpoint?.keepBest ? progress.best : undefined;
  if (!prepared.isSharded) {
    return await engine.read((state, kept) => writer.begin({ step, state, config, best }, kept));
  }
  await engine.checkpoint((opened) =>
    writer.shards({ step, config, best }, (folder) => opened.write!(folder, step))
  );
}

/** The weights in which a run ends. */
interface LastWeights {
  /** Of all of them. */
  readonly hash: string;
  /** Where they lie; undefined where nobody has kept them. */
  readonly weights: ReadonlyMap<string, TensorSource> | undefined;
}

/**
 * The weights of now: those of the checkpoint just written, else of the workers.
 *
 * @throws {NonFiniteError} when they, or their moments, are not finite.
 */
export async function lastWeights(
  { prepared, engine, writer, progress: { step } }: TrainingRun,
): Promise<LastWeights> {
  if (writer) {
    const { weights } = writer.newest!.state;
    return { hash: hashWeights(weights), weights };
  }
  return await engine.read(async (state) => {
    const finite = finiteOnly(state, step), weights = new Map<string, Float32Array>();
    for await (const _ of readPieces(finite, "optimizer", namesOf(state, "optimizer")));
    const hash = createHash("sha256");
    let at = 0;
    for await (const piece of readPieces(finite, "model", namesOf(state, "model"))) {
      const { name, values, isLast } = piece;
      hash.update(bytesOf(values));
      if (!prepared.returnsWeights) continue;
      const shape = state.shapes.model.get(name)!;
      const all = weights.get(name) ?? new Float32Array(elementCount(shape));
      all.set(values, at);
      weights.set(name, all);
      at = isLast ? 0 : at + values.length;
    }
    return { hash: hash.digest("hex"), weights: prepared.returnsWeights ? weights : undefined };
  });
}

/** In the order in which weights are hashed. */
const namesOf = ({ shapes }: HeldState, kind: FileKind) => [...shapes[kind].keys()].sort();

/** Whether the run ends before its last step because no evaluation was better. */
const isStoppedEarly = (run: TrainingRun): boolean =>
  isOutOfPatience(run) && run.progress.step < run.prepared.steps;

/** Whether the run ends before its last step because it was told to. */
const isInterrupted = (run: TrainingRun): boolean =>
  run.signal?.aborted === true && run.progress.step < run.prepared.steps && !isStoppedEarly(run);

/**
 * Makes sure that a run that ends has trained something.
 *
 * @throws {NonFiniteError} when all its steps were skipped.
 */
export function assertTrained(run: TrainingRun): void {
  const { first, progress, prepared } = run;
  const isSkipped = progress.step > first.step && progress.update === first.update;
  if (!isSkipped || isInterrupted(run)) return;
  throw allSkipped(progress.step - first.step, prepared.lossScaling, progress.lossScale);
}

/** The last event of a run. */
export function endEvent(run: TrainingRun, { hash, weights }: LastWeights): TrainEvent {
  const { prepared: { devices, runtime, schedule }, held, writer, progress: { best } } = run;
  const [choice] = devices, adapter = adapterNames(devices);
  let read: ReadonlyMap<string, Float32Array> | undefined;
  return {
    type: "end",
    isInterrupted: isInterrupted(run),
    isStoppedEarly: isStoppedEarly(run),
    ...best && asksForBest(run) && {
      best: { step: best.step, loss: best.loss, checkpoint: writer?.best ?? null },
    },
    device: choice.name,
    ...adapter !== undefined && { adapter },
    ...hasThreads(choice.name) && { threads: choice.threads ?? 1 },
    choice,
    runtime,
    schedule: schedule.name,
    workers: schedule.workers,
    steps: run.progress.step,
    seconds: (performance.now() - run.began) / 1000,
    ...held,
    weightsHash: hash,
    checkpoint: writer?.newest?.path ?? null,
    get weights() {
      if (weights) return read ??= readTensors(weights);
      throw new TypeError(
        "Cannot give the weights: returnWeights must not be false, or there must be checkpoints, received neither",
      );
    },
  };
}
