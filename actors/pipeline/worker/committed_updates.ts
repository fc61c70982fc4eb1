/**
 * Updates with a flush: a worker votes when its backwards have run, adds its gradients to those of
 * the other copies, and steps its weights when all workers do.
 *
 * @module
 */

import type { ReduceMessage } from "../../commit/all_reduce/mod.ts";
import {
  type GradientSync,
  openGradientSync,
  type SteppedBucket,
} from "../../commit/gradient_sync.ts";
import { recomputationsOf, restorePolicy } from "../policy_data.ts";
import type { PeerMessage, WorkerMessage } from "../protocol.ts";
import type { OpenCopy } from "../stage_copies.ts";
import type { WeightUpdater } from "./weight_updater.ts";
import { dispatch, reportStep, tell, type Worker } from "./worker_record.ts";

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

async function begin(
  commits: Commits,
  { round, share, policy, lossScales, dropout }: Extract<WorkerMessage, { type: "Begin" }>,
): Promise<void> {
  const { worker, early } = commits, { init, copies } = worker;
  const countOf = ({ pipe }: OpenCopy) => share.pipeOf.filter((one) => one === pipe).length;
  const backwardsMissing = new Map(copies.all.map((copy) => [copy, countOf(copy)]));
  commits.end = { round, sync: openStepSync(worker, round), backwardsMissing };
  commits.early = [];
  worker.steps = [{ round, first: 0, share, lossScales, dropout }];
  worker.policy = restorePolicy(policy ?? init.policy);
  worker.recomputations = recomputationsOf(policy ?? init.policy);
  worker.state = "computing";
  for (const copy of copies.all) if (countOf(copy) === 0) await vote(commits, copy);
  for (const part of early) await receivePart(commits, part);
  dispatch(worker);
}

/** A copy has all its gradients. */
async function vote({ worker, end }: Commits, { kernels, stage }: OpenCopy): Promise<void> {
  const isSafe = await kernels.checkGradients(mostAddends(worker));
  tell(worker, { type: "GradientsReady", stage, isSafe });
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
    reduced: (squares) => tell(worker, { type: "Reduced", squares }),
  });
}
