/**
 * Updates without flushes: a stage steps its weights after its own backwards, and never waits for
 * the end of a step.
 *
 * [Note: staleness] The order is that of 1F1B for ever ({@linkcode openEndlessPolicy}), and no action
 * comes between the last backward of an update and its last bucket. So F of micro-batch m on stage s
 * of D comes after exactly max(0, m − (D − 1 − s)) backwards and their updates, and the weights that
 * it sees do not depend on timing.
 *
 * 1F1B without an end: the order of PipeDream (Narayanan et al. 2019, section 3.2) over the ends of
 * steps, until the pipe is to run empty.
 *
 * @module
 */

import { type Action, B, F, type StepPolicy } from "../../schedules/mod.ts";
import { isOffered } from "../../schedules/internal.ts";
import type { ReduceMessage } from "../gradients/all_reduce.ts";
import type { GradientSquares } from "../gradients/commit.ts";
import { type GradientSync, openGradientSync, type SteppedBucket } from "../gradients/sync.ts";
import { arrive, type WeightUpdater } from "./compute.ts";
import type { PeerMessage } from "./protocol.ts";
import type { OpenCopy } from "./stage_copies.ts";
import { restorePolicy } from "./step.ts";
import {
  type Begin,
  openStep,
  reportStep,
  runReadyActions,
  send,
  stepOf,
  type Worker,
} from "./worker_state.ts";

/** The end of the step under way, as far as it has come. */
interface StepEnd {
  readonly round: number;
  readonly sync: GradientSync;
  /** For each copy the backwards that are still to run, in micro-batches. */
  readonly backwardsMissing: Map<OpenCopy, number>;
}

/** What belongs to one step and comes from another worker. */
type Part = Extract<PeerMessage, { round: number }>;

/** What a worker knows of its steps. */
interface Commits {
  readonly worker: Worker;
  /** The end of the step under way, or of the last one. */
  end: StepEnd | undefined;
  /** Parts of a step that has not begun here. */
  early: Part[];
}

/** Opens the updates of a worker that commits its steps with all others. */
export function openCommittedUpdates(worker: Worker): WeightUpdater {
  const { activity } = worker, commits: Commits = { worker, end: undefined, early: [] };
  const sync = () => commits.end!.sync;
  return {
    ageOf: () => 0,
    async afterBackward(copy, _microBatch, part) {
      const { backwardsMissing } = commits.end!, missing = backwardsMissing.get(copy)! - part;
      backwardsMissing.set(copy, missing);
      if (missing === 0) await vote(commits, copy);
    },
    handlers: {
      Begin: (message) => begin(commits, message),
      Reduce: ({ stages }) =>
        activity.run(
          `reduce ${stages}`,
          () => sync().reduce(stages),
          () => stages.length === 1 ? { stage: stages[0]! } : {},
        ),
      ReducePart: (part) => receivePart(commits, part),
      TieGradient: (part) => receivePart(commits, part),
      Commit({ update, learningRate, gradientScale }) {
        worker.state = "committing";
        sync().commit(update, learningRate, gradientScale);
        if (sync().isStepped()) endStep(commits);
      },
      async Abort() {
        await sync().giveUp();
        endStep(commits);
      },
      async StepBucket() {
        let stepped: SteppedBucket;
        const step = async () => void (stepped = await sync().stepBucket());
        await activity.run("optimizer", step, () => stepped);
        if (sync().isStepped()) endStep(commits);
      },
    },
  };
}

async function begin(commits: Commits, message: Begin): Promise<void> {
  const { round, share, policy } = message;
  const { worker, early } = commits, { init, copies } = worker;
  const countOf = ({ pipe }: OpenCopy) => share.pipeOf.filter((one) => one === pipe).length;
  const backwardsMissing = new Map(copies.all.map((copy) => [copy, countOf(copy)]));
  commits.end = { round, sync: openStepSync(worker, round), backwardsMissing };
  commits.early = [];
  worker.steps = [openStep(worker, message, 0)];
  worker.policy = restorePolicy(policy ?? init.policy);
  worker.state = "computing";
  for (const copy of copies.all) if (countOf(copy) === 0) await vote(commits, copy);
  for (const part of early) await receivePart(commits, part);
  takeEarly(worker);
}

/** Takes the inputs of a step that arrived before it began. */
function takeEarly(worker: Worker): void {
  const { early } = worker;
  worker.early = [];
  for (const [action, arrival] of early) arrive(worker, action, arrival);
  runReadyActions(worker);
}

/** A copy has all its gradients. */
async function vote({ worker, end }: Commits, { kernels, stage }: OpenCopy): Promise<void> {
  const isSafe = await kernels.checkGradients(mostAddends(worker));
  send(worker, { type: "GradientsReady", stage, isSafe });
  if (end!.backwardsMissing.values().some((missing) => missing > 0)) return;
  worker.state = "reducing";
}

/** Takes what belongs to the step under way: keeps what is early, and drops what is left of a step
 * that was aborted. */
function receivePart(commits: Commits, part: Part): Promise<void> | void {
  const { worker, end, early } = commits, round = end?.round ?? 0;
  if (part.round > round) return void early.push(part);
  if (part.round < round || worker.state === "idle") return;
  const { sync } = end!, { stage, rank } = part;
  return worker.activity.run(
    `reduce ${stage}`,
    () =>
      part.type === "ReducePart"
        ? sync.receive(stage, rank, part.part)
        : sync.receiveTie(stage, rank, part.name, part.values, part.from),
    () => part.type === "ReducePart" ? { stage, chunk: part.part.chunk } : { stage },
  );
}

/** All buckets have been stepped, or none is. */
function endStep({ worker }: Commits): void {
  for (const { kernels } of worker.copies.all) kernels.zeroGradients();
  const [step] = worker.steps;
  worker.steps = [];
  worker.policy = undefined;
  worker.state = "idle";
  reportStep(worker, step!, []);
}

/** The most gradients that are added to one: those of all copies, and of all that are tied. */
function mostAddends({ init: { copies, ties } }: Worker): number {
  return copies[0]!.length * Math.max(1, ...ties.flat().map(({ members }) => members.length));
}

/** Has the network add a part: the sums come as the part that the copy waits for. */
function addByNetwork(
  { ctx }: Worker,
  round: number,
  stage: number,
  { chunk, from: rank, slice, values }: ReduceMessage,
): void {
  const isHalf = values instanceof Float16Array;
  const addend = {
    group: stage,
    member: rank,
    values: isHalf ? new Float32Array(values) : values!,
  };
  ctx.allReduce(addend, (sums) => {
    const values = isHalf ? new Float16Array(sums) : sums;
    const part: ReduceMessage = { chunk, phase: "gather", from: rank, slice, values };
    return { type: "ReducePart", round, stage, rank, part };
  });
}

function openStepSync(worker: Worker, round: number): GradientSync {
  const { ctx, init, copies, link, peers } = worker;
  const holderOf = (stage: number, rank: number) =>
    peers!.workers[init.copies[stage]![rank]!.worker]!;
  return openGradientSync(copies.all, {
    ...init.reduce,
    size: init.copies[0]!.length,
    ties: init.ties,
    dtype: init.stage.precision === "fp16" ? "f16" : "f32",
  }, {
    sendPart(stage, rank, part) {
      if (init.reduce.algorithm === "collective") return addByNetwork(worker, round, stage, part);
      const message = { type: "ReducePart", round, stage, rank, part } as const;
      const { values } = part;
      link.send(holderOf(stage, rank), message, values ? { transfer: [values.buffer] } : {});
    },
    sendTie(stage, rank, name, values, from) {
      const own = { type: "TieGradient", round, rank, stage, name, values } as const;
      const message = { ...own, ...from !== undefined && { from } };
      link.send(holderOf(stage, rank), message, { transfer: [values.buffer] });
    },
    wake: () => ctx.send(ctx.self, { type: "StepBucket" }),
    reduced: (squares) => send(worker, { type: "Reduced", squares }),
  });
}

/** A policy for any number of steps. */
interface EndlessPolicy extends StepPolicy {
  /** So many more micro-batches come. */
  extend(microBatches: number): void;
  /** No more come: run the backwards that are left. */
  drain(): void;
}

/**
 * Opens the policy of a stage, for an empty pipe.
 *
 * Stage s of D runs D − 1 − s forwards ahead, then a forward and a backward in turn. Where the next
 * action has not got its input, or its step has not begun, it waits, though another could run.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { B, F } from "@troupe/troupe/schedules";
 *
 * const policy = openEndlessPolicy(0, 2);
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
export function openEndlessPolicy(stage: number, stages: number): EndlessPolicy {
  const warmUp = stages - 1 - stage;
  let forwards = 0, backwards = 0, known = 0, isDraining = false;
  const head = (): Action | undefined => {
    const wantsForward = forwards - backwards <= warmUp && !(isDraining && forwards === known);
    if (wantsForward) return forwards < known ? F(stage, forwards) : undefined;
    return backwards < forwards ? B(stage, backwards) : undefined;
  };
  return {
    next(ready) {
      const action = head();
      if (!action || !isOffered(ready, action)) return undefined;
      if (action.kind === "F") forwards++;
      else backwards++;
      return action;
    },
    get done() {
      return isDraining && backwards === known;
    },
    get waitsFor() {
      return head();
    },
    extend: (microBatches) => void (known += microBatches),
    drain: () => void (isDraining = true),
  };
}

/** What has happened since the pipe was empty. */
interface Stretch {
  readonly policy: EndlessPolicy;
  /** Micro-batches of the steps that have begun. */
  known: number;
  /** Updates that have been made. */
  updates: number;
  /** Those of the oldest step under way: their sums of squares. */
  squares: GradientSquares[];
  /** The update under way. */
  update?: { readonly isLastOfStep: boolean; nextBucket: number };
}

/** Opens the updates of a worker that steps its one stage by itself. */
export function openLocalUpdates(worker: Worker): WeightUpdater {
  const { ctx, init, copies, activity } = worker;
  const [{ kernels, stage }] = copies.all as [OpenCopy];
  const open = (): Stretch => {
    const policy = openEndlessPolicy(stage, init.copies.length);
    return { policy, known: 0, updates: 0, squares: [] };
  };
  let stretch = open();
  const wakeOrEnd = () => {
    const { update } = stretch;
    if (update!.nextBucket < kernels.buckets.length) {
      return ctx.send(ctx.self, { type: "StepBucket" });
    }
    kernels.zeroGradients();
    stretch.updates++;
    if (update!.isLastOfStep) {
      reportStep(worker, worker.steps.shift()!, stretch.squares);
      stretch.squares = [];
    }
    worker.state = "computing";
    endWhenDrained();
    runReadyActions(worker);
  };
  const endWhenDrained = () => {
    if (!stretch.policy.done) return;
    stretch = open();
    worker.policy = undefined;
    worker.state = "idle";
    send(worker, { type: "Drained" });
  };
  return {
    ageOf(microBatch) {
      const { version } = stepOf(worker, microBatch).updates!;
      return version === undefined ? 0 : stretch.updates - version;
    },
    async afterBackward(_copy, microBatch) {
      const { first, share, updates } = stepOf(worker, microBatch), done = microBatch - first + 1;
      if (done % updates!.every > 0) return;
      stretch.squares.push(await kernels.gradientSquares());
      const step = updates!.first + done / updates!.every - 1;
      kernels.beginStep(step, updates!.learningRate, 1);
      stretch.update = { isLastOfStep: done === share.pipeOf.length, nextBucket: 0 };
      worker.state = "committing";
      wakeOrEnd();
    },
    handlers: {
      Begin(message) {
        const { share: { pipeOf } } = message;
        if (worker.state === "idle") worker.state = "computing";
        worker.policy = stretch.policy;
        worker.steps.push(openStep(worker, message, stretch.known));
        stretch.known += pipeOf.length;
        stretch.policy.extend(pipeOf.length);
        takeEarly(worker);
      },
      Drain() {
        stretch.policy.drain();
        if (worker.state === "computing") endWhenDrained();
        runReadyActions(worker);
      },
      async StepBucket() {
        const bucket = stretch.update!.nextBucket++, step = () => kernels.stepBucket(bucket);
        await activity.run("optimizer", step, () => ({ stage, bucket }));
        wakeOrEnd();
      },
    },
  };
}
