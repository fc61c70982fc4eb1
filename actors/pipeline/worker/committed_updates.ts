/**
 * Updates with a flush: a worker votes when its backwards have run, adds its gradients to those of
 * the other copies, and steps its weights when all workers do.
 *
 * @module
 */

import { type GradientSync, openGradientSync } from "../../commit/gradient_sync.ts";
import { restorePolicy } from "../policy_data.ts";
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

/** Opens the updates of a worker that commits its steps with all others. */
export function openCommittedUpdates(worker: Worker): WeightUpdater {
  const { init, copies, activity } = worker, addends = mostAddends(worker);
  let end: StepEnd | undefined;
  const vote = async (copy: OpenCopy) => {
    const isSafe = await copy.kernels.checkGradients(addends);
    tell(worker, { type: "GradientsReady", stage: copy.stage, isSafe });
    if (end!.backwardsMissing.values().every((missing) => missing === 0)) {
      worker.state = "reducing";
    }
  };
  const endStep = () => {
    for (const { kernels } of copies.all) kernels.zeroGradients();
    reportStep(worker, worker.steps[0]!, []);
    worker.steps = [];
    worker.policy = undefined;
    worker.state = "idle";
  };
  const endWhenStepped = () => {
    if (end!.sync.isStepped) endStep();
  };
  /** Takes what belongs to the step under way, and drops what is left of one that was aborted. */
  const receivePart = (part: Part): Promise<void> | void => {
    const round = end?.round ?? 0;
    if (part.round > round) {
      throw new Error(`Cannot take a part of round ${part.round}: it must have begun`);
    }
    if (part.round < round || worker.state === "idle") return;
    const { stage, rank } = part;
    return activity.run(
      `reduce ${stage}`,
      () =>
        part.type === "ReducePart"
          ? end!.sync.receive(stage, rank, part.part)
          : end!.sync.receiveTie(stage, rank, part.name, part.values),
    );
  };
  const begin = async (
    { round, share, policy, lossScales }: Extract<WorkerMessage, { type: "Begin" }>,
  ) => {
    const countOf = ({ pipe }: OpenCopy) => share.pipeOf.filter((one) => one === pipe).length;
    const backwardsMissing = new Map(copies.all.map((copy) => [copy, countOf(copy)]));
    end = { round, sync: openStepSync(worker, round), backwardsMissing };
    worker.steps = [{ round, first: 0, share, lossScales }];
    worker.policy = restorePolicy(policy ?? init.policy);
    worker.state = "computing";
    for (const copy of copies.all) if (countOf(copy) === 0) await vote(copy);
    dispatch(worker);
  };
  return {
    ageOf: () => 0,
    async afterBackward(copy, _microBatch, part) {
      const missing = end!.backwardsMissing.get(copy)! - part;
      end!.backwardsMissing.set(copy, missing);
      if (missing === 0) await vote(copy);
    },
    handlers: {
      Begin: begin,
      Reduce: ({ stages }) => activity.run(`reduce ${stages}`, () => end!.sync.reduce(stages)),
      ReducePart: receivePart,
      TieGradient: receivePart,
      Commit({ update, learningRate, gradientScale }) {
        worker.state = "committing";
        end!.sync.commit(update, learningRate, gradientScale);
        endWhenStepped();
      },
      Abort: endStep,
      async StepBucket() {
        await activity.run("optimizer", () => end!.sync.stepBucket());
        endWhenStepped();
      },
    },
  };
}

/** The most gradients that are added to one: those of all copies, and of both ends of a tie. */
function mostAddends({ init: { copies, ties } }: Worker): number {
  return copies[0]!.length * (ties.some((ends) => ends.length > 0) ? 2 : 1);
}

function openStepSync(worker: Worker, round: number): GradientSync {
  const { ctx, init, copies, link, peers } = worker;
  return openGradientSync(round, copies.all, {
    ...init.reduce,
    size: init.copies[0]!.length,
    ties: init.ties,
    dtype: init.stage.precision === "fp16" ? "f16" : "f32",
  }, {
    send(stage, rank, message, values) {
      const to = peers!.workers[init.copies[stage]![rank]!.worker]!;
      link.send(to, message, values ? { transfer: [values.buffer] } : {});
    },
    wake: () => ctx.send(ctx.self, { type: "StepBucket" }),
    reduced: (squares) => tell(worker, { type: "Reduced", squares }),
  });
}
