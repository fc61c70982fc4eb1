/**
 * The end of a step: the vote on its gradients and their all-reduce; or, without flushes, the updates
 * that a stage makes by itself.
 *
 * [Note: staleness] Without flushes the order is a 1F1B without an end ({@linkcode Continuous1F1B}), as
 * in PipeDream (Narayanan et al. 2019, section 3.2), and no action comes between the last backward of
 * an update and its last bucket. So F of micro-batch m on stage s of D comes after exactly
 * max(0, m − (D − 1 − s)) backwards and their updates, and the weights that it reads do not depend on
 * timing.
 *
 * @module
 */

import { type Action, B, F, type StepPolicy } from "../../schedules/mod.ts";
import { isOffered } from "../../schedules/internal.ts";
import type { ReduceMessage } from "../gradients/all_reduce.ts";
import type { GradientSquares } from "../gradients/commit.ts";
import { GradientSync, type SteppedBucket } from "../gradients/sync.ts";
import { arrive, type WeightUpdater } from "./compute.ts";
import type { PeerMessage } from "./protocol.ts";
import type { OpenCopy } from "./stage_copies.ts";
import { restorePolicy } from "./step.ts";
import {
  type Begin,
  goOn,
  openStep,
  reducesAlone,
  reportStep,
  runReadyActions,
  send,
  sendToPeer,
  stepOf,
  takeDoubts,
  type Worker,
} from "./worker_state.ts";

/** The end of a step. */
interface StepEnd {
  readonly round: number;
  readonly sync: GradientSync;
  /** For each copy, the backwards that are still to run, in micro-batches. */
  readonly backwardsMissing: Map<OpenCopy, number>;
}

/** A message of another worker that belongs to one step. */
type Part = Extract<PeerMessage, { round: number }>;

/** Takes the inputs of a step that arrived before it began. */
function takeEarly(worker: Worker): void {
  const { early } = worker;
  worker.early = [];
  for (const [action, arrival] of early) arrive(worker, action, arrival);
  runReadyActions(worker);
}

/** Updates of a worker that commits its steps together with all others. */
export class CommittedUpdates implements WeightUpdater {
  /** The end of the current step, or of the last one. */
  #end: StepEnd | undefined;
  /** Parts of a step that has not begun here. */
  #early: Part[] = [];

  constructor(private readonly worker: Worker) {}

  readonly handlers: WeightUpdater["handlers"] = {
    Begin: (message) => this.#begin(message),
    Reduce: ({ stages }) =>
      this.worker.activity.run(
        `reduce ${stages}`,
        () => this.#end!.sync.reduce(stages),
        () => stages.length === 1 ? { stage: stages[0]! } : {},
      ),
    ReducePart: (part) => this.#receivePart(part),
    TieGradient: (part) => this.#receivePart(part),
    Mirror: (part) => this.#receivePart(part),
    Commit: ({ update, learningRate, gradientScale, jobs }) => {
      this.worker.state = "committing";
      for (const { kernels } of this.worker.copies.all) kernels.scaleJobs?.(jobs ?? []);
      this.#end!.sync.commit(update, learningRate, gradientScale);
      if (this.#end!.sync.isStepped) this.#endStep();
    },
    Abort: async () => {
      await this.#end!.sync.giveUp();
      this.#endStep();
    },
    StepBucket: () => this.#stepBucket(),
    Freeze: async () => {
      const worker = this.worker;
      // Commit waits for all sums, so the remaining buckets need no other worker.
      if (worker.state === "committing") {
        await this.#end!.sync.stepAll();
        this.#endStep();
      }
      worker.state = "frozen";
      send(worker, { type: "Frozen", worker: worker.init.worker });
    },
  };

  ageOf(): number {
    return 0;
  }

  async afterBackward(copy: OpenCopy): Promise<void> {
    const { backwardsMissing } = this.#end!, missing = backwardsMissing.get(copy)! - 1;
    backwardsMissing.set(copy, missing);
    if (missing === 0) await this.#vote(copy);
  }

  async #stepBucket(): Promise<void> {
    const { sync } = this.#end!;
    let stepped: SteppedBucket;
    const step = async () => void (stepped = await sync.stepBucket());
    await this.worker.activity.run("optimizer", step, () => stepped);
    if (sync.isStepped) this.#endStep();
  }

  async #begin(message: Begin): Promise<void> {
    const worker = this.worker, early = this.#early, { init, copies } = worker;
    const { round, share, policy = init.policy, jobs = [] } = message;
    for (const { kernels } of copies.all) kernels.beginJobs?.(jobs);
    const countOf = ({ pipe }: OpenCopy) => share.pipeOf.filter((one) => one === pipe).length;
    const backwardsMissing = new Map(copies.all.map((copy) => [copy, countOf(copy)]));
    this.#end = { round, sync: openStepSync(worker, round), backwardsMissing };
    this.#early = [];
    worker.steps = [openStep(worker, message, 0)];
    worker.policy = restorePolicy(policy);
    worker.state = "computing";
    for (const copy of copies.all) if (countOf(copy) === 0) await this.#vote(copy);
    for (const part of early) await this.#receivePart(part);
    takeEarly(worker);
  }

  /** Votes on the step when a copy has all its gradients. */
  async #vote({ kernels, stage }: OpenCopy): Promise<void> {
    const worker = this.worker, { ctx, copies, unsent } = worker;
    const isSafe = await kernels.checkGradients(mostAddends(worker));
    const vote = { type: "GradientsReady", stage, isSafe, ...takeDoubts(worker) } as const;
    const isAlone = reducesAlone(worker.init);
    if (isAlone) unsent.push(vote);
    else send(worker, vote);
    if (this.#end!.backwardsMissing.values().some((missing) => missing > 0)) return;
    worker.state = "reducing";
    const stages = copies.all.map(({ stage }) => stage);
    if (isAlone) ctx.send(ctx.self, { type: "Reduce", stages });
  }

  /** Handles a part of the current step; keeps one of a later step, drops one of an aborted step. */
  #receivePart(part: Part): Promise<void> | void {
    const round = this.#end?.round ?? 0;
    if (part.round > round) return void this.#early.push(part);
    if (part.round < round || this.worker.state === "idle") return;
    const { sync } = this.#end!, { stage, rank } = part;
    return this.worker.activity.run(
      `reduce ${stage}`,
      () =>
        part.type === "Mirror"
          ? sync.receiveMirror(stage, part.values)
          : part.type === "ReducePart"
          ? sync.receive(stage, rank, part.part)
          : sync.receiveTie(stage, rank, { from: undefined, ...part }),
      () => part.type === "ReducePart" ? { stage, chunk: part.part.chunk } : { stage },
    );
  }

  /** Ends the step, in which all buckets were stepped or none. */
  #endStep(): void {
    const worker = this.worker, [step] = worker.steps;
    for (const { kernels } of [...worker.copies.all, ...worker.mirrors]) kernels.zeroGradients();
    worker.steps = [];
    worker.policy = undefined;
    worker.state = "idle";
    reportStep(worker, step!, []);
  }
}

/** The most gradients that are added to one: of all copies, and of all tied parameters. */
function mostAddends({ init: { copies, ties } }: Worker): number {
  return copies[0]!.length * Math.max(1, ...ties.flat().map(({ members }) => members.length));
}

function openStepSync(worker: Worker, round: number): GradientSync {
  const { init, copies, mirrors, peers } = worker, { buddies } = init;
  const holderOf = (stage: number, rank: number) =>
    peers!.workers[init.copies[stage]![rank]!.worker]!;
  const mirrored = new Set(buddies?.keys().filter((stage) => buddies[stage] !== undefined));
  /** Lets the network add a part: the sums arrive as the part that the copy waits for. */
  const addByNetwork = (
    stage: number,
    { chunk, from: rank, slice, values }: ReduceMessage,
  ) => {
    const isHalf = values instanceof Float16Array;
    const own = isHalf ? new Float32Array(values) : values!;
    worker.ctx.allReduce({ group: stage, member: rank, values: own }, (sums) => {
      const values = isHalf ? new Float16Array(sums) : sums;
      const part: ReduceMessage = { chunk, phase: "gather", from: rank, slice, values };
      return { type: "ReducePart", round, stage, rank, part };
    });
  };
  return new GradientSync([...copies.all, ...mirrors], {
    ...init.reduce,
    size: init.copies[0]!.length,
    ties: init.ties,
    dtype: init.stage.precision === "fp16" ? "f16" : "f32",
    digests: init.verification && init.copies[0]!.length > 1,
    mirrored,
  }, {
    sendPart(stage, rank, part) {
      if (init.reduce.algorithm === "collective") return addByNetwork(stage, part);
      const message = { type: "ReducePart", round, stage, rank, part } as const;
      const { values } = part;
      const transfer = values ? { transfer: [values.buffer] } : {};
      sendToPeer(worker, holderOf(stage, rank), message, transfer);
    },
    sendTie(stage, rank, name, values, from) {
      const own = { type: "TieGradient", round, rank, stage, name, values } as const;
      const message = { ...own, ...from !== undefined && { from } };
      sendToPeer(worker, holderOf(stage, rank), message, { transfer: [values.buffer] });
    },
    sendMirror(stage, values) {
      const buddy = peers!.workers[buddies![stage]!]!, rank = init.copies[stage]!.length;
      const message = { type: "Mirror", round, stage, rank, values } as const;
      sendToPeer(worker, buddy, message, { transfer: [values.buffer] });
    },
    wake: () => goOn(worker, { type: "StepBucket" }),
    reduced(squares, digests) {
      const found = { ...digests.length > 0 && { digests }, ...takeDoubts(worker) };
      send(worker, { type: "Reduced", squares, ...found });
    },
  });
}

/**
 * The order of a stage in any number of steps, from an empty pipe until it is drained.
 *
 * Stage s of D runs D − 1 − s forwards ahead, then a forward and a backward in turn. If the input of
 * the next action is not there, or its step has not begun, it waits, even if another action could run.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { B, F } from "@troupe/troupe/schedules";
 *
 * const policy = new Continuous1F1B(0, 2);
 * policy.extend(2);
 * assert.deepEqual(policy.next([F(0, 0), F(0, 1)]), F(0, 0));
 * assert.deepEqual(policy.next([F(0, 1), B(0, 0)]), F(0, 1));
 * assert.deepEqual(policy.next([B(0, 0)]), B(0, 0));
 * assert.equal(policy.next([B(0, 1)]), undefined); // F of the next step comes first
 * policy.drain();
 * assert.deepEqual(policy.next([B(0, 1)]), B(0, 1));
 * assert.ok(policy.done);
 * ```
 */
export class Continuous1F1B implements StepPolicy {
  readonly #warmUp: number;
  #forwards = 0;
  #backwards = 0;
  #isDraining = false;
  /** Micro-batches of the steps that have begun. */
  known = 0;

  constructor(private readonly stage: number, stages: number) {
    this.#warmUp = stages - 1 - stage;
  }

  get done(): boolean {
    return this.#isDraining && this.#backwards === this.known;
  }

  get waitsFor(): Action | undefined {
    const isFilling = this.#forwards - this.#backwards <= this.#warmUp;
    if (isFilling && !(this.#isDraining && this.#forwards === this.known)) {
      return this.#forwards < this.known ? F(this.stage, this.#forwards) : undefined;
    }
    return this.#backwards < this.#forwards ? B(this.stage, this.#backwards) : undefined;
  }

  next(ready: readonly Action[]): Action | undefined {
    const action = this.waitsFor;
    if (!action || !isOffered(ready, action)) return undefined;
    if (action.kind === "F") this.#forwards++;
    else this.#backwards++;
    return action;
  }

  /** Adds the micro-batches of a step that begins. */
  extend(microBatches: number): void {
    this.known += microBatches;
  }

  /** Ends the stream of steps: only the remaining backwards run. */
  drain(): void {
    this.#isDraining = true;
  }
}

/** Updates of a worker that steps its one stage by itself. */
export class LocalUpdates implements WeightUpdater {
  readonly #copy: OpenCopy;
  #policy: Continuous1F1B;
  /** Updates since the pipe was empty. */
  #updates = 0;
  /** The sums of squares of the updates of the oldest step in progress. */
  #squares: GradientSquares[] = [];
  /** The update in progress. */
  #isLastOfStep = false;
  #nextBucket = 0;

  constructor(private readonly worker: Worker) {
    this.#copy = worker.copies.all[0]!;
    this.#policy = this.#openPolicy();
  }

  readonly handlers: WeightUpdater["handlers"] = {
    Begin: (message) => {
      const worker = this.worker, policy = this.#policy;
      if (worker.state === "idle") worker.state = "computing";
      worker.policy = policy;
      worker.steps.push(openStep(worker, message, policy.known));
      policy.extend(message.share.pipeOf.length);
      takeEarly(worker);
    },
    Drain: () => {
      this.#policy.drain();
      if (this.worker.state === "computing") this.#endWhenDrained();
      runReadyActions(this.worker);
    },
    StepBucket: async () => {
      const { kernels, stage } = this.#copy, bucket = this.#nextBucket++;
      const step = () => kernels.stepBucket(bucket);
      await this.worker.activity.run("optimizer", step, () => ({ stage, bucket }));
      this.#wakeOrEnd();
    },
  };

  ageOf(microBatch: number): number {
    const { version } = stepOf(this.worker, microBatch).updates!;
    return version === undefined ? 0 : this.#updates - version;
  }

  async afterBackward(_copy: OpenCopy, microBatch: number): Promise<void> {
    const { first, share, updates } = stepOf(this.worker, microBatch);
    const { kernels } = this.#copy, done = microBatch - first + 1;
    if (done % updates!.every > 0) return;
    this.#squares.push(await kernels.gradientSquares());
    const step = updates!.first + done / updates!.every - 1;
    kernels.beginStep(step, updates!.learningRate, 1);
    this.#isLastOfStep = done === share.pipeOf.length;
    this.#nextBucket = 0;
    this.worker.state = "committing";
    this.#wakeOrEnd();
  }

  #openPolicy(): Continuous1F1B {
    return new Continuous1F1B(this.#copy.stage, this.worker.init.copies.length);
  }

  /** Steps the next bucket in a later message, or ends the update. */
  #wakeOrEnd(): void {
    const worker = this.worker, { kernels } = this.#copy;
    if (this.#nextBucket < kernels.buckets.length) return goOn(worker, { type: "StepBucket" });
    kernels.zeroGradients();
    this.#updates++;
    if (this.#isLastOfStep) {
      reportStep(worker, worker.steps.shift()!, this.#squares);
      this.#squares = [];
    }
    worker.state = "computing";
    this.#endWhenDrained();
    runReadyActions(worker);
  }

  #endWhenDrained(): void {
    const worker = this.worker;
    if (!this.#policy.done) return;
    this.#policy = this.#openPolicy();
    this.#updates = 0;
    worker.policy = undefined;
    worker.state = "idle";
    send(worker, { type: "Drained" });
  }
}
