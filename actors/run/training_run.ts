/**
 * A training run: its state, and its loop of steps, evaluations and checkpoints.
 *
 * @module
 */

import type { TrainEvent } from "../options/train_events.ts";
import { eventTurns, measureSamples, refusal } from "../../kernels/internal.ts";
import { hashWeights } from "../checkpoints/format.ts";
import {
  type FileKind,
  type HeldState,
  readTensors,
  type TensorSource,
} from "../checkpoints/tensors.ts";
import { allSkipped, assertFiniteData, meanLoss } from "../gradients/commit.ts";
import type { WorkerLost } from "../pipeline/protocol.ts";
import type { StepRequest } from "../pipeline/step.ts";
import { turn } from "../runtime/steps.ts";
import { finiteOnly } from "../pipeline/worker.ts";
import { CheckpointWriter, readHashed } from "./checkpoint_writer.ts";
import type { RunData } from "./data.ts";
import { computedOn } from "./devices.ts";
import type { Engine } from "./engine.ts";
import {
  countPredictions,
  firstProgress,
  keptProgress,
  nextBest,
  nextProgress,
  type Progress,
  stepEvent,
  type TakenStep,
} from "./events.ts";
import { Jobs } from "./jobs.ts";
import { openEngine } from "./pipeline.ts";
import { type Resize, type ResizeCause, TooFewWorkersError } from "./hosts.ts";
import type { Recovery } from "./recovery.ts";
import type { PreparedRun } from "./events.ts";
import { assertWritten } from "./run_journal.ts";

/**
 * Takes the requested steps. It asks for a request when the engine has room for its step: without
 * steps ahead, when the caller has handled the step before.
 *
 * @param pausesAfter whether a step must end before the next begins, as before a checkpoint.
 */
async function* pipelinedSteps(
  engine: Pick<Engine, "step" | "ahead" | "drain">,
  requests: AsyncIterable<StepRequest>,
  pausesAfter: (step: number) => boolean,
): AsyncGenerator<TakenStep, void> {
  const { ahead } = engine, begun: ReturnType<typeof begin>[] = [];
  let lastEnd = 0;
  const begin = (request: StepRequest) => {
    const began = performance.now();
    const ending = engine.step(request).then((outcome) => ({ outcome, end: performance.now() }));
    // A failure is thrown in order, when the outcome is awaited.
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

/** Peak usage of each worker. */
type PeakUsage = Pick<
  Extract<TrainEvent, { type: "end" }>,
  "peakActivations" | "weightsHeld" | "memory"
>;

/** Failures since the last step, after which the run has continued, without their step. */
type Failures = (
  | Omit<Extract<TrainEvent, { type: "failure" }>, "step">
  | Omit<Extract<TrainEvent, { type: "resize" }>, "step">
)[];

/** The weights at the end of a run. */
interface LastWeights {
  readonly hash: string;
  /** Undefined if they were not kept. */
  readonly weights: ReadonlyMap<string, TensorSource> | undefined;
}

/**
 * Opens a run with its engine.
 *
 * @throws {WorkerLostError} when its workers cannot be started.
 */
export async function openRun(prepared: PreparedRun, data: RunData | Jobs): Promise<TrainingRun> {
  const began = performance.now(), failures: Failures = [];
  const onLost = ({ worker: actor, message: reason }: WorkerLost) =>
    void failures.push({ type: "failure", actor, reason, time: Date.now() });
  const onResize = (cause: ResizeCause, resize: Resize) =>
    void failures.push({ type: "resize", ...cause, time: Date.now(), ...resize });
  const engine = await openEngine(prepared, onLost, onResize);
  return new TrainingRun(prepared, engine, data, failures, began);
}

/** A training run. */
export class TrainingRun {
  /** When the run began, by `performance.now()`. */
  readonly began: number;
  readonly #writer: CheckpointWriter | undefined;
  /** The progress after the last step. */
  progress: Progress;
  #usage: PeakUsage = { peakActivations: [], weightsHeld: [], memory: undefined };

  /** Makes a run at its first step. */
  constructor(
    private readonly prepared: PreparedRun,
    private readonly engine: Recovery,
    private readonly data: RunData | Jobs,
    private readonly failures: Failures,
    began: number,
  ) {
    const { checkpoint, announce, resume, lossScale } = prepared;
    this.began = began;
    this.#writer = checkpoint && new CheckpointWriter(checkpoint, announce);
    this.progress = firstProgress(resume, lossScale);
  }

  /** Bytes that each worker held in the last step, where they were counted. */
  get memory(): PeakUsage["memory"] {
    return this.#usage.memory;
  }

  /** True if this isolate computes. */
  get #isHere(): boolean {
    return ["local", "serial"].includes(this.prepared.runtime);
  }

  /** Path of the newest whole checkpoint. */
  get newest(): string | null {
    return this.#writer?.newest?.path ?? null;
  }

  /** Waits for the current checkpoint, whether it succeeds or fails. */
  async written(): Promise<void> {
    await this.#writer?.ended().catch(() => {});
  }

  /** Closes the engine. */
  close(): Promise<void> {
    return this.engine.close();
  }

  /**
   * The training loop: steps, with evaluations and checkpoints between them; then the end. If too few
   * workers remain, they write a checkpoint first.
   */
  async *events(): AsyncGenerator<TrainEvent, void> {
    try {
      yield* this.#events();
    } catch (error) {
      const writer = this.#writer;
      if (!(error instanceof TooFewWorkersError) || !writer) throw error;
      yield* await writer.ended();
      await this.#save(writer);
      yield* await writer.ended();
      throw error;
    }
  }

  async *#events(): AsyncGenerator<TrainEvent, void> {
    const { steps, evaluation, signal, journal, lent } = this.prepared;
    const writer = this.#writer;
    const jobs = this.data instanceof Jobs ? this.data : undefined;
    let lastOfHosts = 0; // the step after which all hosts leave
    const savesAfter = (step: number) => step === lastOfHosts || this.#savesAfter(step);
    const pausesAfter = (step: number) => {
      if (lent?.available() === 0) lastOfHosts = step; // all want to leave, and wait for release()
      return this.#evaluatesAfter(step) || savesAfter(step);
    };
    if (evaluation?.atStart) yield await this.#evaluate(false);
    const pause = eventTurns();
    for await (const taken of pipelinedSteps(this.engine, this.#requests(), pausesAfter)) {
      const events = this.#endStep(taken), { step } = this.progress;
      yield* this.#failed();
      yield* events;
      if (jobs) yield* jobs.ended((read) => this.engine.read(read));
      if (writer) yield* await writer.soFar();
      if (this.#evaluatesAfter(step)) yield await this.#evaluate();
      if (writer && savesAfter(step)) {
        yield* await writer.ended();
        await this.#save(writer);
      }
      // After the last step they are needed until the end.
      if (step === lastOfHosts && step < steps && !signal?.aborted) {
        if (writer) yield* await writer.ended();
        lent!.release();
      }
      if (signal && this.#isHere) await pause();
    }
    if (writer) yield* await writer.ended();
    if (jobs) yield* jobs.close((read) => this.engine.read(read));
    this.#assertTrained();
    // Once more if the folder is removed meanwhile; the writer fails the second time.
    for (let written: TrainEvent[] = []; writer && written.length === 0; yield* written) {
      await this.#save(writer);
      written = await writer.ended();
    }
    const event = this.#endEvent(await this.#lastWeights());
    assertWritten(journal, this.progress.step, this.newest);
    // The consumer of the weights needs memory.
    await this.engine.close();
    yield* this.#failed();
    yield event;
  }

  /** Returns the failures since they were last asked for. */
  #failed(): TrainEvent[] {
    const { step } = this.progress;
    return this.failures.splice(0).map((one) => ({ step, ...one }));
  }

  /** Yields the remaining steps, until the run must end. */
  async *#requests(): AsyncGenerator<StepRequest, void> {
    const isHere = this.#isHere, { data, prepared: { steps, rate, signal, journal } } = this;
    const mustEnd = () => signal?.aborted || journal?.ended.aborted || this.#isOutOfPatience();
    for (let next = this.progress.step + 1; next <= steps && !mustEnd(); next++) {
      const taken = await data.next();
      if (!taken) return;
      const { step, update, lossScale } = this.progress, { jobs, microBatches } = taken;
      // The step begins before the next turn of the event loop.
      if (!isHere && !(data instanceof Jobs)) void turn().then(() => data.drawAhead());
      yield {
        step: next,
        // Some of the steps before it may not have ended.
        update: update + next - step,
        microBatches,
        predictions: countPredictions(this.prepared, microBatches),
        learningRate: jobs ? jobs[0]!.learningRate : rate(next),
        lossScale: lossScale.scale,
        ...jobs && { jobs },
      };
    }
  }

  #evaluatesAfter(step: number): boolean {
    const { evaluation } = this.prepared;
    return evaluation !== undefined && step % evaluation.every === 0;
  }

  /** Returns whether a checkpoint follows a step; one always follows the last step. */
  #savesAfter(step: number): boolean {
    const { checkpoint, steps } = this.prepared, { every, keepBest } = checkpoint ?? {};
    const isDue = every !== undefined && step % every === 0;
    return (isDue || keepBest === true && this.progress.best?.step === step) && step < steps;
  }

  /**
   * Notes the progress of a step, and what its workers hold.
   *
   * @throws as {@linkcode stepEvent}.
   */
  #endStep(taken: TakenStep): Iterable<TrainEvent> {
    const { step, lossScale } = this.progress, { data, prepared } = this;
    const events = data instanceof Jobs
      ? data.steps(taken)
      : [stepEvent(prepared, step + 1, taken, lossScale)];
    const { request: { predictions }, outcome } = taken, { isCommitted: isTaken } = outcome;
    const { peakActivations, weights: weightsHeld, memory } = outcome;
    this.progress = nextProgress(this.progress, { isTaken, predictions }, prepared.lossScale);
    this.#usage = { peakActivations, weightsHeld, memory };
    return events;
  }

  /**
   * Evaluates the held-out micro-batches.
   *
   * @param isCounted whether this can be the best evaluation: not before the first step, because the
   * weights are not from this run, or were evaluated before.
   */
  async #evaluate(isCounted = true): Promise<TrainEvent> {
    const batches = this.data.heldOut, { step } = this.progress;
    const predictions = countPredictions(this.prepared, batches);
    const outputs = await this.engine.evaluate(batches);
    const { losses, metrics } = measureSamples(outputs, this.prepared.metrics, predictions);
    const loss = meanLoss(losses, predictions), measured = metrics && { metrics };
    if (!Number.isFinite(loss)) {
      const what = `evaluate after step ${step}: the loss`;
      assertFiniteData(this.prepared.model, batches, what, loss);
    }
    if (!isCounted || !this.#asksForBest()) return { type: "evaluation", step, loss, ...measured };
    const best = nextBest(this.progress.best, { step, loss });
    this.progress = { ...this.progress, best };
    return { type: "evaluation", step, loss, ...measured, ...best && { best } };
  }

  #asksForBest(): boolean {
    const { checkpoint, evaluation } = this.prepared;
    return evaluation !== undefined &&
      (checkpoint?.keepBest === true || evaluation.patience !== undefined);
  }

  #isOutOfPatience(): boolean {
    const { patience } = this.prepared.evaluation ?? {};
    return patience !== undefined && (this.progress.best?.since ?? 0) >= patience;
  }

  /** Begins a checkpoint; shards are written to their end. The last checkpoint must have ended. */
  async #save(writer: CheckpointWriter): Promise<void> {
    const progress = this.progress, { step } = progress;
    const { checkpoint, devices, lossScale, isSharded, stage } = this.prepared;
    const config = {
      ...checkpoint?.config,
      progress: { ...keptProgress(progress, lossScale), ...this.data.kept },
      computedOn: computedOn(devices, stage.precision),
    };
    const best = checkpoint?.keepBest ? progress.best : undefined;
    if (isSharded) {
      return void await this.engine.checkpoint((engine) =>
        writer.shards({ step, config, best }, (folder) => engine.write!(folder, step))
      );
    }
    await this.engine.read((state, kept) => writer.begin({ step, state, config, best }, kept));
  }

  /**
   * Returns the current weights: those of the checkpoint just written, or those of the workers.
   *
   * @throws {NonFiniteError} when they or their moments are not finite.
   */
  async #lastWeights(): Promise<LastWeights> {
    if (this.#writer) {
      const { weights } = this.#writer.newest!.state;
      return { hash: hashWeights(weights), weights };
    }
    const { returnWeights } = this.prepared;
    return await this.engine.read(async (state) => {
      const finite = finiteOnly(state, this.progress.step);
      const moments = namesOf(state, "optimizer"), names = namesOf(state, "model");
      const keptAs = (name: string) => returnWeights ? name : undefined;
      const { hash, weights } = await readHashed(finite, { moments, weights: names }, keptAs);
      return { hash, weights: returnWeights ? weights : undefined };
    });
  }

  #isStoppedEarly(): boolean {
    return this.#isOutOfPatience() && this.progress.step < this.prepared.steps;
  }

  #isInterrupted(): boolean {
    const { signal, steps } = this.prepared;
    return signal?.aborted === true && this.progress.step < steps && !this.#isStoppedEarly();
  }

  /** @throws {NonFiniteError} when all steps of the run were skipped, also those before a resume. */
  #assertTrained(): void {
    const { step, update, lossScale } = this.progress;
    if (step === 0 || update > 0 || this.#isInterrupted()) return;
    throw allSkipped(step, this.prepared.lossScale, lossScale);
  }

  #endEvent({ hash, weights }: LastWeights): TrainEvent {
    const { devices, runtime, schedule } = this.prepared, { best, step } = this.progress;
    const [choice] = devices, on = computedOn(devices);
    let read: ReadonlyMap<string, Float32Array> | undefined;
    return {
      type: "end",
      isInterrupted: this.#isInterrupted(),
      isStoppedEarly: this.#isStoppedEarly(),
      ...best && this.#asksForBest() && {
        best: { step: best.step, loss: best.loss, checkpoint: this.#writer?.best ?? null },
      },
      ...on,
      device: choice.name,
      choice,
      runtime,
      schedule: schedule.name,
      workers: schedule.workers,
      steps: step,
      seconds: (performance.now() - this.began) / 1000,
      ...this.#usage,
      weightsHash: hash,
      checkpoint: this.newest,
      get weights() {
        if (weights) return read ??= readTensors(weights);
        const must = "returnWeights must not be false, or there must be checkpoints";
        throw refusal("give the weights", must, "neither", TypeError);
      },
    };
  }
}

/** Returns the names in the order in which weights are hashed. */
const namesOf = ({ shapes }: HeldState, kind: FileKind) => [...shapes[kind].keys()].sort();
