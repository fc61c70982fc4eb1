/**
 * Updates without flushes: a stage steps its weights after its own backwards, and never waits for
 * the end of a step.
 *
 * [Note: staleness] The order is that of 1F1B for ever ({@linkcode openEndlessPolicy}), and no action
 * comes between the last backward of an update and its last bucket. So F of micro-batch m on stage s
 * of D comes after exactly max(0, m − (D − 1 − s)) backwards and their updates, and the weights that
 * it sees do not depend on timing.
 *
 * @module
 */

import type { GradientSquares } from "../../commit/gradient_norm.ts";
import type { OpenCopy } from "../stage_copies.ts";
import { type EndlessPolicy, openEndlessPolicy } from "./endless_policy.ts";
import type { WeightUpdater } from "./weight_updater.ts";
import { dispatch, reportStep, stepOf, tell, type Worker } from "./worker_record.ts";

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
    dispatch(worker);
  };
  const endWhenDrained = () => {
    if (!stretch.policy.done) return;
    stretch = open();
    worker.policy = undefined;
    worker.state = "idle";
    tell(worker, { type: "Drained" });
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
      Begin({ round, share, lossScales, updates, dropout }) {
        if (worker.state === "idle") worker.state = "computing";
        worker.policy = stretch.policy;
        worker.steps.push({ round, first: stretch.known, share, lossScales, updates, dropout });
        stretch.known += share.pipeOf.length;
        stretch.policy.extend(share.pipeOf.length);
        dispatch(worker);
      },
      Drain() {
        stretch.policy.drain();
        if (worker.state === "computing") endWhenDrained();
        dispatch(worker);
      },
      async StepBucket() {
        const bucket = stretch.update!.nextBucket++, step = () => kernels.stepBucket(bucket);
        await activity.run("optimizer", step, () => ({ stage, bucket }));
        wakeOrEnd();
      },
    },
  };
}
